//! Work by pod: one at a time for each, a few at once, again after a failure.
//!
//! [`queue`] decides which pod is next, without threads or a clock of its own; [`work`] is work on a thread; [`run`]
//! joins them for a [`Reconciler`], which knows what is to be done for a pod.

mod driver;
mod queue;
mod work;

pub(crate) use driver::{Changes, Handle, Job, Limits, Reconciler, handle, run};
#[cfg(test)]
pub(crate) use queue::Queue;
pub(crate) use queue::{Next, Start, Uid};
