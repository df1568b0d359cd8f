//! The engine that the network configuration selects.

use crate::compile::Engine;

/// The engine that the network configuration names; `None`: chosen automatically.
///
/// `native_nftables: false` means xtables in whichever variant the node has. Both engines
/// have the same effect on the pod's traffic, so the engine is chosen automatically.
#[must_use]
pub fn named_engine(native_nftables: bool) -> Option<Engine> {
    native_nftables.then_some(Engine::Nft)
}
