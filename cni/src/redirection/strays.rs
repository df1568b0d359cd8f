//! Owned objects in a namespace without a desired redirection.

use super::named::Named;
use super::routing::{Held, removal};
use super::scheme::SIDECAR;
use super::{Change, Visit, authorship, engines};
use crate::compile::RoutingItem;
use weir_netfilter::nft;
use weir_netfilter::xtables::XtOp;
use weir_netlink::Result;

/// The result of [`Visit::strays`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strays {
    /// The changes that [`Visit::clean`] would make.
    pub changes: Vec<Change>,
    /// True if no other writer can have made any of these objects: owned tables, and chains of legacy tables with the
    /// owned prefix, hold only rules that this program writes for some intent, all rules that jump to those chains carry
    /// weir's tag, and tables of `iptables-nft` have no such chains.
    pub certain: bool,
}

impl Visit<'_> {
    /// Looks for owned objects in the namespace of a pod without a redirection: tables of [`TABLES`](super::TABLES),
    /// legacy rules with weir's tag, and routing with its protocol number, which addresses have since Linux 5.18
    /// (`IFA_PROTO`). Returns `None` if there are none. Changes nothing.
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn strays(&self) -> Result<Option<Strays>> {
        let mut changes = engines::ours_left(Named(&SIDECAR, None))?;
        let tables = changes.iter().any(|c| matches!(c, Change::Rules(_)));
        let signed = engines::legacy_signed(&SIDECAR)?;
        let left = engines::leftovers_found(Named(&SIDECAR, None))?;
        let is_foreign = !left.is_empty();
        changes.extend(left);
        let held = Held::read(&SIDECAR, &self.routing, &[])?;
        let (mut routing, mut address) = (false, false);
        for ours in held.ours() {
            match ours {
                RoutingItem::Address(_) => address = true,
                _ => routing = true,
            }
            changes.push(removal(&ours));
        }
        // On older kernels an address has no protocol number.
        let is_marked = address && held.owns_passthrough();
        if !(tables || signed > 0 || routing || is_marked) {
            return Ok(None);
        }
        let certain = !is_foreign
            && is_own_legacy(&changes, signed)?
            && (!tables || authorship::wrote_tables(&nft::NftEngine::open()?.read()?.ruleset));
        Ok(Some(Strays { changes, certain }))
    }
}

/// True if this program wrote everything that would be removed from legacy tables.
fn is_own_legacy(changes: &[Change], signed: usize) -> Result<bool> {
    let legacy = changes.iter().filter_map(|change| match change {
        Change::Legacy(op) => Some(&**op),
        _ => None,
    });
    let (mut is_used, mut built_in) = (false, 0);
    for op in legacy {
        is_used = true;
        built_in += usize::from(matches!(
            op,
            XtOp::DeleteRule(_, chain, ..) if !chain.starts_with(SIDECAR.legacy.prefix)
        ));
    }
    if !is_used {
        return Ok(true);
    }
    Ok(built_in == signed && authorship::wrote_chains(&engines::show_legacy()?))
}
