//! The pure part: the operations that bring the kernel to the desired state.

use crate::ipset::model::{Entry, Header, Key, KeyPart, Set, SetType, SkbInfo};
use crate::ipset::options::options;
use crate::ipset::raw::IPSET_MAXNAMELEN;
use ipnet::IpNet;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One change. `Display` prints the equivalent `ipset` commands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IpsetOp {
    /// `create`
    Create(Header),
    /// `add -exist`
    Add(String, Vec<Entry>),
    /// `del -exist`
    Delete(String, Vec<Entry>),
    /// `swap`
    Swap(String, String),
    /// `destroy`
    Destroy(String),
}

impl fmt::Display for IpsetOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = |verb: &str, set: &str, entries: &[Entry]| {
            let mut separator = "";
            for e in entries {
                write!(f, "{separator}{verb} {set} {e}")?;
                separator = "\n";
            }
            Ok(())
        };
        match self {
            Self::Create(header) => write!(f, "{header}"),
            Self::Add(set, entries) => lines("add", set, entries),
            Self::Delete(set, entries) => lines("del", set, entries),
            Self::Swap(a, b) => write!(f, "swap {a} {b}"),
            Self::Destroy(set) => write!(f, "destroy {set}"),
        }
    }
}

/// The name under which a set is built before it is swapped in.
pub(super) fn temporary(name: &str) -> String {
    const SUFFIX: &str = ".weir-new";
    let mut end = name.len().min(IPSET_MAXNAMELEN - 1 - SUFFIX.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{SUFFIX}", name.get(..end).unwrap_or_default())
}

/// Plans the operations after which the sets `owned` equal `desired`, and owned sets that are not desired do not exist.
///
/// A set with other options is built under another name and swapped in, so that rules always see the old content or
/// the new. A set of another type cannot be swapped: it is destroyed first, which fails while it is in use. Counters
/// are not compared; a timeout that has counted down from the desired value is equal to it.
#[must_use]
pub fn plan(desired: &[Set], observed: &[Set], owned: &[String]) -> Vec<IpsetOp> {
    let found = |name: &str| observed.iter().find(|s| s.header.name == name);
    let is_list = |s: &&Set| s.header.kind == SetType::ListSet;
    let mut ops = Vec::new();
    // Replacements that an interrupted process did not finish.
    for name in owned
        .iter()
        .map(|n| temporary(n))
        .filter(|n| !owned.contains(n))
    {
        let stale = IpsetOp::Destroy(name.clone());
        if found(&name).is_some() && !ops.contains(&stale) {
            ops.push(stale);
        }
    }
    // Members are created before the lists that refer to them, and destroyed after them.
    let (lists, others): (Vec<&Set>, Vec<&Set>) = desired.iter().partition(is_list);
    for set in others.into_iter().chain(lists) {
        match found(&set.header.name) {
            None => build(set, &set.header.name, &mut ops),
            Some(old) if same_frame(&set.header, &old.header) => change(set, old, &mut ops),
            Some(old) => replace(set, old, &mut ops),
        }
    }
    let gone = owned
        .iter()
        .filter(|n| !desired.iter().any(|s| s.header.name == **n));
    let (lists, others): (Vec<&Set>, Vec<&Set>) = gone.filter_map(|n| found(n)).partition(is_list);
    ops.extend(
        lists
            .into_iter()
            .chain(others)
            .map(|s| IpsetOp::Destroy(s.header.name.clone())),
    );
    ops
}

fn build(set: &Set, name: &str, ops: &mut Vec<IpsetOp>) {
    ops.push(IpsetOp::Create(Header {
        name: name.to_owned(),
        ..set.header.clone()
    }));
    if !set.entries.is_empty() {
        ops.push(IpsetOp::Add(name.to_owned(), set.entries.clone()));
    }
}

fn replace(set: &Set, old: &Set, ops: &mut Vec<IpsetOp>) {
    let name = &set.header.name;
    if (&set.header.kind, set.header.family) == (&old.header.kind, old.header.family) {
        let temporary = temporary(name);
        build(set, &temporary, ops);
        ops.push(IpsetOp::Swap(temporary.clone(), name.clone()));
        ops.push(IpsetOp::Destroy(temporary));
    } else {
        ops.push(IpsetOp::Destroy(name.clone()));
        build(set, name, ops);
    }
}

/// Whether all options that the kernel cannot change in place are as desired.
fn same_frame(desired: &Header, found: &Header) -> bool {
    let frame = |h: &Header| {
        let mut normal = Header {
            name: String::new(),
            ..h.clone()
        };
        options(&h.kind).for_each(|o| (o.normalize)(&mut normal, desired));
        normal
    };
    frame(desired) == frame(found)
}

fn change(desired: &Set, found: &Set, ops: &mut Vec<IpsetOp>) {
    let header = &desired.header;
    let settle = |s: &Set| -> Vec<Entry> { s.entries.iter().map(|e| settled(e, header)).collect() };
    let (new, old) = (settle(desired), settle(found));
    let by_key: HashMap<&Key, &Entry> = old.iter().map(|e| (&e.key, e)).collect();
    let keys: HashSet<&Key> = new.iter().map(|e| &e.key).collect();
    if header.kind == SetType::ListSet {
        let mut kept = old.iter().map(|e| &e.key).filter(|k| keys.contains(k));
        let mut desired_order = new.iter().map(|e| &e.key);
        if !kept.all(|k| desired_order.next() == Some(k)) {
            return replace(desired, found, ops);
        }
    }
    let delete: Vec<Entry> = old
        .iter()
        .filter(|e| !keys.contains(&e.key))
        .cloned()
        .collect();
    let mut last: HashMap<&Key, &Entry> = HashMap::new();
    for e in &new {
        last.insert(&e.key, e);
    }
    let mut add = Vec::new();
    for e in &new {
        // If several entries have the same key, the last one applies.
        let e = last.remove(&e.key);
        let is_there = |e: &&Entry| by_key.get(&e.key).is_some_and(|o| is_same(e, o));
        add.extend(e.filter(|e| !is_there(e)).cloned());
    }
    if !delete.is_empty() {
        ops.push(IpsetOp::Delete(header.name.clone(), delete));
    }
    if !add.is_empty() {
        ops.push(IpsetOp::Add(header.name.clone(), add));
    }
}

fn is_same(desired: &Entry, found: &Entry) -> bool {
    let timeout = match (desired.timeout, found.timeout) {
        (Some(w), Some(f)) if w > 0 => (1..=w).contains(&f),
        (w, f) => w == f,
    };
    timeout
        && Entry {
            timeout: None,
            ..desired.clone()
        } == Entry {
            timeout: None,
            ..found.clone()
        }
}

/// The form in which the kernel lists an entry, without counters.
pub(super) fn settled(e: &Entry, header: &Header) -> Entry {
    let key = match &e.key {
        Key::Parts(parts) => {
            let kept = |part: &KeyPart| match part {
                KeyPart::Ip(ip) => KeyPart::Ip(masked(*ip, header)),
                KeyPart::Net(net) => KeyPart::Net(masked_net(*net, header)),
                KeyPart::Port(port) => KeyPart::Port(port.kept()),
                KeyPart::Mark(mark) => KeyPart::Mark(mark & header.mark_mask.unwrap_or(u32::MAX)),
                other => other.clone(),
            };
            Key::Parts(parts.iter().map(kept).collect())
        }
        other => other.clone(),
    };
    let SkbInfo { mark, prio, queue } = e.skbinfo;
    Entry {
        key,
        timeout: header.timeout.map(|default| e.timeout.unwrap_or(default)),
        nomatch: e.nomatch,
        counters: None,
        comment: e.comment.clone().filter(|c| !c.is_empty()),
        skbinfo: SkbInfo {
            mark: mark.filter(|m| *m != (0, 0)),
            prio: prio.filter(|p| *p != 0),
            queue: queue.filter(|q| *q != 0),
        },
    }
}

/// Only sets of `hash:net,net` have masks.
fn masked_net(net: IpNet, header: &Header) -> IpNet {
    let address = masked(net.network(), header);
    IpNet::new(address, net.prefix_len()).map_or(net, |net| net.trunc())
}

fn masked(ip: IpAddr, header: &Header) -> IpAddr {
    let prefix = |bits: u32| u32::from(header.netmask.unwrap_or(u8::MAX)).min(bits);
    match (ip, header.bitmask) {
        (IpAddr::V4(a), Some(IpAddr::V4(m))) => IpAddr::V4(a & m),
        (IpAddr::V6(a), Some(IpAddr::V6(m))) => IpAddr::V6(a & m),
        (IpAddr::V4(a), _) => {
            let mask = u32::MAX.checked_shl(32 - prefix(32)).unwrap_or(0);
            IpAddr::V4(a & Ipv4Addr::from_bits(mask))
        }
        (IpAddr::V6(a), _) => {
            let mask = u128::MAX.checked_shl(128 - prefix(128)).unwrap_or(0);
            IpAddr::V6(a & Ipv6Addr::from_bits(mask))
        }
    }
}
