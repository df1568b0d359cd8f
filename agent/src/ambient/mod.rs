//! Ambient mode: pods without a sidecar whose traffic the node's ztunnel carries.
//!
//! ```text
//! pods, plugin, ztunnel, nf_tables -> Keeper (one pod at a time) -> rules -> proxy -> probes -> annotation
//! ```
//! What a pod should be follows from what is known of it now, not from the event that brought the news ([`pod`]): after a
//! restart, a lost event or a failure the same steps lead to the same end. The steps for one pod are ordered so that its
//! traffic is captured before the proxy answers for it, and answered before anybody is told that it is ([`work`]).
//!
//! - [`decision`] says whether a pod belongs to the mesh.
//! - [`pod`] is what is known of one, and what is to be done next. Pure.
//! - [`by_plugin`] is what the plugin knows of it before the API server does.
//! - [`keeper`] joins both with the queue of [`weir_reconcile`].
//! - [`work`] does it, through the [`hands`]: the namespace, the proxy, the host.
//! - [`ebpf`] does the part of the namespace without netfilter.
//! - [`node`] captures in the node's namespace instead, for all pods at once.
//! - [`keep`] looks at what the node is to have, again and again.
//! - [`glance`] sees whether the rules of the host may have changed.
//! - [`routing`] hears of what changes in the routing of the node.
//! - [`packets`] tells what programs of eBPF report.
//! - [`former`] removes what an agent before this one left, when ambient mode is off.
//! - [`roster`] is what the proxy is told when it connects.
//! - [`entry`] is where the plugin hands a pod over and waits for the result.

mod by_plugin;
mod decision;
mod ebpf;
mod entry;
mod former;
mod glance;
mod hands;
mod keep;
mod keeper;
mod kernel;
mod node;
mod packets;
mod pod;
mod probes;
mod roster;
mod routing;
pub(crate) mod settings;
mod start;
#[cfg(test)]
mod tests;
mod work;
mod zds;

pub(crate) use entry::{Entry, HandedOver};
pub(crate) use former::Former;
pub(crate) use settings::AmbientSettings;
pub(crate) use start::{Ending, start, without};
use weir_core::pods::REDIRECTION;

/// Name of the socket's file stays: the next agent binds it anew.
pub(crate) use weir_zds::Server;

/// The annotation that says what is not captured of a pod, at the node.
const EXCLUDE: &str = "ambient.weir/exclude";
