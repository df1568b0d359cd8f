//! Tokio runtimes of a single thread: each part of the agent that waits for sockets has its own.

use std::io;
use tokio::runtime::{Builder, Runtime};

/// Creates a runtime with timers and sockets. Blocking tasks run on additional threads, which have this name too.
///
/// # Errors
/// The process has no free descriptor.
pub fn of_one_thread(name: &str) -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .thread_name(name)
        .build()
}
