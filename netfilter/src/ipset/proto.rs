//! Names of ICMP types, as ipset prints and parses them.

use super::raw::{IPPROTO_ICMP, IPPROTO_ICMPV6};
use crate::icmp::{ICMP, ICMPV6, Name};

/// Names that iptables has and ipset lacks; it also lacks the names of types that have names for their codes.
const OTHERS: [&str; 6] = [
    "any",
    "beyond-scope",
    "failed-policy",
    "reject-route",
    "neighbor-solicitation",
    "neighbor-advertisement",
];

/// Each type and code with its name.
fn type_codes(protocol: u8) -> impl Iterator<Item = (u8, u8, &'static str)> {
    let names: &[Name] = match protocol {
        IPPROTO_ICMP => ICMP,
        IPPROTO_ICMPV6 => ICMPV6,
        _ => &[],
    };
    let known = names.iter().filter(|(name, ..)| !OTHERS.contains(name));
    known.filter_map(|(name, kind, code)| {
        let has_codes = || names.iter().any(|(_, k, c)| k == kind && c.is_some());
        let code = code.or_else(|| (!has_codes()).then_some(0));
        Some((*kind, code?, *name))
    })
}

/// The name of an ICMP type and code, which ipset stores as the upper and lower byte of a port.
pub(super) fn type_name(protocol: u8, port: u16) -> Option<&'static str> {
    let [t, c] = port.to_be_bytes();
    let mut found = type_codes(protocol);
    found.find_map(|(a, b, name)| ((a, b) == (t, c)).then_some(name))
}

/// The type and code of a name.
pub(super) fn type_number(protocol: u8, text: &str) -> Option<u16> {
    let (kind, code, _) = type_codes(protocol).find(|(_, _, name)| *name == text)?;
    Some(u16::from_be_bytes([kind, code]))
}
