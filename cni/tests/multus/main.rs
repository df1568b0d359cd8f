//! The plugin under Multus, both ways: as a separate network that a pod selects, and in the chain of the default
//! network with further interfaces. Real namespaces, links and connections; `ip`, `nft` and `nsenter` are oracles.
// Clippy grants these to `#[test]` functions only.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

#[path = "../common/mod.rs"]
mod common;

mod chained;
mod cluster;
mod order;
mod standalone;
