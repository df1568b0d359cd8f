//! Threads and processes that end with the test, even if it fails.

use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a thread's stop flag on drop.
#[derive(Debug)]
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Kills a process on drop and waits for it.
#[derive(Debug)]
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
