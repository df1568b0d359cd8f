//! A plugin runner: does with a plugin chain what a container runtime does.
//!
//! For tests, demonstrations and debugging, not for production. A
//! [`NetworkList`] comes from a file, an [`Attachment`] names the container; a
//! [`Runner`] finds the plugins, calls them in order, keeps results between
//! calls and takes everything back when an ADD fails half-way. [`PodNetworks`] are the networks of a pod under Multus.
//!
//! Plugins are other people's programs, so this is where a program is started:
//! in the file `exec.rs`, and nowhere else in weir. Neither the plugin nor the
//! agent uses this module.
//!
//! References: CNI specification 1.1.0, sections 1 (configuration), 2
//! (protocol), 3 (execution) and 4 (delegation is the plugin's own affair).

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
