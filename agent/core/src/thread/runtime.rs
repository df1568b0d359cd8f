//! A runtime for one thread: each part of the agent that waits for sockets has its own.

use std::io;
use tokio::runtime::{Builder, Runtime};

/// With timers and sockets. What blocks runs in further threads, which have this name too.
///
/// # Errors
/// The process has no descriptor left.
pub fn of_one_thread(name: &str) -> io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .thread_name(name)
        .build()
}
