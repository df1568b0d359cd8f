//! Redirection inside the pod's namespace, without any netfilter object.
//!
//! ```text
//! application -> eth0 egress [Egress] --redirect--> lo ingress [Loopback] --sk_assign--> ztunnel 15001
//! ztunnel 15001 -> lo -> application                (its accepted socket has the server's address)
//! client -> eth0 ingress [Ingress] --sk_assign--> ztunnel 15006 -> eth0 -> client
//! ztunnel (with the client's address) -> lo -> application -> eth0 egress [Egress] --redirect--> lo -> ztunnel
//! process of the node, such as the kubelet with its probes -> eth0 ingress [Ingress] -> application -> eth0
//! ```
//! Packets keep their addresses, so the local address of a connection that ztunnel accepts is its original destination.
//! Packets for another host are marked; the policy rule and the local route of ambient mode keep them in this namespace.

pub(crate) mod layout;
pub(crate) mod nat;
pub(crate) mod packet;
pub(crate) mod parse;
pub(crate) mod programs;
pub(crate) mod report;
#[cfg(test)]
mod tests;

pub use layout::COUNTERS;
pub(crate) use layout::{NODE_NONE, QUERY_KEY, QUERY_VALUE};
pub use programs::{Role, Traits, assemble};
