//! Descriptors reserved for health checks.
//!
//! Without a free descriptor `accept4(2)` fails with `EMFILE` or `ENFILE` (the table of the process, or of the machine, is
//! full), and the kubelet's connection would stay in the backlog without an answer.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_core::journal::Journal;
use weir_core::journal::serve::Event;

/// Number of concurrent connections while no other descriptor is free.
const SPARES: usize = 4;
/// Interval between checks for a free descriptor.
const LOOK: Duration = Duration::from_secs(1);
/// A file that can always be opened.
const ANY: &str = "/dev/null";

/// Descriptors that are closed to make room for connections.
#[derive(Debug, Default)]
pub(crate) struct Reserve(Mutex<Vec<File>>);

impl Reserve {
    /// Opens the descriptors. Must be called before anything else is opened: after the limit is lowered
    /// (`prlimit(2)`) only the lowest numbers can be used.
    pub(crate) fn hold() -> Self {
        let reserve = Self::default();
        reserve.refill();
        reserve
    }

    /// Reopens descriptors that were given up, as far as any are free.
    pub(super) fn refill(&self) {
        let mut spares = self.spares();
        while spares.len() < SPARES {
            let Ok(spare) = File::open(ANY) else {
                return;
            };
            spares.push(spare);
        }
    }

    /// Closes one descriptor. Returns false if none was left.
    pub(super) fn give(&self) -> bool {
        // The lowest number was opened first and is closed last.
        self.spares().pop().is_some()
    }

    fn spares(&self) -> MutexGuard<'_, Vec<File>> {
        // No code panics while holding the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns true if the process or the machine has no free descriptor.
pub(super) fn is_exhausted(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(nix::libc::EMFILE | nix::libc::ENFILE)
    )
}

/// Records when the process runs out of descriptors and when one is free again. Never returns. Runs in the descriptor table
/// shared by everything except health and metrics.
pub(super) async fn watch(journal: Journal) {
    let mut was = false;
    loop {
        let why = File::open(ANY).err().filter(is_exhausted);
        match &why {
            Some(e) if !was => {
                let why = e.to_string();
                journal.record(Event::DescriptorsExhausted { why });
            }
            None if was => journal.record(Event::DescriptorsFree),
            _ => {}
        }
        was = why.is_some();
        tokio::time::sleep(LOOK).await;
    }
}
