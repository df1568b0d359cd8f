//! Host rules in nf_tables: a table with both sets, and a rule for each family.

use super::{Host, set_name};
use std::net::IpAddr;
use std::sync::Arc;
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Data, DataType, Element, ElementChanges, ElementKey, Extra, Hook,
    L4Proto, Match, MetaKey, Nat, NatKind, NftEngine, Operand, PayloadBase, Rule, Ruleset,
    Selector, Set, Statement, Table, TableFamily, TableId, priority, raw,
};
use weir_netlink::{Error, Result};

/// The table.
const TABLE: &str = crate::redirect::TABLES[0];

/// The state that [`update`](super::update) verified last.
#[derive(Debug)]
pub struct InForce {
    host: Host,
    /// Generation of nf_tables; every commit by any writer changes it.
    generation: u32,
}

/// Writes only the addresses that differ. Returns the changes and the generation after them; `None` if anything else
/// differs, an operation failed, or another writer committed.
fn addresses_that_differ(
    engine: &mut NftEngine,
    host: &Host,
    InForce {
        host: before,
        mut generation,
    }: InForce,
) -> Option<(Vec<String>, u32)> {
    if (&before.config, &before.users) != (&host.config, &host.users) {
        return None;
    }
    let mut lines = Vec::new();
    for is_v6 in host.families() {
        let only = |of: &Host, other: &Host| -> Vec<Element> {
            let is_new =
                |(address, uid): &(&IpAddr, &Arc<str>)| other.addresses.get(*address) != Some(*uid);
            of.addresses(*is_v6).filter(is_new).map(element).collect()
        };
        let changes = ElementChanges {
            delete: only(&before, host),
            add: only(host, &before),
        };
        if changes.is_empty() {
            continue;
        }
        let set = set(*is_v6);
        for (verb, elements) in [("delete", &changes.delete), ("add", &changes.add)] {
            let elements = elements.clone();
            let texts = Set {
                elements,
                ..set.clone()
            }
            .element_texts();
            let line = |text| {
                format!(
                    "{verb} element {} {TABLE} {} {{ {text} }}",
                    id().0,
                    set.name
                )
            };
            lines.extend(texts.into_iter().map(line));
        }
        generation = engine
            .change_elements(&id(), &set, &changes, generation)
            .ok()??;
    }
    let is_same = !lines.is_empty() || engine.generation().is_ok_and(|now| now == generation);
    is_same.then_some((lines, generation))
}

pub(super) fn id() -> TableId {
    (TableFamily::Inet, TABLE.to_owned())
}

/// [`update`](super::update) with nf_tables.
pub(super) fn by_nft(
    host: &Host,
    known: Option<InForce>,
    in_force: &mut Option<InForce>,
) -> Result<Vec<String>> {
    let mut engine = NftEngine::open()?;
    let quick = known.and_then(|known| addresses_that_differ(&mut engine, host, known));
    let (changes, generation) = match quick {
        Some(done) => done,
        None => whole(&mut engine, host)?,
    };
    *in_force = Some(InForce {
        host: host.clone(),
        generation,
    });
    Ok(changes)
}

fn whole(engine: &mut NftEngine, host: &Host) -> Result<(Vec<String>, u32)> {
    let applied = engine.apply(&ruleset(host)?, &[id()])?;
    let changes = applied.ops.iter().map(ToString::to_string);
    Ok((changes.collect(), applied.generation))
}

/// Removes the table from the network namespace of this thread. Returns one line per change.
///
/// # Errors
/// The table may remain.
pub(super) fn remove() -> Result<Vec<String>> {
    let mut engine = match NftEngine::open() {
        // A kernel without nf_tables has no such table.
        Err(e) if e.is_unsupported() => return Ok(Vec::new()),
        opened => opened?,
    };
    match engine.tables() {
        Err(e) if e.is_unsupported() => return Ok(Vec::new()),
        Ok(tables) if !tables.contains(&id()) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(e) => return Err(e),
    }
    let applied = engine.apply(&Ruleset::default(), &[id()])?;
    Ok(applied.ops.iter().map(ToString::to_string).collect())
}

/// A set of nf_tables, without addresses.
fn set(is_v6: bool) -> Set {
    let (key_type, key_len) = match is_v6 {
        true => (DataType::IPV6_ADDR, 16),
        false => (DataType::IPV4_ADDR, 4),
    };
    Set {
        comment: Some("UUID of the pods that are part of ambient mesh".to_owned()),
        ..Set::new(set_name(is_v6), key_type, key_len)
    }
}

fn element((address, uid): (&IpAddr, &Arc<str>)) -> Element {
    Element::new(ElementKey::Value(Data::addr(*address))).with(Extra {
        comment: Some(uid.to_string()),
        ..Extra::default()
    })
}

/// The table for nf_tables: both sets, even if IPv6 is not captured, and a rule for each captured family.
///
/// # Errors
/// The user of the kubelet is unknown.
pub fn ruleset(host: &Host) -> Result<Ruleset> {
    let Some(users) = &host.users else {
        let reason = "no process of the kubelet is seen; mount the node's /proc at /host/proc";
        return Err(Error::refused("write", "rules for probes", reason));
    };
    let filled = |is_v6: bool| {
        let addresses = host
            .addresses(is_v6)
            .filter(|_| host.families().contains(&is_v6));
        Set {
            elements: addresses.map(element).collect(),
            ..set(is_v6)
        }
    };
    let rule = |is_v6: &bool| {
        let (family, offset, len, nfproto) = match is_v6 {
            true => (TableFamily::Ip6, 24, 16, raw::NFPROTO_IPV6),
            false => (TableFamily::Ip, 16, 4, raw::NFPROTO_IPV4),
        };
        let to_pods = Match {
            selector: Selector::Payload {
                base: PayloadBase::Network,
                offset,
                len,
            },
            mask: None,
            op: CmpOp::Eq,
            operand: Operand::Named {
                set: set_name(*is_v6).to_owned(),
                turned: false,
            },
        };
        let of_family = Match {
            selector: Selector::Meta(MetaKey::Nfproto),
            mask: None,
            op: CmpOp::Eq,
            operand: Operand::Value(Data::u8(nfproto)),
        };
        let probe = host.probe(*is_v6);
        Rule::builder()
            .l4proto(L4Proto::Tcp)
            .skuid(CmpOp::Eq, users.clone())
            .push(Statement::Match(of_family))
            .push(Statement::Match(to_pods))
            .counter()
            .push(Statement::Nat(Nat {
                kind: NatKind::Snat,
                family,
                addrs: Some((probe, probe)),
                ports: None,
                flags: 0,
            }))
            .build()
    };
    let chain = Chain {
        rules: host.families().iter().map(rule).collect(),
        ..Chain::base(
            "postrouting",
            ChainType::Nat,
            Hook::Postrouting,
            priority::SRCNAT,
        )
    };
    Ok(Ruleset {
        tables: vec![Table {
            sets: vec![filled(false), filled(true)],
            chains: vec![chain],
            ..Table::new(TableFamily::Inet, TABLE)
        }],
    })
}
