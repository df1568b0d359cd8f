//! Prints an error object on a panic: a runtime that reads empty stdout has no error to show.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::CniError;

/// Set once stdout has its only object; a second one would make both unreadable.
static ANSWERED: AtomicBool = AtomicBool::new(false);

pub(super) fn answered() {
    ANSWERED.store(true, Ordering::SeqCst);
}

/// Makes a panic in any thread print an error object with code 999 to stdout and end the process with status 1.
///
/// The hook does both itself: release builds abort on a panic, so no code after the hook would run.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let cause = info.payload_as_str().unwrap_or("no message");
        let place = info
            .location()
            .map_or_else(String::new, |l| format!(" at {l}"));
        let error = CniError::internal(format!("the plugin crashed: {cause}")).with_details(
            format!("panic{place}; this is a defect of the plugin, please report it"),
        );
        if !ANSWERED.swap(true, Ordering::SeqCst) {
            // If stdout is closed, there is no alternative.
            let _ = error.write(&mut std::io::stdout().lock());
        }
        // Do not use eprintln: it panics if stderr is closed, too.
        let _ = writeln!(std::io::stderr(), "{error}");
        std::process::exit(1);
    }));
}
