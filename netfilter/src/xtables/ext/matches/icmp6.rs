//! `-m icmp6`: `struct ip6t_icmp` (`linux/netfilter_ipv6/ip6_tables.h`), 4 bytes. Only IPv6.

use super::super::prelude::*;
use super::icmp::{IcmpType, parse, value, wire};

/// Names that `ip6tables -p icmpv6 -h` lists.
#[rustfmt::skip]
const NAMES: &[(&str, u8, Option<u8>)] = &[
    ("destination-unreachable", 1, None), ("no-route", 1, Some(0)), ("communication-prohibited", 1, Some(1)),
    ("beyond-scope", 1, Some(2)), ("address-unreachable", 1, Some(3)), ("port-unreachable", 1, Some(4)),
    ("failed-policy", 1, Some(5)), ("reject-route", 1, Some(6)), ("packet-too-big", 2, None),
    ("time-exceeded", 3, None), ("ttl-exceeded", 3, None), ("ttl-zero-during-transit", 3, Some(0)),
    ("ttl-zero-during-reassembly", 3, Some(1)), ("parameter-problem", 4, None), ("bad-header", 4, Some(0)),
    ("unknown-header-type", 4, Some(1)), ("unknown-option", 4, Some(2)), ("echo-request", 128, None),
    ("ping", 128, None), ("echo-reply", 129, None), ("pong", 129, None), ("router-solicitation", 133, None),
    ("router-advertisement", 134, None), ("neighbour-solicitation", 135, None),
    ("neighbor-solicitation", 135, None), ("neighbour-advertisement", 136, None),
    ("neighbor-advertisement", 136, None), ("redirect", 137, None),
];

pub(crate) const KIND: Kind<IcmpType> = Kind {
    name: "icmp6",
    forms: |family| match family {
        XtFamily::Ip => &[],
        XtFamily::Ip6 => forms!["icmp6" 0],
    },
    encode: |v, _, _| Ok(Some(wire(v))),
    decode: |_, b, _| value(b),
    options: &[("--icmpv6-type", 1)],
    parse: |given| parse(&given.need(&["--icmpv6-type"])?, NAMES),
};

/// The options of `-m icmp6`.
pub(crate) fn fmt(v: &IcmpType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    v.fmt(f, "--icmpv6-type")
}
