//! What a thread of the agent begins with: a runtime of its own, and no more rights than its work needs.

pub mod descriptors;
pub mod privilege;
pub mod rights;
pub mod runtime;
pub mod task;
