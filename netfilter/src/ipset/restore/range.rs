//! Addresses, networks and ports, and the expansion of their ranges.

use super::options::part_number;
use super::token::Token;
use super::{Wrong, wrong};
use crate::ipset::model::{Header, KeyPart, ProtoPort, SetFamily};
use crate::ipset::proto;
use crate::ipset::raw::{
    IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_SCTP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_UDPLITE,
};
use crate::protocols;
use ipnet::{IpNet, Ipv4Subnets};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

/// Maximum number of entries of one line.
pub(super) const MANY: usize = 65536;

fn too_many<T>(token: &Token<'_>) -> Result<T, Wrong> {
    wrong(
        token,
        format!(
            "\"{}\" are more than {MANY} entries: split it, or use networks",
            token.text
        ),
    )
}

/// Parses one address of the set's family.
pub(in crate::ipset) fn address(
    family: SetFamily,
    token: &Token<'_>,
    text: &str,
) -> Result<IpAddr, Wrong> {
    // Brackets separate the colons of an address from the colon after a protocol.
    let text = text
        .strip_prefix('[')
        .and_then(|t| t.strip_suffix(']'))
        .unwrap_or(text);
    // The only short form of inet_aton(3) that is unambiguous.
    let text = match (family, text) {
        (SetFamily::Inet, "0") => "0.0.0.0",
        _ => text,
    };
    let Ok(ip) = text.parse::<IpAddr>() else {
        return wrong(
            token,
            format!("\"{text}\" is no address; names are not looked up"),
        );
    };
    match (family, ip) {
        (SetFamily::Inet, IpAddr::V4(_)) | (SetFamily::Inet6, IpAddr::V6(_)) => Ok(ip),
        _ => wrong(
            token,
            format!("{ip} is not of family {family}, which the set has"),
        ),
    }
}

fn prefixed(family: SetFamily, token: &Token<'_>, text: &str) -> Result<IpNet, Wrong> {
    let (ip, length) = match text.split_once('/') {
        Some((ip, length)) => (ip, Some(length)),
        None => (text, None),
    };
    let ip = address(family, token, ip)?;
    let full = if ip.is_ipv4() { 32 } else { 128 };
    let length = match length {
        Some(length) => part_number(token, length, 0, u64::from(full))?,
        None => full,
    };
    match IpNet::new(ip, length) {
        Ok(net) => Ok(net),
        Err(e) => wrong(token, e.to_string()),
    }
}

/// The first and the last address of `A`, `A/LENGTH` or `A-B`.
pub(in crate::ipset) fn bounds(
    family: SetFamily,
    token: &Token<'_>,
    text: &str,
) -> Result<(IpAddr, IpAddr), Wrong> {
    if let Some((from, to)) = text.split_once('-') {
        let (from, to) = (address(family, token, from)?, address(family, token, to)?);
        return Ok((from.min(to), from.max(to)));
    }
    let net = prefixed(family, token, text)?;
    Ok((net.network(), last(&net)))
}

fn last(net: &IpNet) -> IpAddr {
    match net {
        IpNet::V4(n) => IpAddr::V4(n.broadcast()),
        IpNet::V6(n) => IpAddr::V6(n.broadcast()),
    }
}

/// The range of a `bitmap:ip`, which the kernel widens to whole networks (`bitmap_ip_create()`).
fn widened((a, b): (Ipv4Addr, Ipv4Addr), netmask: Option<u8>) -> (Ipv4Addr, Ipv4Addr) {
    let host = u32::MAX.checked_shr(netmask.unwrap_or(32).into());
    let host = host.unwrap_or(0);
    (
        Ipv4Addr::from_bits(a.to_bits() & !host),
        Ipv4Addr::from_bits(b.to_bits() | host),
    )
}

/// Every address of the range, masked with the set's netmask or bitmask, without duplicates.
pub(super) fn addresses(h: &Header, token: &Token<'_>, text: &str) -> Result<Vec<IpAddr>, Wrong> {
    let (from, to) = bounds(h.family, token, text)?;
    if let Some((a, b)) = h.addresses
        && let (a, b) = widened((a.min(b), a.max(b)), h.netmask)
        && (from < IpAddr::V4(a) || to > IpAddr::V4(b))
    {
        // Entries are added one by one, so those before the first refused one would remain.
        let why = format!("{text} is outside of the set's range {a}-{b}");
        return wrong(token, why);
    }
    if from == to && h.netmask.is_none() && h.bitmask.is_none() {
        return Ok(vec![from]);
    }
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let count = u64::from(to.to_bits()) - u64::from(from.to_bits());
            if let Some(IpAddr::V4(mask)) = h.bitmask {
                if count >= MANY as u64 {
                    return too_many(token);
                }
                let kept = (from.to_bits()..=to.to_bits()).map(|n| n & mask.to_bits());
                let kept: BTreeSet<u32> = kept.collect();
                return Ok(kept
                    .into_iter()
                    .map(|n| Ipv4Addr::from_bits(n).into())
                    .collect());
            }
            let host_bits = 32 - u32::from(h.netmask.unwrap_or(32)).min(32);
            let masked = |n: u64| n >> host_bits << host_bits;
            let (from, to) = (u64::from(from.to_bits()), u64::from(to.to_bits()));
            // The kernel steps by whole networks from the first address on, which it does not mask in a bitmap.
            let first = match h.kind.is_bitmap() {
                true => from,
                false => masked(from),
            };
            if (to - first) >> host_bits >= MANY as u64 {
                return too_many(token);
            }
            let steps = (first..=to).step_by(1_usize.checked_shl(host_bits).unwrap_or(usize::MAX));
            let address = |n| u32::try_from(masked(n)).map(Ipv4Addr::from_bits);
            Ok(steps.flat_map(address).map(IpAddr::V4).collect())
        }
        (from, to) if from == to => Ok(vec![from]),
        _ => wrong(
            token,
            "ipset knows ranges in IPv4 only: write single addresses, or use hash:net",
        ),
    }
}

