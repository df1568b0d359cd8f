//! Which part of the kernel gets the rules.

use crate::compile::Engine;

/// The engine for the plugin's rules, and what a person should know about the
/// choice.
///
/// `native_nftables: false` asks for classic tables in whatever variant the node
/// has. nf_tables does the same to the pod's traffic and is what this version
/// writes, so it is the automatic choice.
#[must_use]
pub fn choose_engine(native_nftables: bool) -> (Engine, Option<&'static str>) {
    if native_nftables {
        return (Engine::Nft, None);
    }
    let note = "native_nftables is false: the automatic engine of this version is nf_tables";
    (Engine::Nft, Some(note))
}
