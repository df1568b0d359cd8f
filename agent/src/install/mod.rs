//! What the agent does to the node: programs, a kubeconfig, an entry in a CNI configuration.
//!
//! [`Installer`] makes one pass at a time and remembers what it wrote; [`Installer::trouble`] says whether
//! that is still there; [`Installer::remove`] takes it away. A description of what is wanted ([`Desired`]) is
//! plain data. [`plan()`] says what a pass would do, with the same decisions and without writing.
//!
//! Every file is written beside its place, synced and renamed, so that at no moment half a file is seen.

mod binaries;
mod check;
mod config;
mod desired;
mod ending;
mod entry;
mod files;
mod insert;
mod installer;
mod json;
mod kubeconfig;
mod listing;
pub(crate) mod owner;
pub(crate) mod passes;
mod plan;
mod remove;
mod selectors;
mod throttle;
pub(crate) mod watch;

pub use crate::api::access::Access;
pub use crate::journal::install::Step;
pub use check::{Check, Remembered, check};
pub use config::{Choice, Written, choose, write};
pub use desired::Desired;
pub use entry::{Entry, PLUGIN};
pub use files::Stamp;
pub(crate) use files::replace;
pub use insert::{insert, without};
pub use installer::{Files, InstallError, Installer, Pass};
pub use json::Json;
pub use kubeconfig::kubeconfig;
pub(crate) use listing::ends_in;
pub use listing::{Listing, list};
pub use plan::{Planned, plan};
pub use remove::{Left, left, remove_everything};
pub(crate) use selectors::selectors;
