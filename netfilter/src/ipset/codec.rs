//! Conversion between values and attributes.

use super::model::{
    Counters, Dimension, Entry, Header, Key, KeyPart, ProtoPort, SetFamily, SetType, SkbInfo,
};
use super::options::options;
use super::raw;
use super::wire::{CommandAttrs, CreateAttrs, EntryAttrs, IpAttrs};
use ipnet::IpNet;
use std::net::IpAddr;
use weir_netlink::attr::bytes_of;
use weir_netlink::{Error, Result};

pub(super) fn to_ip(ip: IpAddr) -> IpAttrs {
    let (v4, v6) = match ip {
        IpAddr::V4(v4) => (Some(v4), None),
        IpAddr::V6(v6) => (None, Some(v6)),
    };
    IpAttrs {
        v4,
        v6,
        ..IpAttrs::default()
    }
}

pub(super) fn from_ip(attrs: Option<&IpAttrs>) -> Option<IpAddr> {
    let attrs = attrs?;
    attrs.v4.map(IpAddr::V4).or(attrs.v6.map(IpAddr::V6))
}

/// The attributes of an entry.
pub(super) fn to_entry(entry: &Entry) -> EntryAttrs {
    let mut a = match &entry.key {
        Key::Opaque(attrs) => return EntryAttrs::clone(attrs),
        Key::Parts(parts) => from_parts(parts),
        Key::Port(port) => EntryAttrs {
            port: Some(*port),
            ..EntryAttrs::default()
        },
        Key::Set(name) => EntryAttrs {
            name: Some(name.clone()),
            ..EntryAttrs::default()
        },
    };
    a.timeout = entry.timeout;
    let flags = a.flags.unwrap_or(0) | (u32::from(entry.nomatch) * raw::IPSET_FLAG_NOMATCH);
    a.flags = (flags != 0).then_some(flags);
    a.bytes = entry.counters.map(|c| c.bytes);
    a.packets = entry.counters.map(|c| c.packets);
    a.comment = entry.comment.clone();
    a.skb_mark = entry
        .skbinfo
        .mark
        .map(|(mark, mask)| u64::from(mark) << 32 | u64::from(mask));
    a.skb_prio = entry.skbinfo.prio;
    a.skb_queue = entry.skbinfo.queue;
    a
}

/// The attributes of a key. A second address or network has attributes of its own.
fn from_parts(parts: &[KeyPart]) -> EntryAttrs {
    let mut a = EntryAttrs::default();
    for part in parts {
        match part {
            KeyPart::Ip(ip) if a.ip.is_none() => a.ip = Some(to_ip(*ip)),
            KeyPart::Ip(ip) => a.ip2 = Some(to_ip(*ip)),
            KeyPart::Net(net) if a.ip.is_none() => {
                (a.ip, a.cidr) = (Some(to_ip(net.addr())), Some(net.prefix_len()));
            }
            KeyPart::Net(net) => {
                (a.ip2, a.cidr2) = (Some(to_ip(net.addr())), Some(net.prefix_len()));
            }
            KeyPart::Port(p) => (a.protocol, a.port) = (Some(p.protocol), Some(p.port)),
            KeyPart::Mark(mark) => a.mark = Some(*mark),
            KeyPart::Mac(mac) => a.ether = mac.map(|mac| mac.to_vec()),
            KeyPart::Interface {
                name,
                is_port,
                is_prefix,
            } => {
                a.iface = Some(name.clone());
                let port = u32::from(*is_port) * raw::IPSET_FLAG_PHYSDEV;
                let prefix = u32::from(*is_prefix) * raw::IPSET_FLAG_IFACE_WILDCARD;
                a.flags = Some(port | prefix);
            }
        }
    }
    a
}

