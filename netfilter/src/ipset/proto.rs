//! Names of protocols and of ICMP types, as ipset prints and parses them.
//!
//! Protocol names are those of `/etc/protocols` as distributions ship it. The file is not read, so the text is the same on every machine.

use super::raw::{IPPROTO_ICMP, IPPROTO_ICMPV6};

/// The type, the code and the name.
type TypeCodes = &'static [(u8, u8, &'static str)];

const ICMP: TypeCodes = &[
    (0, 0, "echo-reply"),
    (0, 0, "pong"),
    (3, 0, "network-unreachable"),
    (3, 1, "host-unreachable"),
    (3, 2, "protocol-unreachable"),
    (3, 3, "port-unreachable"),
    (3, 4, "fragmentation-needed"),
    (3, 5, "source-route-failed"),
    (3, 6, "network-unknown"),
    (3, 7, "host-unknown"),
    (3, 9, "network-prohibited"),
    (3, 10, "host-prohibited"),
    (3, 11, "TOS-network-unreachable"),
    (3, 12, "TOS-host-unreachable"),
    (3, 13, "communication-prohibited"),
    (3, 14, "host-precedence-violation"),
    (3, 15, "precedence-cutoff"),
    (4, 0, "source-quench"),
    (5, 0, "network-redirect"),
    (5, 1, "host-redirect"),
    (5, 2, "TOS-network-redirect"),
    (5, 3, "TOS-host-redirect"),
    (8, 0, "echo-request"),
    (8, 0, "ping"),
    (9, 0, "router-advertisement"),
    (10, 0, "router-solicitation"),
    (11, 0, "ttl-zero-during-transit"),
    (11, 1, "ttl-zero-during-reassembly"),
    (12, 0, "ip-header-bad"),
    (12, 1, "required-option-missing"),
    (13, 0, "timestamp-request"),
    (14, 0, "timestamp-reply"),
    (17, 0, "address-mask-request"),
    (18, 0, "address-mask-reply"),
];

const ICMPV6: TypeCodes = &[
    (1, 0, "no-route"),
    (1, 1, "communication-prohibited"),
    (1, 3, "address-unreachable"),
    (1, 4, "port-unreachable"),
    (2, 0, "packet-too-big"),
    (3, 0, "ttl-zero-during-transit"),
    (3, 1, "ttl-zero-during-reassembly"),
    (4, 0, "bad-header"),
    (4, 1, "unknown-header-type"),
    (4, 2, "unknown-option"),
    (128, 0, "echo-request"),
    (128, 0, "ping"),
    (129, 0, "echo-reply"),
    (129, 0, "pong"),
    (133, 0, "router-solicitation"),
    (134, 0, "router-advertisement"),
    (135, 0, "neighbour-solicitation"),
    (136, 0, "neighbour-advertisement"),
    (137, 0, "redirect"),
];

fn type_codes(protocol: u8) -> TypeCodes {
    match protocol {
        IPPROTO_ICMP => ICMP,
        IPPROTO_ICMPV6 => ICMPV6,
        _ => &[],
    }
}

/// The name of an ICMP type and code, which ipset stores as the upper and lower byte of a port.
pub(super) fn type_name(protocol: u8, port: u16) -> Option<&'static str> {
    let [t, c] = port.to_be_bytes();
    type_codes(protocol)
        .iter()
        .find(|(a, b, _)| (*a, *b) == (t, c))
        .map(|(_, _, name)| *name)
}

/// The type and code of a name.
pub(super) fn type_number(protocol: u8, text: &str) -> Option<u16> {
    let found = type_codes(protocol)
        .iter()
        .find(|(_, _, name)| *name == text)?;
    Some(u16::from_be_bytes([found.0, found.1]))
}
