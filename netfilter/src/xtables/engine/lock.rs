//! The lock shared with the iptables tools: `flock(2)` on `/run/xtables.lock`, or on the file named by the
//! environment variable `XTABLES_LOCKFILE`. A container has its own `/run`: there [`XtEngine::lock_file`] sets the path of
//! the node's file.
//!
//! [`XtEngine::lock_file`]: super::XtEngine::lock_file
//!
//! All processes that see the same file share the lock, in any network namespace. Waiting for it is only useful if other
//! programs write the tables of the same namespace.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir_netlink::{Error, Result};

/// Whether other programs write the tables of the network namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writers {
    /// No other program writes them, as in a pod's namespace. No lock is taken.
    #[default]
    OnlyUs,
    /// Other programs may write them, as in the host's namespace: the lock is held from before the tables are read until
    /// they are written.
    Others {
        /// How long to wait for the lock.
        patience: Duration,
    },
}

/// The lock; released on drop.
#[derive(Debug)]
pub(super) struct Held {
    _file: Option<File>,
    /// How long it took to acquire it.
    pub(super) waited: Option<Duration>,
}

/// Interval between attempts to acquire a held lock.
const INTERVAL: Duration = Duration::from_millis(2);

/// Takes the lock on the file `named`, unless the environment names another file.
pub(super) fn take(writers: Writers, named: Option<&Path>) -> Result<Held> {
    let Writers::Others { patience } = writers else {
        return Ok(Held {
            _file: None,
            waited: None,
        });
    };
    let path = path(named);
    let object = || path.display().to_string();
    let mut options = OpenOptions::new();
    // As the tools do, creates the file if it is missing, and never writes it.
    let file = options
        .read(true)
        .custom_flags(libc::O_CREAT)
        .mode(0o600)
        .open(&path);
    let file = file.map_err(|e| Error::io("open the lock", object(), &e))?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => {
                return Ok(Held {
                    _file: Some(file),
                    waited: Some(begun.elapsed()),
                });
            }
            Err(TryLockError::Error(e)) => return Err(Error::io("take the lock", object(), &e)),
            Err(TryLockError::WouldBlock) if begun.elapsed() >= patience => {
                let what = format!(
                    "another program has held it for {:.1} s; find it with `lslocks`, or wait longer",
                    begun.elapsed().as_secs_f64()
                );
                return Err(Error::exhausted("take the lock", object(), what));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(INTERVAL),
        }
    }
}

fn path(named: Option<&Path>) -> PathBuf {
    match std::env::var_os("XTABLES_LOCKFILE") {
        Some(path) if !path.is_empty() => path.into(),
        _ => named.unwrap_or(Path::new("/run/xtables.lock")).to_owned(),
    }
}
