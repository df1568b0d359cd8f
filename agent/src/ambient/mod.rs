//! Ambient mode: pods without a sidecar whose traffic the node's ztunnel carries.
//!
//! ```text
//! pods, plugin, ztunnel, nf_tables -> Keeper (one pod at a time) -> rules -> proxy -> probes -> annotation
//! ```
//! The desired state of a pod is computed from its present state, not from the event that triggered the work ([`pod`]): after a
//! restart, a lost event or a failure the same steps lead to the same result. The steps for one pod are ordered: its
//! traffic is captured before the proxy takes the pod, and the proxy takes it before the annotation says so ([`work`]).
//!
//! - [`decision`] decides whether a pod belongs to the mesh.
//! - [`pod`] holds the state of one pod and computes its next task. Pure.
//! - [`by_plugin`] holds the addresses that the plugin reports before the API server does.
//! - [`keeper`] connects both to the queue of [`weir_reconcile`].
//! - [`work`] executes a task through the [`hands`]: the pod's network namespace, the proxy, the host.
//! - [`ebpf`] redirects in the pod's network namespace without netfilter.
//! - [`node`] captures in the node's network namespace instead, for all pods at once.
//! - [`keep`] compares and repairs the rules of the node continuously.
//! - [`glance`] detects that the rules of the host may have changed.
//! - [`weir_drift::listener`] listens for routing changes of the node.
//! - [`packets`] records the packet events of eBPF programs.
//! - [`former`] removes what an earlier agent left when ambient mode is off.
//! - [`roster`] is the list of pods that the proxy receives when it connects.
//! - [`entry`] is the interface where the plugin hands over a pod and waits for the result.

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
pub(crate) mod settings;
mod start;
#[cfg(test)]
mod tests;
mod work;
mod zds;

pub(crate) use entry::{CheckError, Entry, HandedOver};
pub(crate) use former::Former;
pub(crate) use settings::AmbientSettings;
pub(crate) use start::{Ending, start, without};
use weir_core::pods::REDIRECTION;

/// The socket file is left in place: the next agent binds it again.
pub(crate) use weir_zds::Server;

/// The annotation that excludes traffic of a pod from capture at the node.
const EXCLUDE: &str = "ambient.weir/exclude";
