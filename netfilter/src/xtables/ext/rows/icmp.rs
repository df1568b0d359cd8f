//! `-m icmp` (`struct ipt_icmp`) and `-m icmp6` (`struct ip6t_icmp`): type, and first and last code.

use super::super::row::Extension;
use super::prelude::*;
use crate::icmp::{ICMP, ICMPV6, Name};
use crate::xtables::Protocol;

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
    let names = if family == Ip { ICMP } else { ICMPV6 };
    let (kind, code) = type_and_code(o, names)?;
    b.set(0, &[kind, code.unwrap_or(0), code.unwrap_or(255)]);
    Ok(())
}

fn type_and_code(o: &Opt, names: &[Name]) -> Result<(u8, Option<u8>), Complaint> {
    let word = o.word(0);
    // As in iptables, case is ignored and an unambiguous prefix is accepted.
    let mut found = names.iter().filter(|(name, ..)| begins(name, word));
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
