//! Rules, sets and sysctls of network namespaces: what the agent and the commands need and the CNI plugin does not.
//!
//! - [`SidecarConfig`]: the configuration of a redirection as text, as upstream's installer has it, and its conversion to an
//!   [`Intent`](weir_cni::config::Intent).
//! - [`strays`]: owned objects in the network namespace of a pod without a redirection, and whether this program wrote them.
//! - [`show`]: all rules and sets of a network namespace.
//! - [`of_node`], [`sysctl`]: the tables, the lock file and the sysctls of the node, from inside a container.
#![forbid(unsafe_code)]

mod authorship;
mod config;
mod duration;
mod intent;
pub mod of_node;
pub mod show;
mod strays;
mod switches;
pub mod sysctl;
mod validate;

pub use config::SidecarConfig;
pub use strays::{Strays, strays};
