//! The plugin under Multus, both ways: as a separate network that a pod selects, and in the chain of the default
//! network with further interfaces. Real namespaces, links and connections; `ip`, `nft` and `nsenter` are oracles.

mod chained;
mod cluster;
mod order;
mod standalone;
