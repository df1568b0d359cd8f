//! SIGINT and SIGTERM: the demonstration ends before its next step and removes what it has made.

use nix::sys::signal::{SigSet, Signal};
use std::sync::OnceLock;

static BY: OnceLock<Signal> = OnceLock::new();

/// Catches the signals from now on; must precede the first additional thread. A second signal ends the process at once.
///
/// # Errors
/// They cannot be blocked, or no thread can be started.
pub(super) fn watch() -> Result<(), String> {
    let fail = |e: std::io::Error| format!("cannot wait for signals: {e}");
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_block().map_err(|e| fail(e.into()))?;
    let wait = move || {
        if let Ok(signal) = signals.wait() {
            let _ = BY.set(signal);
        }
        let _ = signals.thread_unblock();
        loop {
            std::thread::park();
        }
    };
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(wait).map_err(fail).map(drop)
}

/// # Errors
/// The signal that was received.
pub(super) fn check() -> Result<(), String> {
    BY.get()
        .map_or(Ok(()), |signal| Err(format!("ended by {signal}")))
}
