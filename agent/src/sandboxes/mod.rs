//! The network namespace of a pod: where it is, and how that is known.

mod cgroup;
pub(crate) mod claims;
pub mod cri;
pub(crate) mod place;
