//! A plugin runner: calls a plugin chain as a container runtime does.
//!
//! For tests, demonstrations and debugging, not for production. A
//! [`NetworkList`] is read from a file, an [`Attachment`] names the container; a
//! [`Runner`] finds the plugins, calls them in order, stores results between
//! calls and calls DEL if an ADD fails half-way. [`PodNetworks`] are the networks of a pod under Multus.
//!
//! Plugins are external programs, so this crate starts programs: in the file `exec.rs`, and nowhere else in weir. Only
//! `weir cni`, `weir demo` and tests use this crate; the CNI plugin and the agent do not.
//!
//! References: CNI specification 1.1.0, sections 1 (configuration), 2
//! (protocol), 3 (execution) and 4 (delegation, which is left to the plugins).
#![forbid(unsafe_code)]

mod attachment;
mod cache;
mod error;
mod exec;
mod invoke;
mod list;
mod load;
mod multus;
mod runner;
mod selection;

pub use attachment::Attachment;
pub use error::{Error, Result};
pub use list::{NetworkList, PluginConfig};
pub use multus::PodNetworks;
pub use runner::{DEFAULT_CACHE_DIR, Runner};
pub use selection::Selection;