/// The parts of a key; `None` if an attribute is missing.
fn to_parts(dimensions: &[Dimension], a: &EntryAttrs) -> Option<Vec<KeyPart>> {
    let mut is_second = false;
    let mut parts = Vec::with_capacity(dimensions.len());
    for dimension in dimensions {
        let (ip, cidr) = if is_second {
            (&a.ip2, a.cidr2)
        } else {
            (&a.ip, a.cidr)
        };
        is_second |= matches!(dimension, Dimension::Ip | Dimension::Net);
        let ip = from_ip(ip.as_ref());
        parts.push(match dimension {
            Dimension::Ip => KeyPart::Ip(ip?),
            Dimension::Net => KeyPart::Net(net(ip?, cidr)?),
            Dimension::Port => KeyPart::Port(ProtoPort {
                protocol: a.protocol?,
                port: a.port?,
            }),
            Dimension::Mark => KeyPart::Mark(a.mark?),
            Dimension::MacOrNone if a.ether.is_none() => KeyPart::Mac(None),
            Dimension::Mac | Dimension::MacOrNone => {
                KeyPart::Mac(Some(a.ether.as_deref()?.try_into().ok()?))
            }
            Dimension::Interface => KeyPart::Interface {
                name: a.iface.clone()?,
                is_port: a.flags.unwrap_or(0) & raw::IPSET_FLAG_PHYSDEV != 0,
                is_prefix: a.flags.unwrap_or(0) & raw::IPSET_FLAG_IFACE_WILDCARD != 0,
            },
            Dimension::Number | Dimension::Set => return None,
        });
    }
    Some(parts)
}

/// Decodes a network; without a prefix length it is a single address.
fn net(ip: IpAddr, length: Option<u8>) -> Option<IpNet> {
    let full = if ip.is_ipv4() { 32 } else { 128 };
    IpNet::new(ip, length.unwrap_or(full)).ok()
}

fn key(kind: &SetType, a: &EntryAttrs) -> Option<Key> {
    Some(match kind.dimensions() {
        [] => return None,
        [Dimension::Number] => Key::Port(a.port?),
        [Dimension::Set] => Key::Set(a.name.clone()?),
        parts => Key::Parts(to_parts(parts, a)?),
    })
}

/// Decodes an entry of a set of this type. An entry with unknown attributes is opaque as a whole, because a comparison must not
/// ignore them.
pub(super) fn from_entry(kind: &SetType, a: EntryAttrs) -> Entry {
    let interface = raw::IPSET_FLAG_PHYSDEV | raw::IPSET_FLAG_IFACE_WILDCARD;
    let known = match kind.has(Dimension::Interface) {
        true => raw::IPSET_FLAG_NOMATCH | interface,
        false => raw::IPSET_FLAG_NOMATCH,
    };
    let is_known = a.unknown.is_empty() && a.flags.unwrap_or(0) & !known == 0;
    let Some(key) = key(kind, &a).filter(|_| is_known) else {
        return Entry::new(Key::Opaque(Box::new(a)));
    };
    Entry {
        key,
        timeout: a.timeout,
        nomatch: a.flags.unwrap_or(0) & raw::IPSET_FLAG_NOMATCH != 0,
        counters: a
            .packets
            .zip(a.bytes)
            .map(|(packets, bytes)| Counters { packets, bytes }),
        comment: a.comment,
        skbinfo: SkbInfo {
            mark: a.skb_mark.map(halves),
            prio: a.skb_prio,
            queue: a.skb_queue,
        },
    }
}

/// Splits `IPSET_ATTR_SKBMARK` into mark and mask.
fn halves(both: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = both.to_be_bytes();
    (
        u32::from_be_bytes([a, b, c, d]),
        u32::from_be_bytes([e, f, g, h]),
    )
}

/// The attributes of a set's options.
pub(super) fn to_options(h: &Header) -> CreateAttrs {
    let mut attrs = CreateAttrs::default();
    options(&h.kind).for_each(|o| (o.encode)(h, &mut attrs));
    attrs
}

