//! `-m icmp` (`struct ipt_icmp`) and `-m icmp6` (`struct ip6t_icmp`): type, and first and last code.

use super::super::row::Extension;
use super::prelude::*;
use crate::xtables::Protocol;

/// A name, its type, and its code; any code without one.
type Name = (&'static str, u8, Option<u8>);

/// Names that `iptables -p icmp -h` lists. Type 255 is any type.
#[rustfmt::skip]
const TYPES: &[Name] = &[
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

/// Names that `ip6tables -p icmpv6 -h` lists.
#[rustfmt::skip]
const TYPES6: &[Name] = &[
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

/// `TYPE` or `TYPE/CODE`; no option can represent a range of codes.
fn show(b: &Blob, _: usize, family: XtFamily) -> Option<Vec<String>> {
    let kind = b.uint(0, 1);
    Some(vec![match (b.uint(1, 1), b.uint(2, 1)) {
        (first, last) if first != last && (first, last) != (0, 255) => return None,
        _ if kind == 255 && family == Ip => "any".to_owned(),
        (0, 255) => kind.to_string(),
        (code, _) => format!("{kind}/{code}"),
    }])
}

fn read(o: &Opt, b: &mut Blob, _: usize, family: XtFamily) -> Result<(), Complaint> {
    let names = if family == Ip { TYPES } else { TYPES6 };
    let (kind, code) = type_and_code(o, names)?;
    b.set(0, &[kind, code.unwrap_or(0), code.unwrap_or(255)]);
    Ok(())
}

fn type_and_code(o: &Opt, names: &[Name]) -> Result<(u8, Option<u8>), Complaint> {
    let word = o.word(0);
    // As in iptables, case is ignored and an unambiguous prefix is accepted.
    let begins = |name: &str| {
        let start = name.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    let mut found = names.iter().filter(|(name, ..)| begins(name));
    match (found.next(), found.next()) {
        (Some((_, kind, code)), None) => return Ok((*kind, *code)),
        (Some((first, ..)), Some((second, ..))) => {
            return Err(o.wrong(&format!("may be {first} or {second}; write the whole name")));
        }
        (None, _) => {}
    }
    let why = "is no type; give a name, TYPE or TYPE/CODE (0 to 255)";
    let number = |text: &str| o.number_in(text, why);
    Ok(match word.split_once('/') {
        Some((kind, code)) => (number(kind)?, Some(number(code)?)),
        None => (number(word)?, None),
    })
}

const TYPE: Code = Code {
    show,
    read,
    ..Code::WORD
};

rows! {
    // The code of `any` has no meaning.
    MATCH "icmp" { family: Some(Ip), size: 4, rounded: 1..3, protocol: Some(Protocol::ICMP) } [
        field(&["--icmp-type"], Value::Code(&TYPE), 0).not(3, 1, 1).need(),
    ]
    MATCH "icmp6" { family: Some(Ip6), size: 4, protocol: Some(Protocol::ICMPV6) } [
        field(&["--icmpv6-type"], Value::Code(&TYPE), 0).not(3, 1, 1).need(),
    ]
}

impl Extension {
    /// `-m icmp --icmp-type KIND`, or `-m icmp6 --icmpv6-type KIND`: any code. The rule must have the protocol.
    #[must_use]
    pub fn icmp_type(family: XtFamily, kind: u8) -> Self {
        let row = match (family, ROWS) {
            (Ip, [row, _]) | (_, [_, row]) => row,
            _ => &Row::MATCH,
        };
        Self::made(row, family, |b| b.set(0, &[kind, 0, 255]))
    }
}
