//! Ambient mode at the node: traffic of enrolled pods is captured in the node's network namespace and routed to the one proxy
//! of the node, as in Istio 1.18 to 1.20.
//!
//! ```text
//! Config (checked) + discovery -> Node -> desired objects and rules -> plan (steps) -> apply, verify, remove
//! ```
//! The first packet of a connection crosses a tunnel (GENEVE, VXLAN) or a veth pair into the proxy's namespace, where TPROXY
//! gives it to a listener; all others follow the connection's mark to the proxy's own veth pair. The proxy's sockets are
//! transparent: both sides see each other's addresses.
//!
//! Without a proxy, routes of type `unreachable` remain: no traffic of an enrolled pod leaves in plain text unless the
//! configuration says so.
//!
//! [`Config`] is the input, [`Node`] what was found for it; a [`Change`] has the [steps](plan::Step) for the node and for the proxy,
//! and the [`Collision`]s with foreign objects.
//!
//! ```
//! use weir_netlink::Netns;
//! use weir_node_ambient::{Config, apply, compare, remove};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::from_json("{}", "an example without pods")?;
//! # if Netns::create().is_err_and(|e| e.is_permission()) { return Ok(()); } // an unprivileged user
//! let node = Netns::create()?;
//! for step in &apply(&config, &node, None, false)?.host {
//!     println!("{step}");
//! }
//! assert!(compare(&config, &node, None)?.is_empty(), "it is in sync");
//! assert!(!remove(&node, None)?.is_empty());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod ahead;
mod apply;
mod before;
mod bridge;
mod captured;
mod carrier;
mod collide;
mod config;
mod discover;
pub mod ebpf;
mod exclude;
mod instead;
mod marks;
mod needs;
pub mod nft;
mod node;
pub mod objects;
pub mod plan;
mod proxied;
mod reach;
mod remove;
mod reused;
mod rule_change;
pub mod rules;
mod services;
mod source;
pub mod xtables;

pub use apply::{Change, apply, compare, is_present};
pub use captured::captured;
pub use collide::Collision;
pub use config::{CarrierChoice, Config, Marks, Numbers, Pod, Proxy, WithoutProxy};
pub use exclude::Exclude;
pub use instead::{apply_instead, remove_all};
pub use needs::needs;
pub use node::{Bridge, Carrier, LocatedProxy, Node};
pub use remove::remove;
pub use rule_change::RuleChange;

#[cfg(test)]
mod tests;
