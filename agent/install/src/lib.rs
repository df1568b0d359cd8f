//! The installation on the node: programs, a kubeconfig, and an entry in a CNI configuration.
//!
//! [`Agent`] keeps it in sync until a signal arrives, and then asks [`Owner`] whether it stays. [`Installer`] makes one pass
//! at a time and remembers what it wrote; [`Installer::inspect`] checks that it is still there; [`Installer::remove`] removes
//! it. The desired state ([`Desired`]) is plain data. [`plan()`] describes what a pass would do, with the same decisions
//! and without writing. Start with [`Installer`].
//!
//! Every file is written next to its target, synced and renamed, so that no reader sees a partial file.
//!
//! ```
//! use std::collections::BTreeMap;
//! use weir_core::settings::resolve;
//! use weir_install::{Desired, Json, insert, without};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let environment = |name: &str| (name == "KUBERNETES_SERVICE_HOST").then(|| "10.96.0.1".into());
//! let desired = Desired::of(&resolve(&BTreeMap::new(), &environment), "info")?;
//! let primary = Json::parse(r#"{"name": "pods", "plugins": [{"type": "bridge"}]}"#)?;
//! let chained = insert(primary.clone(), &desired.entry)?;
//! assert!(chained.pretty().contains(r#""type": "istio-cni""#));
//! assert_eq!(without(chained)?, Some(primary), "removal leaves the other plugins");
//! # Ok(())
//! # }
//! ```

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
pub use desired::Desired;
pub use entry::{Entry, PLUGIN};
pub use files::{Stamp, replace};
pub use insert::{insert, without};
pub use installer::{Files, Inspection, InstallError, Installer, Pass};
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
