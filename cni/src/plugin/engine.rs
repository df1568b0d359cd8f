//! Which part of the kernel gets the rules.

use crate::compile::Engine;

/// The engine that the network configuration names; none where it is to be chosen.
///
/// `native_nftables: false` asks for classic tables in whatever variant the node
/// has; both engines do the same to the pod's traffic, so it is the automatic choice.
#[must_use]
pub fn named_engine(native_nftables: bool) -> Option<Engine> {
    native_nftables.then_some(Engine::Nft)
}
