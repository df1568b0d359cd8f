//! Descriptors held back for those who ask whether this agent lives.
//!
//! Without a free descriptor `accept4(2)` answers `EMFILE` or `ENFILE` (the table of the process, or of the machine, is
//! full), and the kubelet would wait in the backlog for an answer that never comes.

use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_core::journal::Journal;
use weir_core::journal::serve::Event;

/// For so many connections at once while nothing else is free.
const SPARES: usize = 4;
/// Between two looks whether anything is free.
const LOOK: Duration = Duration::from_secs(1);
/// Anything that can always be opened.
const ANY: &str = "/dev/null";

/// Descriptors that are given up for connections.
#[derive(Debug, Default)]
pub(crate) struct Reserve(Mutex<Vec<File>>);

impl Reserve {
    /// Takes them now. To be called before anything else is opened: a limit that is lowered later
    /// (`prlimit(2)`) leaves the lowest numbers in use.
    pub(crate) fn hold() -> Self {
        let reserve = Self::default();
        reserve.refill();
        reserve
    }

    /// Takes back what was given up, as far as something is free again.
    pub(super) fn refill(&self) {
        let mut spares = self.spares();
        while spares.len() < SPARES {
            let Ok(spare) = File::open(ANY) else {
                return;
            };
            spares.push(spare);
        }
    }

    /// Gives one up. False when none was left.
    pub(super) fn give(&self) -> bool {
        // The lowest number was opened first and goes last.
        self.spares().pop().is_some()
    }

    fn spares(&self) -> MutexGuard<'_, Vec<File>> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this is the answer of a process, or a machine, without a free descriptor.
pub(super) fn is_exhausted(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(nix::libc::EMFILE | nix::libc::ENFILE)
    )
}

/// Tells when the process runs out of descriptors and when that is over. Runs for ever, in the table that everything
/// but the answers about health shares.
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
