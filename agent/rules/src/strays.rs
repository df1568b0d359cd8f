//! Owned objects in a namespace without a desired redirection.

use crate::{authorship, show};
use weir_cni::compile::RoutingItem;
use weir_cni::redirection::{Change, Legacy, RTPROT_WEIR, SIDECAR, Visit, has_legacy_tables};
use weir_netfilter::nft::{NftEngine, NftOp};
use weir_netfilter::xtables::{Ownership, Ruleset, XtEngine, XtOp};
use weir_netlink::Result;
use weir_netlink::route::{LOOPBACK_IFINDEX, Routing};

/// The result of [`strays`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strays {
    /// The changes that [`Visit::clean`] would make.
    pub changes: Vec<Change>,
    /// True if no other writer can have made any of these objects: owned tables, and chains of legacy tables with the
    /// owned prefix, hold only rules that this program writes for some intent, all rules that jump to those chains carry
    /// weir's tag, and tables of `iptables-nft` have no such chains.
    pub certain: bool,
}

/// Looks for owned objects in the namespace of a pod without a redirection: tables of [`TABLES`], legacy rules with weir's
/// tag, and routing with its protocol number, which addresses have since Linux 5.18 (`IFA_PROTO`). Returns `None` if there
/// are none. Changes nothing.
///
/// [`TABLES`]: weir_cni::redirection::TABLES
///
/// # Errors
/// The namespace cannot be read.
pub fn strays(visit: &Visit<'_>) -> Result<Option<Strays>> {
    let changes = visit.plan_clean(None)?;
    let (mut has_tables, mut is_foreign, mut has_routing) = (false, false, false);
    for change in &changes {
        match change {
            Change::Rules(NftOp::DeleteTable(_)) => has_tables = true,
            // A table of `iptables-nft`, which stays.
            Change::Rules(_) => is_foreign = true,
            Change::Remove(RoutingItem::Address(net)) => {
                // On older kernels an address has no protocol number.
                let addresses = Routing::open()?.addresses()?;
                has_routing |= addresses.iter().any(|a| {
                    let is_on_lo = a.index == LOOPBACK_IFINDEX && a.net == *net;
                    is_on_lo && a.protocol == Some(RTPROT_WEIR)
                });
            }
            Change::Remove(_) => has_routing = true,
            _ => {}
        }
    }
    let signed = signed()?;
    if !(has_tables || signed > 0 || has_routing) {
        return Ok(None);
    }
    let certain = !is_foreign
        && is_own_legacy(&changes, signed)?
        && (!has_tables || authorship::wrote_tables(&NftEngine::open()?.read()?.ruleset));
    Ok(Some(Strays { changes, certain }))
}

/// Number of rules in built-in chains of legacy tables that carry the tag; no other program writes the tag.
fn signed() -> Result<usize> {
    let Legacy { tag, others, .. } = SIDECAR.legacy;
    let signed = Ownership {
        tag,
        others,
        ..Ownership::default()
    };
    if !has_legacy_tables()? {
        return Ok(0);
    }
    let mut engine = XtEngine::open()?;
    if !engine.holds(&signed)? {
        return Ok(0);
    }
    Ok(engine.drift(&Ruleset::default(), &signed)?.ops.len())
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
    Ok(built_in == signed && authorship::wrote_chains(&show::legacy_here()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_cni::compile::{Engine, compile};
    use weir_cni::config::Intent;
    use weir_cni::redirection::Sandbox;
    use weir_testing::tool::output;

    /// The number of objects, and whether they are certainly weir's.
    fn found(sandbox: &Sandbox) -> Option<(usize, bool)> {
        let strays = sandbox.visit(strays).unwrap().unwrap();
        strays.map(|found| (found.changes.len(), found.certain))
    }

    #[test]
    fn each_kind_of_object_counts_by_itself() {
        let netns = weir_testing::namespace_or_skip!();
        let sandbox = Sandbox::of(netns.try_clone().unwrap()).unwrap();
        let run = |command: &str| assert_eq!(output(&netns, command), "");
        run("ip link set lo up");
        assert_eq!(found(&sandbox), None);

        run("ip -6 address add ::6/128 dev lo");
        assert_eq!(found(&sandbox), None, "an address of another writer");
        run("ip -6 address delete ::6/128 dev lo");
        let passthrough = "::6/128".parse().unwrap();
        let routing = Routing::open_in(&netns).unwrap();
        let add = |by| routing.add_address_by(LOOPBACK_IFINDEX, passthrough, by);
        assert!(add(Some(RTPROT_WEIR)).unwrap());
        let addresses = routing.addresses().unwrap();
        let is_marked = addresses.iter().any(|a| a.protocol == Some(RTPROT_WEIR));
        // Linux before 5.18 does not store the number.
        assert_eq!(found(&sandbox), is_marked.then_some((1, true)));
        run("ip -6 address delete ::6/128 dev lo");

        run("ip rule add fwmark 1337 lookup 133 protocol 119");
        assert_eq!(found(&sandbox), Some((1, true)));
        run("ip rule delete fwmark 1337 lookup 133 protocol 119");

        run("nft add table inet istio-proxy-nat");
        assert_eq!(found(&sandbox), Some((1, false)), "any program can add it");
        sandbox
            .apply(&compile(&Intent::default(), Engine::Nft))
            .unwrap();
        assert_eq!(found(&sandbox), Some((1, true)));
        run("nft add table ip nat { chain ISTIO_OUTPUT { } ; }");
        let (objects, certain) = found(&sandbox).unwrap();
        assert!(objects > 1 && !certain, "upstream may have written both");
    }
}
