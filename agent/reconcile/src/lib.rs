//! Runs work per pod: one job at a time per pod, a few at once, with retries after failures. A pod is only a UID here, with the
//! time of its last change; the caller supplies the work.
//!
//! [`Queue`] decides which pod is next, without threads or a clock; `work` runs jobs on threads; [`run`]
//! connects them for a [`Reconciler`], which supplies the jobs. Start with [`Queue`].
//!
//! ```
//! use std::time::{Duration, Instant};
//! use weir_reconcile::{Next, Queue, Uid};
//!
//! let (mut queue, now) = (Queue::new(2), Instant::now());
//! let (healthy, changed) = (Uid::from("uid-1"), Uid::from("uid-2"));
//! queue.sweep(&healthy, now);
//! queue.changed(&changed, now);
//! let mut start = |queue: &mut Queue, now| queue.start(now).map(|job| job.uid);
//! assert_eq!(start(&mut queue, now), Some(changed.clone()), "before a periodic verification");
//! queue.done(&changed, Next::Retry, now);
//! assert_eq!(start(&mut queue, now), Some(healthy));
//! assert_eq!(start(&mut queue, now), None, "the first pause after a failure is one second");
//! assert_eq!(start(&mut queue, now + Duration::from_secs(1)), Some(changed));
//! ```
#![forbid(unsafe_code)]

mod driver;
mod queue;
mod work;

pub use driver::{Changes, Handle, Job, Limits, Questions, Reconciler, handle, run};
pub use queue::{Next, Queue, Start, Uid};
