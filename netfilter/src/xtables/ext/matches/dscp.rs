//! `-m dscp`: `struct xt_dscp_info` (`linux/netfilter/xt_dscp.h`), 2 bytes.

use super::super::structs::XtDscpInfo;
use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::Not;
use crate::xtables::structs::{read, written};
use crate::xtables::text::{Complaint, Given};
use std::fmt;

/// The differentiated services code point: the upper six bits of the type of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_dscp_info")]
pub struct Dscp {
    /// `!`
    pub not: Not,
    /// 0 to 63.
    pub value: u8,
}

pub(crate) const KIND: Kind<Dscp> = Kind {
    name: "dscp",
    forms: |_| forms!["dscp" 0],
    encode,
    decode,
    options: &[("--dscp", 1), ("--dscp-class", 1)],
    parse,
};

fn encode(v: &Dscp, _: Form, _: &Context<'_>) -> Encoded {
    if v.value > 63 {
        return Err("a code point is 0 to 63; lower it".into());
    }
    Ok(Some(written(&XtDscpInfo {
        dscp: v.value,
        invert: v.not.0.into(),
    })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Dscp> {
    let w: XtDscpInfo = read(b)?;
    Some(Dscp {
        not: Not(w.invert != 0),
        value: w.dscp,
    })
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} --dscp {:#04x}", self.not, self.value)
    }
}

/// `CSn`, `AFnm`, `BE` and `EF` (RFC 2474, 2597, 3246).
pub(in super::super) fn class(name: &str) -> Option<u8> {
    let name = name.to_ascii_uppercase();
    let digit = |at: usize, max: u8| {
        let n = name.as_bytes().get(at)?.checked_sub(b'0')?;
        (n <= max).then_some(n)
    };
    match (name.get(..2)?, name.len()) {
        ("BE", 2) => Some(0),
        ("EF", 2) => Some(46),
        ("CS", 3) => Some(digit(2, 7)? << 3),
        ("AF", 4) => {
            let (class, drop) = (digit(2, 4)?, digit(3, 3)?);
            (class > 0 && drop > 0).then_some(class << 3 | drop << 1)
        }
        _ => None,
    }
}

pub(in super::super) const REMEDY: &str =
    "is no code point; give 0 to 63, or the name of a class: CSn, AFnm, BE or EF";

fn parse(given: &mut Given) -> Result<Dscp, Complaint> {
    if let Some(o) = given.take(&["--dscp-class"]) {
        let value = class(o.word(0)).ok_or_else(|| o.wrong(REMEDY))?;
        return Ok(Dscp { not: o.not, value });
    }
    let o = given.need(&["--dscp"])?;
    let value: u8 = o.number(0)?;
    if value > 63 {
        return Err(o.wrong(REMEDY));
    }
    Ok(Dscp { not: o.not, value })
}
