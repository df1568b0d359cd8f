//! Host rules in legacy tables, with sets of ipset.

use super::{Host, SETS, leftovers, remove_of_iptables_nft, set_name};
use std::net::IpAddr;
use std::sync::Arc;
use weir_cni::redirection::has_legacy_tables;
use weir_netfilter::ipset::{self, Entry, Header, IpsetEngine, SetFamily, SetType};
use weir_netfilter::xtables;
use weir_netlink::Result;
use weir_rules::of_node::{legacy_tables, sets_among};

/// The legacy chain.
pub(super) const CHAIN: &str = "ISTIO_POSTRT";
/// Tag of the rule that jumps to it. It differs from the tag of rules that capture at the node (`weir_node_ambient`): both
/// are in the same tables, and with one tag each would remove the other's rules.
const TAG: u32 = u32::from_be_bytes(*b"wprb");

/// Sets are written before the rules, which refer to a set by its index. Sets of a family that is no longer captured are
/// destroyed after its rules: a referenced set cannot be destroyed.
pub(super) fn by_legacy(host: &Host) -> Result<Vec<String>> {
    let desired = sets(host);
    let write = |names: &[String]| -> Result<Vec<String>> {
        let applied = IpsetEngine::open()?.apply(&desired, names)?;
        Ok(applied.ops.iter().map(ToString::to_string).collect())
    };
    let needed: Vec<String> = desired.iter().map(|set| set.header.name.clone()).collect();
    let mut changes = write(&needed)?;
    let rules = legacy_tables()?.apply(&legacy(host), &ownership())?;
    changes.extend(rules.ops.iter().map(ToString::to_string));
    if needed.len() < SETS.len() {
        changes.extend(write(&SETS.map(str::to_owned))?);
    }
    Ok(changes)
}

/// Moves the rules before foreign ones, as each start of Istio's agent does: they are removed and written again. Probes that
/// start in between are captured. Returns one line per change.
///
/// # Errors
/// The operation that failed; the rules may be missing.
pub fn to_front(host: &Host) -> Result<Vec<String>> {
    let gone = legacy_tables()?.remove(&ownership());
    if let Some(e) = gone.failures.into_iter().next() {
        return Err(e);
    }
    let mut changes: Vec<String> = gone.ops.iter().map(ToString::to_string).collect();
    // No probe passes until the rules are back: retry once.
    changes.extend(by_legacy(host).or_else(|_| by_legacy(host))?);
    Ok(changes)
}

/// Removes rules and sets from the network namespace of this thread. Rules written through `iptables-nft` are removed, too, or
/// else the sets that only such rules use are kept. Returns one line per change.
///
/// # Errors
/// Rules or sets may remain.
pub(super) fn remove(with_iptables_nft: bool) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    if has_legacy_tables()? {
        let gone = legacy_tables()?.remove(&ownership());
        removed.extend(gone.ops.iter().map(ToString::to_string));
        if let Some(e) = gone.failures.into_iter().next() {
            return Err(e);
        }
    }
    let names = sets_among(&SETS)?;
    let mut were_in_use = false;
    if !names.is_empty() && with_iptables_nft {
        // Such rules may refer to the sets.
        let gone = remove_of_iptables_nft()?;
        were_in_use = !gone.is_empty();
        removed.extend(gone);
    } else if !names.is_empty() && leftovers::are_there_here()? {
        return Ok(removed);
    }
    for name in names {
        let mut engine = IpsetEngine::open()?;
        match were_in_use {
            true => engine.destroy_after_commit(&name)?,
            false => engine.destroy(&name)?,
        }
        removed.push(format!("destroy {name}"));
    }
    Ok(removed)
}

fn ownership() -> xtables::Ownership {
    xtables::Ownership {
        prefix: CHAIN.to_owned(),
        tag: TAG,
        // A rule of a network plugin may end the chain.
        first: true,
        ..xtables::Ownership::default()
    }
}

/// The sets of ipset.
#[must_use]
pub fn sets(host: &Host) -> Vec<ipset::Set> {
    let set = |is_v6: &bool| {
        let family = match is_v6 {
            true => SetFamily::Inet6,
            false => SetFamily::Inet,
        };
        let entry = |(address, uid): (&IpAddr, &Arc<str>)| Entry {
            comment: Some(uid.to_string()),
            ..Entry::new((*address).into())
        };
        ipset::Set {
            header: Header {
                comment: true,
                ..Header::new(set_name(*is_v6), SetType::HashIp, family)
            },
            entries: host.addresses(*is_v6).map(entry).collect(),
        }
    };
    host.families().iter().map(set).collect()
}

/// The rules of legacy tables.
#[must_use]
pub fn legacy(host: &Host) -> xtables::Ruleset {
    let table = |is_v6: &bool| {
        let owner = xtables::Owner {
            socket: Some(xtables::Not(false)),
            ..xtables::Owner::default()
        };
        let to_pods = xtables::SetMatch {
            set: xtables::SetRef {
                name: set_name(*is_v6).to_owned(),
                source: vec![false],
            },
            not: xtables::Not(false),
            return_nomatch: false,
            keep_counters: false,
            keep_subcounters: false,
            packets: None,
            bytes: None,
        };
        let probe = host.probe(*is_v6);
        let snat = xtables::Nat {
            addresses: Some(probe..=probe),
            ..xtables::Nat::default()
        };
        let rule = xtables::Rule::builder()
            .protocol(xtables::Protocol::TCP)
            .matching(xtables::Match::Owner(owner))
            .matching(xtables::Match::Set(to_pods))
            .target(xtables::Target::Snat(snat));
        let family = match is_v6 {
            true => xtables::XtFamily::Ip6,
            false => xtables::XtFamily::Ip,
        };
        xtables::Table {
            chains: vec![
                xtables::Chain {
                    rules: vec![xtables::Rule::builder().jump(CHAIN)],
                    ..xtables::Chain::builtin("POSTROUTING")
                },
                xtables::Chain {
                    rules: vec![rule],
                    ..xtables::Chain::user(CHAIN)
                },
            ],
            ..xtables::Table::new(family, "nat")
        }
    };
    xtables::Ruleset {
        tables: host.families().iter().map(table).collect(),
    }
}