/// The header of a listed set.
pub(super) fn from_header(a: &CommandAttrs) -> Header {
    let kind = SetType::from(a.type_name.as_deref().unwrap_or_default());
    let mut h = Header::new(a.name.clone().unwrap_or_default(), kind, SetFamily::Inet);
    h.family = SetFamily::from(a.family.unwrap_or(0));
    let Some(attrs) = &a.data else { return h };
    options(&h.kind.clone()).for_each(|o| (o.decode)(&mut h, attrs));
    h.unknown.clone_from(&attrs.unknown);
    h
}

/// Checks that the kernel can store the name of a set, and `ipset save` can represent it.
///
/// # Errors
/// The name is empty, longer than 31 bytes, or contains a NUL, a quote or a line break.
pub(super) fn check_name(operation: &str, name: &str) -> Result<()> {
    let reason = if name.is_empty() {
        "a set needs a name"
    } else if bytes_of(name).len() >= raw::IPSET_MAXNAMELEN {
        "a set's name has at most 31 bytes: shorten it"
    } else if name.contains(['\0', '\n', '"']) {
        "a set's name must not contain a quote, line break or NUL: remove it"
    } else {
        return Ok(());
    };
    Err(Error::refused(
        operation,
        format!("set \"{}\"", name.escape_debug()),
        reason,
    ))
}

/// The longest timeout of an entry, in seconds: the kernel silently reduces a longer one to this
/// (`IPSET_MAX_TIMEOUT`, `linux/netfilter/ipset/ip_set.h`).
pub(super) const MAX_TIMEOUT: u32 = 2_147_483;
const TIMEOUT: &str =
    "the timeout of an entry is at most 2147483 seconds: lower it, or give 0 for no timeout";

/// Checks the name, and that the kernel would not reduce the default timeout.
///
/// # Errors
/// As [`check_name`]; the default timeout exceeds [`MAX_TIMEOUT`].
pub(super) fn check_header(operation: &str, h: &Header) -> Result<()> {
    check_name(operation, &h.name)?;
    match h.timeout {
        Some(t) if t > MAX_TIMEOUT => Err(Error::refused(
            operation,
            format!("set {}", h.name),
            TIMEOUT,
        )),
        _ => Ok(()),
    }
}

/// The part of a key with a protocol and a port.
fn port_of(key: &Key) -> Option<ProtoPort> {
    match key {
        Key::Parts(parts) => parts.iter().find_map(|part| match part {
            KeyPart::Port(p) => Some(*p),
            _ => None,
        }),
        _ => None,
    }
}

/// Refuses values that the kernel would truncate or that cannot be saved as text.
///
/// # Errors
/// The comment is too long or contains a quote, line break or NUL; the type is unknown; the timeout exceeds [`MAX_TIMEOUT`]; the
/// name of a member is invalid; a protocol without ports has one.
pub(super) fn check_entry(operation: &str, set: &str, entry: &Entry) -> Result<()> {
    let comment = entry.comment.as_deref().unwrap_or_default();
    let reason = if bytes_of(comment).len() > raw::IPSET_MAX_COMMENT_SIZE {
        "a comment has at most 255 bytes: shorten it"
    } else if comment.contains(['\0', '\n', '"']) {
        "a comment must not contain a quote, line break or NUL, which `ipset save` cannot represent: remove it"
    } else if matches!(entry.key, Key::Opaque(_)) {
        "sets of this type can only be listed: use one of the known types"
    } else if entry.timeout.is_some_and(|t| t > MAX_TIMEOUT) {
        TIMEOUT
    } else if let Key::Set(member) = &entry.key {
        return check_name(operation, member);
    } else if port_of(&entry.key).is_some_and(|p| p.kept() != p) {
        "only TCP, UDP, UDP-Lite, SCTP and the two ICMP have ports, or type and code: give 0"
    } else {
        return Ok(());
    };
    Err(Error::refused(
        operation,
        format!("{} to set {set}", entry.key),
        reason,
    ))
}
