//! One value by its type.

use super::concat;
use super::numbers::{self, bits, name};
use crate::nft::model::{Data, DataType, Element, ElementKey, Verdict};
use crate::nft::set::is_host_order_type;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// A value; `host_order` is the byte order of a number in it.
pub(crate) fn value(data: &Data, data_type: DataType, host_order: bool) -> String {
    if data_type.is_concatenation() {
        return concat::text(data, data, data_type);
    }
    let n = if host_order {
        data.to_ne()
    } else {
        data.to_be()
    };
    match data_type {
        DataType::IPV4_ADDR | DataType::IPV6_ADDR => address(&data.0),
        DataType::IFNAME | DataType::STRING => ifname(&data.0),
        DataType::ETHER_ADDR => data
            .0
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect::<Vec<_>>()
            .join(":"),
        _ => n.map_or_else(|| hex(&data.0), |n| number(n, data_type)),
    }
}

/// An end of a range: as [`value`], but `nft` uses no symbolic names there.
pub(super) fn bound(data: &Data, data_type: DataType, host_order: bool) -> String {
    let n = if host_order {
        data.to_ne()
    } else {
        data.to_be()
    };
    match (data_type, n) {
        (
            DataType::INET_PROTO
            | DataType::ICMP_TYPE
            | DataType::ICMPV6_TYPE
            | DataType::ICMP_CODE
            | DataType::ICMPV6_CODE
            | DataType::IGMP_TYPE
            | DataType::MH_TYPE
            | DataType::ARP_OP
            | DataType::DEVGROUP
            | DataType::REALM
            | DataType::NF_PROTO
            | DataType::PKT_TYPE
            | DataType::ARPHRD
            | DataType::FIB_ADDR
            | DataType::CT_DIR
            | DataType::BOOLEAN,
            Some(n),
        ) => n.to_string(),
        (DataType::TCP_FLAG | DataType::CT_STATE | DataType::CT_STATUS, Some(n)) => {
            format!("0x{n:x}")
        }
        (DataType::ETHER_TYPE, Some(n)) => format!("0x{n:04x}"),
        _ => value(data, data_type, host_order),
    }
}

fn number(n: u64, data_type: DataType) -> String {
    let named = |table| name(table, n).map_or_else(|| n.to_string(), str::to_owned);
    let in_hex = |table| name(table, n).map_or_else(|| format!("0x{n:02x}"), str::to_owned);
    match data_type {
        DataType::MARK | DataType::CGROUPV2 => format!("0x{n:08x}"),
        DataType::NF_PROTO => match n {
            2 => "ipv4".to_owned(),
            10 => "ipv6".to_owned(),
            n => n.to_string(),
        },
        DataType::INET_PROTO => named(numbers::PROTOCOLS),
        DataType::ICMP_TYPE => named(numbers::ICMP_TYPES),
        DataType::ICMP_CODE => named(numbers::ICMP_CODES),
        DataType::ICMPV6_CODE => named(numbers::ICMPV6_CODES),
        DataType::IGMP_TYPE => named(numbers::IGMP_TYPES),
        DataType::MH_TYPE => named(numbers::MH_TYPES),
        DataType::ARP_OP => named(numbers::ARP_OPS),
        DataType::DCCP_PKTTYPE => in_hex(numbers::DCCP_TYPES),
        DataType::DSCP => in_hex(numbers::DSCP),
        DataType::ECN => in_hex(numbers::ECN),
        DataType::CT_EVENT => bits(numbers::CT_EVENTS, n),
        DataType::BITMASK => format!("0x{n:x}"),
        DataType::CLASSID => tc_handle(n),
        DataType::TIME => duration(Duration::from_millis(n)),
        DataType::DEVGROUP if n == 0 => "\"default\"".to_owned(),
        DataType::REALM if n == 0 => "\"cosmos\"".to_owned(),
        DataType::ICMPV6_TYPE => named(numbers::ICMPV6_TYPES),
        DataType::FIB_ADDR => named(numbers::FIB_TYPES),
        DataType::PKT_TYPE => named(numbers::PKT_TYPES),
        DataType::ARPHRD => named(numbers::ARPHRD),
        DataType::CT_STATE => bits(numbers::CT_STATE, n),
        DataType::CT_STATUS => bits(numbers::CT_STATUS, n),
        DataType::TCP_FLAG => bits(numbers::TCP_FLAGS, n),
        DataType::CT_DIR => named(&[(0, "original"), (1, "reply")]),
        DataType::BOOLEAN => named(&[(0, "missing"), (1, "exists")]),
        DataType::ETHER_TYPE => {
            name(numbers::ETHER_TYPES, n).map_or_else(|| format!("0x{n:04x}"), str::to_owned)
        }
        // The loopback interface has index 1 in every network namespace. Other indexes are meaningful only in the
        // namespace that they were read from.
        DataType::IFINDEX if n == 1 => "\"lo\"".to_owned(),
        _ => n.to_string(),
    }
}

