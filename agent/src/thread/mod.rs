//! What a thread of the agent begins with: a runtime of its own, and no more rights than its work needs.

pub(crate) mod privilege;
pub(crate) mod rights;
pub(crate) mod runtime;
pub(crate) mod task;
