//! `-m addrtype` (`struct xt_addrtype_info_v1` and `xt_addrtype_info`): the types of the packet's addresses according to the routing
//! tables.

use super::super::row::Extension;
use super::prelude::*;

/// Bits of `XT_ADDRTYPE_*`, in the order of `enum rtn_type`.
#[rustfmt::skip]
const TYPES: &[(&str, u64)] = &[
    ("UNSPEC", 1), ("UNICAST", 1 << 1), ("LOCAL", LOCAL), ("BROADCAST", 1 << 3), ("ANYCAST", 1 << 4),
    ("MULTICAST", 1 << 5), ("BLACKHOLE", 1 << 6), ("UNREACHABLE", 1 << 7), ("PROHIBIT", 1 << 8), ("THROW", 1 << 9),
    ("NAT", 1 << 10), ("XRESOLVE", 1 << 11),
];

/// `XT_ADDRTYPE_LOCAL`
const LOCAL: u64 = 1 << 2;

const ONE_OF: &[&str] = &["--src-type", "--dst-type"];
const EXCLUDE: &[&str] = &["--limit-iface-in", "--limit-iface-out"];

const fn types(names: &'static [&'static str], at: usize) -> Field {
    field(names, Names(2, TYPES), at).unless(&[0, 0])
}

rows! {
    MATCH "addrtype" { revision: 1, size: 8, one_of: ONE_OF, exclude: EXCLUDE } [
        types(&["--src-type"], 0).not(4, 4, 1),
        types(&["--dst-type"], 2).not(4, 4, 2),
        flag(&["--limit-iface-in"], 4, 4, 4),
        flag(&["--limit-iface-out"], 4, 4, 8),
    ]
    MATCH "addrtype" { family: Some(Ip), size: 12, one_of: ONE_OF } [
        types(&["--src-type"], 0).not(4, 4, 1),
        types(&["--dst-type"], 2).not(8, 4, 1),
    ]
}

const NEWEST: &Row = match ROWS {
    [row, ..] => row,
    [] => &Row::MATCH,
};

impl Extension {
    /// `-m addrtype ! --dst-type LOCAL`: no packets to the host itself.
    #[must_use]
    pub fn not_to_local(family: XtFamily) -> Self {
        Self::made(NEWEST, family, |b| {
            b.put(2, 2, LOCAL);
            b.put(4, 4, 2);
        })
    }
}
