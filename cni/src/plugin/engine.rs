//! Which part of the kernel gets the rules.

use crate::compile::Engine;
use crate::redirection::Sandbox;
use weir_netlink::Result;

/// The engine for the plugin's rules.
///
/// `native_nftables: false` asks for classic tables in whatever variant the node
/// has; both engines do the same to the pod's traffic, so it is the automatic choice.
///
/// # Errors
/// As [`Sandbox::choose_engine`].
pub fn choose_engine(native_nftables: bool, sandbox: &Sandbox) -> Result<Engine> {
    if native_nftables {
        return Ok(Engine::Nft);
    }
    sandbox.choose_engine()
}
