//! Runs work per pod: one job at a time per pod, a few at once, with retries after failures. A pod is only a UID here, with the
//! time of its last change; the caller supplies the work.
//!
//! [`Queue`] decides which pod is next, without threads or a clock; `work` runs jobs on threads; [`run`]
//! connects them for a [`Reconciler`], which supplies the jobs.
#![forbid(unsafe_code)]

mod driver;
mod queue;
mod work;

pub use driver::{Changes, Handle, Job, Limits, Questions, Reconciler, handle, run};
pub use queue::{Next, Queue, Start, Uid};
