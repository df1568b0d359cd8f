//! `weir preflight`: the features of this node, and which jobs of weir they allow.
//!
//! ```text
//! survey   probe the kernel, in a throwaway namespace, without loading modules   -> Survey
//! judge    compare a job's needs with the findings (pure)                        -> Verdict
//! report   a table for people, JSON for programs
//! ```
//! Probes and the needs of jobs are tables of data: [`net`], [`bpf`], [`system`], [`process`] and
//! those of [`weir_netfilter::probe`]; [`jobs`] refers to their rows. The needs of a sidecar's rules are derived from the rules,
//! as when an engine is chosen for a pod: see [`Rules`]. Start with [`survey()`].
//!
//! Nothing on the machine is changed. No network and no cluster is needed. Without privileges it still reports what can be read
//! from files, and why the rest is unknown.
//!
//! ```
//! use weir_preflight::{JOBS, survey};
//!
//! let survey = survey(|area| eprintln!("probing {area}"));
//! for job in JOBS {
//!     let verdict = job.judge(&survey);
//!     println!("{}: {} {:?}", job.name, verdict.outcome.words(), verdict.reasons);
//! }
//! assert!(survey.find("nf_tables", "expression redir").is_some());
//! ```

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