/// `meta priority` is a class of traffic control, `MAJOR:MINOR`.
fn tc_handle(n: u64) -> String {
    match n {
        0 => "none".to_owned(),
        0xffff_ffff => "root".to_owned(),
        n => format!("{:x}:{:x}", n >> 16, n & 0xffff),
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::from("0x"), |s, b| s + &format!("{b:02x}"))
}

fn ifname(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    format!(
        "\"{}\"",
        String::from_utf8_lossy(bytes.get(..end).unwrap_or_default())
    )
}

/// As `inet_ntop(3)` prints it: an IPv6 address of which only the last 32 bits are set ends in dotted decimals,
/// unless only the last 16 bits are set, as in `::1`.
pub(crate) fn address(bytes: &[u8]) -> String {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Ipv4Addr::from(v4).to_string();
    }
    let Ok(v6) = <[u8; 16]>::try_from(bytes) else {
        return hex(bytes);
    };
    let addr = Ipv6Addr::from(v6);
    match addr.segments() {
        [0, 0, 0, 0, 0, 0, hi, _] if hi != 0 => {
            let [.., a, b, c, d] = v6;
            format!("::{}", Ipv4Addr::new(a, b, c, d))
        }
        _ => addr.to_string(),
    }
}

/// The prefix length, if the range is a network.
pub(super) fn prefix_len(first: &Data, last: &Data, host_order: bool) -> Option<usize> {
    if host_order && cfg!(target_endian = "little") {
        let turned = |d: &Data| Data(d.0.iter().rev().copied().collect());
        return prefix_len(&turned(first), &turned(last), false);
    }
    let ones: u32 = first
        .0
        .iter()
        .zip(&last.0)
        .map(|(a, b)| (a ^ b).count_ones())
        .sum();
    let bits = first.0.len() * 8;
    let len = bits.checked_sub(usize::try_from(ones).ok()?)?;
    let mask = crate::nft::lower::prefix_mask(first.0.len(), u8::try_from(len).ok()?);
    let is_network = first
        .0
        .iter()
        .zip(&last.0)
        .zip(&mask)
        .all(|((a, b), m)| a & !m == 0 && b & !m == !m && a & m == b & m);
    is_network.then_some(len)
}

/// The key of an element.
fn key(k: &ElementKey, t: DataType, host_order: bool) -> String {
    match k {
        ElementKey::Value(d) if d.0.is_empty() => "*".to_owned(),
        ElementKey::Value(d) => value(d, t, host_order),
        ElementKey::Range(ends) => range(&ends.0, &ends.1, t, host_order),
    }
}

fn range(first: &Data, last: &Data, t: DataType, host_order: bool) -> String {
    if t.is_concatenation() {
        return concat::text(first, last, t);
    }
    match (t, prefix_len(first, last, host_order)) {
        // The types for which nft prints prefixes.
        (DataType::IPV4_ADDR | DataType::IPV6_ADDR | DataType::MARK, Some(len)) => {
            format!("{}/{len}", value(first, t, host_order))
        }
        (DataType::IFNAME, _) => {
            let name = value(first, t, false);
            format!("{}*\"", name.trim_end_matches('"'))
        }
        _ => format!(
            "{}-{}",
            bound(first, t, host_order),
            bound(last, t, host_order)
        ),
    }
}

/// An element with its timeouts, comment and value.
pub(super) fn element(
    e: &Element,
    t: DataType,
    host_order: bool,
    data_type: Option<DataType>,
) -> String {
    let mut text = key(&e.key, t, host_order);
    let extra = e.extra();
    match extra.timeout {
        Some(Duration::ZERO) => text += " timeout never",
        Some(timeout) => text += &format!(" timeout {}", duration(timeout)),
        None => {}
    }
    if let Some(expires) = extra.expires {
        text += &format!(" expires {}", duration(expires));
    }
    if let Some(comment) = &extra.comment {
        text += &format!(" comment \"{comment}\"");
    }
    if let Some(v) = &extra.verdict {
        text += &format!(" : {v}");
    }
    if let (Some(d), Some(t)) = (&extra.value, data_type) {
        text += &format!(" : {}", value(d, t, is_host_order_type(t)));
    }
    text
}

/// `1d2h3m4s5ms`
pub(super) fn duration(t: Duration) -> String {
    let ms = t.as_millis();
    let parts = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1000, "s"),
        (1, "ms"),
    ];
    let mut left = ms;
    let mut text = String::new();
    for (unit, name) in parts {
        if left >= unit {
            text += &format!("{}{name}", left / unit);
            left %= unit;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Continue => f.write_str("continue"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Other(n) => write!(f, "verdict {n}"),
        }
    }
}
