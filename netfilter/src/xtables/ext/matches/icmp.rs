//! `-m icmp`: `struct ipt_icmp` (`linux/netfilter_ipv4/ip_tables.h`), 4 bytes. Only IPv4.

use super::super::prelude::*;

/// Type and code of an ICMP or ICMPv6 message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IcmpType {
    /// `!`
    pub not: Not,
    /// The type; 255 matches any in IPv4.
    pub kind: u8,
    /// The code; `None` matches any.
    pub code: Option<u8>,
}

/// Names that `iptables -p icmp -h` lists.
#[rustfmt::skip]
const NAMES: &[(&str, u8, Option<u8>)] = &[
    ("any", 255, None), ("echo-reply", 0, None), ("pong", 0, None), ("destination-unreachable", 3, None),
    ("network-unreachable", 3, Some(0)), ("host-unreachable", 3, Some(1)), ("protocol-unreachable", 3, Some(2)),
    ("port-unreachable", 3, Some(3)), ("fragmentation-needed", 3, Some(4)), ("source-route-failed", 3, Some(5)),
    ("network-unknown", 3, Some(6)), ("host-unknown", 3, Some(7)), ("network-prohibited", 3, Some(9)),
    ("host-prohibited", 3, Some(10)), ("TOS-network-unreachable", 3, Some(11)),
    ("TOS-host-unreachable", 3, Some(12)), ("communication-prohibited", 3, Some(13)),
    ("host-precedence-violation", 3, Some(14)), ("precedence-cutoff", 3, Some(15)), ("source-quench", 4, None),
    ("redirect", 5, None), ("network-redirect", 5, Some(0)), ("host-redirect", 5, Some(1)),
    ("TOS-network-redirect", 5, Some(2)), ("TOS-host-redirect", 5, Some(3)), ("echo-request", 8, None),
    ("ping", 8, None), ("router-advertisement", 9, None), ("router-solicitation", 10, None),
    ("time-exceeded", 11, None), ("ttl-exceeded", 11, None), ("ttl-zero-during-transit", 11, Some(0)),
    ("ttl-zero-during-reassembly", 11, Some(1)), ("parameter-problem", 12, None),
    ("ip-header-bad", 12, Some(0)), ("required-option-missing", 12, Some(1)), ("timestamp-request", 13, None),
    ("timestamp-reply", 14, None), ("address-mask-request", 17, None), ("address-mask-reply", 18, None),
];

pub(crate) const KIND: Kind<IcmpType> = Kind {
    name: "icmp",
    forms: |family| match family {
        XtFamily::Ip => forms!["icmp" 0],
        XtFamily::Ip6 => &[],
    },
    encode: |v, _, _| Ok(Some(wire(v))),
    decode: |_, b, _| value(b),
    options: &[("--icmp-type", 1)],
    parse: |given| parse(&given.need(&["--icmp-type"])?, NAMES),
};

pub(super) fn wire(v: &IcmpType) -> Vec<u8> {
    written(&IptIcmp {
        type_: v.kind,
        code: v.code.map_or([0, 255], |c| [c, c]),
        invflags: if v.not.0 { IPT_ICMP_INV } else { 0 },
    })
}

pub(super) fn value(b: &[u8]) -> Option<IcmpType> {
    let w: IptIcmp = read(b)?;
    let code = match w.code {
        [0, 255] => None,
        [first, last] if first == last => Some(first),
        // No option can represent a range of codes.
        _ => return None,
    };
    Some(IcmpType {
        not: Not(w.invflags & IPT_ICMP_INV != 0),
        kind: w.type_,
        code,
    })
}

pub(super) fn parse(o: &Opt, names: &[(&str, u8, Option<u8>)]) -> Result<IcmpType, Complaint> {
    let word = o.word(0);
    // As in iptables, case is ignored and an unambiguous prefix is accepted.
    let begins = |name: &str| {
        let start = name.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    let mut found = names.iter().filter(|(name, ..)| begins(name));
    match (found.next(), found.next()) {
        (Some((_, kind, code)), None) => {
            return Ok(IcmpType {
                not: o.not,
                kind: *kind,
                code: *code,
            });
        }
        (Some((first, ..)), Some((second, ..))) => {
            return Err(o.wrong(&format!("may be {first} or {second}; write the whole name")));
        }
        (None, _) => {}
    }
    let why = "is no type; give a name, TYPE or TYPE/CODE (0 to 255)";
    let number = |text: &str| o.number_in(text, why);
    let (kind, code) = match word.split_once('/') {
        Some((kind, code)) => (number(kind)?, Some(number(code)?)),
        None => (number(word)?, None),
    };
    Ok(IcmpType {
        not: o.not,
        kind,
        code,
    })
}

impl IcmpType {
    pub(super) fn fmt(&self, f: &mut fmt::Formatter<'_>, option: &str) -> fmt::Result {
        write!(f, "{} {option} {}", self.not, self.kind)?;
        self.code.iter().try_for_each(|code| write!(f, "/{code}"))
    }
}

/// The options of `-m icmp`.
pub(crate) fn fmt(v: &IcmpType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if v.kind == 255 {
        return write!(f, "{} --icmp-type any", v.not);
    }
    v.fmt(f, "--icmp-type")
}
