//! `weir preflight`: what can this node do, and which of weir's jobs does that allow.
//!
//! ```text
//! survey   ask the kernel, in a throwaway namespace, loading no module   -> Survey
//! judge    a job's needs against the findings, pure                      -> Verdict
//! report   a table for people, JSON for programs
//! ```
//! What is asked for and what a job needs are tables of data: [`net`], [`bpf`], [`system`], [`process`] and
//! those of [`weir_netfilter::probe`]; [`jobs`] names their rows. What the rules of a sidecar need is read off the rules,
//! as it is when an engine is chosen for a pod: see [`Rules`].
//!
//! Nothing of the machine is changed. No network and no cluster is needed. Without rights it still answers what
//! files tell, and says why the rest could not be told.

#![forbid(unsafe_code)]

pub mod bpf;
pub mod jobs;
mod jobs_table;
pub mod net;
pub mod process;
mod report;
mod rules;
mod survey;
pub mod system;

pub use jobs::{JOBS, Job, Outcome, Verdict};
pub use report::{JobReport, json, text};
pub use rules::Rules;
pub use survey::{Survey, survey};

#[cfg(test)]
mod tests;
