//! Whether this kernel accepts the programs, without attaching anything.

use crate::asm::Code;
use crate::failed;
use crate::inpod::{Role, Traits, assemble};
use crate::load::mistake;
use crate::maps::Maps;
use crate::node::{self, NodeRole, NodeTraits};
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_bpf::Map;
use weir_netlink::{Error, Result};

/// Loads every program of a pod with its maps, for both families and with the capture of DNS, and forgets them. What passes
/// here is refused later only by an attachment or a pin.
///
/// # Errors
/// The kernel refuses a map or a program: [`Error::is_unsupported`] if it lacks something, and another kind if bpf(2) is not
/// permitted.
pub fn try_programs() -> Result<()> {
    let events = crate::events::is_supported().map_err(|e| lacking(e, "create the maps", ""))?;
    let maps = Maps::create(true, events).map_err(|e| lacking(e, "create the maps", ""))?;
    for dual in [false, true] {
        let traits = Traits {
            dual,
            dns: true,
            probe4: Ipv4Addr::LOCALHOST,
            probe6: Ipv6Addr::LOCALHOST,
            events,
        };
        for role in [Role::Egress, Role::Ingress, Role::Guest, Role::Loopback] {
            let code = assemble(role, &traits).map_err(|e| mistake(role, &e))?;
            try_code(&code, &maps.list())?;
        }
    }
    Ok(())
}

/// As [`try_programs`], for the programs of the node.
///
/// # Errors
/// As [`try_programs`].
pub fn try_node_programs() -> Result<()> {
    let events = crate::events::is_supported().map_err(|e| lacking(e, "create the maps", ""))?;
    let maps = node::trial_maps(events).map_err(|e| lacking(e, "create the maps", ""))?;
    for dual in [false, true] {
        for role in NodeRole::ALL {
            let code = node::assemble(
                role,
                NodeTraits {
                    dual,
                    dns: true,
                    exclude: true,
                    events,
                },
            )
            .map_err(|e| mistake(role, &e))?;
            try_code(&code, &maps.list())?;
        }
    }
    Ok(())
}

fn try_code(code: &Code, maps: &[&Map]) -> Result<()> {
    let loaded = code.load("weir_trial", maps);
    loaded.map(drop).map_err(|refused| {
        let text = refused.to_string();
        lacking(failed("load", "a program", &refused.error), "load", &text)
    })
}

/// The verifier refuses with `EACCES`, an unknown helper or kind of map is `EINVAL`: the kernel lacks something. Missing
/// rights are `EPERM`, and an exhausted machine is neither.
fn lacking(error: Error, operation: &str, text: &str) -> Error {
    use crate::libc_errno::{EACCES, EINVAL};
    match error.errno() {
        Some(EACCES | EINVAL) => {
            let text = if text.is_empty() {
                error.to_string()
            } else {
                text.to_owned()
            };
            Error::unsupported(operation, "the programs of weir", text)
        }
        _ => error,
    }
}
