//! Locks against other writers.

mod holders;
mod root_only;

use crate::failed;
use root_only::RootOnly;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};
use weir_netlink::{Error, Netns, Result};

/// Maximum time to wait for another writer.
const LOCK_TIME: Duration = Duration::from_secs(10);
/// Interval between checks for the holders of the lock.
const LOOK: Duration = Duration::from_millis(200);

/// A locked network namespace: a command that may replace programs by rules, or the reverse, holds this lock from its first
/// observation until what it replaces is removed. It is taken before the lock of the pins, never after it.
#[derive(Debug)]
pub struct Lock {
    _of_file: Option<Flock>,
    _root_only: Option<RootOnly>,
}

impl Lock {
    /// Locks the file of the namespace, the only one that is the same in every container, then the namespace among the writers of weir
    /// that share a `/run`. The second lock excludes them from each other while a process that cannot be a writer holds the first
    /// one.
    ///
    /// # Errors
    /// Another writer, or a process that is not visible here, holds a lock for more than 10 s; or a file cannot be opened or locked.
    pub fn of_netns(netns: &Netns) -> Result<Self> {
        let object = format!("network namespace {}", netns.id());
        Ok(Self {
            _of_file: Flock::wait(&netns.path(), &object)?,
            _root_only: RootOnly::wait(&root_only::file(), netns, &object)?,
        })
    }
}

/// A locked file or directory (`flock(2)`). It is unlocked explicitly, because a thread with a separate descriptor table may hold a
/// copy of the descriptor.
#[derive(Debug)]
pub(crate) struct Flock(File);

impl Flock {
    /// Locks the file without waiting.
    ///
    /// # Errors
    /// Another process or thread holds the lock, or `flock(2)` fails.
    pub(crate) fn of(file: File) -> std::result::Result<Self, (File, TryLockError)> {
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(e) => Err((file, e)),
        }
    }

    /// Locks the file or directory at `path`; `object` is its name in errors. Waits up to 10 s for another writer.
    ///
    /// Any process that may open the file can lock it, also one without privileges. Locks of processes that cannot be writers,
    /// because they are not root or cannot have `CAP_NET_ADMIN`, are ignored: then this returns `None`, without a lock.
    ///
    /// # Errors
    /// Another writer, or a process that is not visible here, holds the lock for longer; or the file cannot be opened.
    pub(crate) fn wait(path: &Path, object: &str) -> Result<Option<Self>> {
        let io = |e: &std::io::Error| failed("lock", object, e);
        let mut file = File::open(path).map_err(|e| io(&e))?;
        let begun = Instant::now();
        let (mut looked, mut without_writers) = (begun, 0);
        loop {
            file = match Self::of(file) {
                Ok(lock) => return Ok(Some(lock)),
                Err((file, TryLockError::WouldBlock)) => file,
                Err((_, TryLockError::Error(e))) => return Err(io(&e)),
            };
            let is_over = begun.elapsed() > LOCK_TIME;
            if is_over || looked.elapsed() > LOOK {
                looked = Instant::now();
                let holders = holders::of(&file);
                let may_write = holders.iter().any(holders::Holder::may_write);
                without_writers = match holders.is_empty() || may_write {
                    true => 0,
                    false => without_writers + 1,
                };
                // Twice: a writer that has just ended may be followed by another one.
                if without_writers == 2 {
                    return match Self::of(file) {
                        Ok(lock) => Ok(Some(lock)),
                        Err((_, TryLockError::WouldBlock)) => Ok(None),
                        Err((_, TryLockError::Error(e))) => Err(io(&e)),
                    };
                }
                if is_over {
                    return Err(Error::exhausted("lock", object, holders::text(&holders)));
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Flock {
    fn drop(&mut self) {
        // The file is closed in any case.
        let _ = self.0.unlock();
    }
}
