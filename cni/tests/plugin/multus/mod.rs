//! The plugin under Multus: as a separate network that a pod selects, and in the chain of the default network with further interfaces.
//!
//! These tests use real namespaces, links and connections; `ip`, `nft` and `nsenter` are the oracles.

mod chained;
mod cluster;
mod order;
mod standalone;
