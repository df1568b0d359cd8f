//! Threads of the agent: their Tokio runtimes, and the capabilities that each keeps.

pub mod descriptors;
pub mod privilege;
pub mod rights;
pub mod runtime;
pub mod task;
