//! A runtime for one thread: each part of the agent that waits for sockets has its own.

use std::io;
use tokio::runtime::{Builder, Runtime};

/// With timers and sockets.
///
/// # Errors
/// The process has no descriptor left.
pub(crate) fn of_one_thread() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
