//! The installation on the node: programs, a kubeconfig, and an entry in a CNI configuration.
//!
//! [`Agent`] keeps it in sync until a signal arrives, and then asks [`Owner`] whether it stays. [`Installer`] makes one pass
//! at a time and remembers what it wrote; [`Installer::trouble`] checks that it is still there; [`Installer::remove`] removes
//! it. The desired state ([`Desired`]) is plain data. [`plan()`] describes what a pass would do, with the same decisions
//! and without writing.
//!
//! Every file is written next to its target, synced and renamed, so that no reader sees a partial file.

#![forbid(unsafe_code)]

mod binaries;
mod check;
mod config;
mod copy;
mod desired;
mod ending;
mod entry;
mod files;
mod insert;
mod installer;
mod json;
mod kubeconfig;
mod listing;
mod own_names;
mod owner;
mod passes;
mod plan;
mod remove;
mod selectors;
mod throttle;
mod typed;
mod unfinished;
mod watch;

pub use check::{Check, Remembered, check};
pub use config::{Choice, Written, choose, write};
pub use desired::Desired;
pub use entry::{Entry, PLUGIN};
pub use files::{Stamp, replace};
pub use insert::{insert, without};
pub use installer::{Files, InstallError, Installer, Pass, Trouble};
pub use json::Json;
pub use kubeconfig::kubeconfig;
pub use listing::{Listing, list};
pub use owner::Owner;
pub use passes::{Agent, End};
pub use plan::{Planned, plan};
pub use remove::{Left, Removed, check_alone, left, remove_everything};
pub use selectors::selectors;
pub use watch::Signals;
pub use weir_core::api::access::Access;
pub use weir_core::journal::install::Step;
