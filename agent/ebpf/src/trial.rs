//! Tests whether this kernel accepts the programs, without attaching them.

use crate::asm::Code;
use crate::failed;
use crate::inpod::{Role, Traits, assemble};
use crate::load::mistake;
use crate::maps::Maps;
use crate::node::{self, NodeRole, NodeTraits};
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_bpf::Map;
use weir_netlink::{Error, Result};

/// Loads every program of a pod with its maps, for both families and with DNS capture, and unloads them. After success, only
/// attachments and pins can still fail.
///
/// # Errors
/// The kernel refuses a map or a program: [`Error::is_unsupported`] if it lacks a feature, and another kind if bpf(2) is not
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

/// Like [`try_programs`], for the programs of the node.
///
/// # Errors
/// Those of [`try_programs`].
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

/// Converts an error that shows a missing feature: the verifier refuses with `EACCES`, an unknown helper or map type is `EINVAL`.
/// Missing capabilities are `EPERM`, and exhausted resources are neither.
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