/// The networks into which the kernel splits a range.
pub(super) fn networks(
    family: SetFamily,
    token: &Token<'_>,
    text: &str,
) -> Result<Vec<IpNet>, Wrong> {
    if !text.contains('-') {
        return Ok(vec![prefixed(family, token, text)?.trunc()]);
    }
    match bounds(family, token, text)? {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let nets: Vec<IpNet> = Ipv4Subnets::new(from, to, 0).map(IpNet::V4).collect();
            if nets.iter().any(|n| n.prefix_len() == 0) {
                return wrong(
                    token,
                    "the range is every address: write 0.0.0.0/1 and 128.0.0.0/1",
                );
            }
            Ok(nets)
        }
        (from, to) if from == to => Ok(vec![IpNet::from(from)]),
        _ => wrong(token, "ipset knows ranges in IPv4 only: write networks"),
    }
}

/// `PORT[-PORT]` of a `bitmap:port`. As in ipset, a preceding protocol is ignored.
pub(in crate::ipset) fn port_range(token: &Token<'_>) -> Result<(u16, u16), Wrong> {
    let text = &*token.text;
    let text = text.strip_prefix("tcp:").or(text.strip_prefix("udp:"));
    let text = text.unwrap_or(&token.text);
    numbers(token, text)
}

/// `PORT[-PORT]`, in either order.
fn numbers(token: &Token<'_>, text: &str) -> Result<(u16, u16), Wrong> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let from: u16 = part_number(token, from, 0, 65535)?;
    let to: u16 = part_number(token, to, 0, 65535)?;
    Ok((from.min(to), from.max(to)))
}

/// `[PROTOCOL:]PORT[-PORT]`; TCP by default.
pub(super) fn ports(
    family: SetFamily,
    token: &Token<'_>,
    text: &str,
) -> Result<Vec<ProtoPort>, Wrong> {
    let (protocol, text) = match text.split_once(':') {
        Some((name, port)) => match protocols::number(name) {
            Some(0) | None => {
                return wrong(
                    token,
                    format!("protocol \"{name}\" is not known: write its number, 1 to 255"),
                );
            }
            Some(n) => (n, port),
        },
        None => (IPPROTO_TCP, text),
    };
    match (protocol, family) {
        (IPPROTO_ICMP, SetFamily::Inet6) => {
            return wrong(token, "icmp is of family inet: write icmpv6");
        }
        (IPPROTO_ICMPV6, SetFamily::Inet) => {
            return wrong(token, "icmpv6 is of family inet6: write icmp");
        }
        _ => {}
    }
    let one = |port| Ok(vec![ProtoPort { protocol, port }]);
    match protocol {
        IPPROTO_TCP | IPPROTO_UDP | IPPROTO_SCTP | IPPROTO_UDPLITE => {
            let (from, to) = numbers(token, text)?;
            let one = |port| ProtoPort { protocol, port };
            Ok((from..=to).map(one).collect())
        }
        IPPROTO_ICMP | IPPROTO_ICMPV6 => {
            match (proto::type_number(protocol, text), text.split_once('/')) {
                (Some(port), _) => one(port),
                (None, Some((kind, code))) => {
                    let kind = part_number(token, kind, 0, 255)?;
                    let code = part_number(token, code, 0, 255)?;
                    one(u16::from_be_bytes([kind, code]))
                }
                (None, None) => wrong(
                    token,
                    format!("\"{text}\" is no ICMP type: write its name, or type/code in numbers"),
                ),
            }
        }
        _ if text == "0" => one(0),
        _ => wrong(token, "this protocol has no ports: write 0"),
    }
}

/// Every combination of one value for each part; an error if there are more than [`MANY`].
pub(super) fn product(
    token: &Token<'_>,
    parts: Vec<Vec<KeyPart>>,
) -> Result<Vec<Vec<KeyPart>>, Wrong> {
    let count = parts.iter().map(Vec::len);
    match count.fold(1, usize::saturating_mul) {
        1 => return Ok(vec![parts.into_iter().flatten().collect()]),
        n if n > MANY => return too_many(token),
        _ => {}
    }
    let mut all: Vec<Vec<KeyPart>> = vec![Vec::new()];
    for some in parts {
        let with = |key: &Vec<KeyPart>| -> Vec<_> {
            let one = |part: &KeyPart| [key.as_slice(), std::slice::from_ref(part)].concat();
            some.iter().map(one).collect()
        };
        all = all.iter().flat_map(with).collect();
    }
    Ok(all)
}
