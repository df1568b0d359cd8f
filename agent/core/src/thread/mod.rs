//! Threads of the agent: their Tokio runtimes, and the capabilities that each keeps.

pub mod descriptors;
pub mod privilege;
pub mod rights;
pub mod runtime;
pub mod task;

use nix::errno::Errno;
use std::io;

/// Adds the name of a thread that cannot be started, and the remedy, to the error.
pub(crate) fn not_started(name: &str, e: &io::Error) -> io::Error {
    let no_descriptor = [Errno::EMFILE, Errno::ENFILE].map(|errno| Some(errno as i32));
    let remedy = match no_descriptor.contains(&e.raw_os_error()) {
        true => "raise the limit of open files",
        false => "raise the pids limit of the container",
    };
    let text = format!("cannot start the thread {name}: {e}; {remedy}");
    io::Error::new(e.kind(), text)
}
