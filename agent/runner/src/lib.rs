//! A plugin runner: calls a plugin chain as a container runtime does.
//!
//! For tests, demonstrations and debugging, not for production. A
//! [`NetworkList`] is read from a file, an [`Attachment`] names the container; a
//! [`Runner`] finds the plugins, calls them in order, stores results between
//! calls and calls DEL if an ADD fails half-way. [`PodNetworks`] are the networks of a pod under Multus.
//!
//! ```
//! use weir_runner::{Attachment, NetworkList, Runner};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = r#"{"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "bridge"}]}"#;
//! let list = NetworkList::from_list(text, "10-pods.conflist")?;
//! let attachment = Attachment {
//!     container_id: "c1".into(),
//!     netns: "/run/netns/web".into(),
//!     ifname: "eth0".into(),
//!     args: Attachment::pod_args("shop", "web-0", "c1"),
//!     ..Attachment::default()
//! };
//! attachment.validate()?;
//! let runner = Runner::new(vec!["/nonexistent/bin".into()], "/nonexistent/cache");
//! // `runner.add(&list, &attachment)` calls the chain. There is no plugin in this directory:
//! let error = runner.validate(&list).unwrap_err().to_string();
//! assert!(error.contains("bridge"), "{error}");
//! # Ok(())
//! # }
//! ```
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
