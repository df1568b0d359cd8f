//! Work by pod: one at a time for each, a few at once, again after a failure. A pod is a UID here, and nothing is known of it but
//! when it changed: what is to be done the caller says.
//!
//! [`Queue`] decides which pod is next, without threads or a clock of its own; `work` is work on a thread; [`run`]
//! joins them for a [`Reconciler`], which knows what is to be done for a pod.
#![forbid(unsafe_code)]

mod driver;
mod queue;
mod work;

pub use driver::{Changes, Handle, Job, Limits, Questions, Reconciler, handle, run};
pub use queue::{Next, Queue, Start, Uid};
