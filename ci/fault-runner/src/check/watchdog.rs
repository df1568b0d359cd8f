//! Kills a process at its deadline while its tracer is blocked in waitpid(2).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The process that is being watched.
struct Watched {
    pid: Pid,
    deadline: Instant,
}

#[derive(Default)]
struct Shared {
    watched: Mutex<Option<Watched>>,
    changed: Condvar,
    fired: AtomicBool,
    ended: AtomicBool,
}

/// A thread that watches one process at a time.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The process is watched until the guard is dropped.
pub(crate) struct Guard<'a>(&'a Shared);

impl Watchdog {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || own.work());
        Self {
            shared,
            thread: Some(thread),
        }
    }

    pub(crate) fn watch(&self, pid: Pid, deadline: Instant) -> Guard<'_> {
        self.shared.fired.store(false, Ordering::SeqCst);
        self.shared.set(Some(Watched { pid, deadline }));
        Guard(&self.shared)
    }
}

impl Guard<'_> {
    /// Whether the process was killed.
    pub(crate) fn fired(&self) -> bool {
        self.0.fired.load(Ordering::SeqCst)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.set(None);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn set(&self, watched: Option<Watched>) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = watched;
        self.changed.notify_one();
    }

    fn work(&self) {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.ended.load(Ordering::SeqCst) {
            let Some(process) = &*watched else {
                watched = self
                    .changed
                    .wait(watched)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = process.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.fired.store(true, Ordering::SeqCst);
                // The tracer has not reaped the process yet, so the kernel cannot have reused its number.
                let _ = kill(process.pid, Signal::SIGKILL);
                *watched = None;
                continue;
            }
            let waited = self.changed.wait_timeout(watched, left);
            watched = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
