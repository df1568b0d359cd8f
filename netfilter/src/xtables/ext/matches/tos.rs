//! `-m tos`: `struct xt_tos_match_info` (`linux/netfilter/xt_dscp.h`), 3 bytes.

use super::super::structs::XtTosMatchInfo;
use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::Not;
use crate::xtables::structs::{read, written};
use crate::xtables::text::{Complaint, Given, Opt};
use std::fmt;

/// The whole byte that holds DSCP and ECN: IPv4's type of service, IPv6's traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_tos_match_info")]
pub struct Tos {
    /// `!`
    pub not: Not,
    /// Compared with the masked byte.
    pub value: u8,
    /// Bits that are compared.
    pub mask: u8,
}

/// `IPTOS_NORMALSVC` and similar; a name implies the mask 0x3f.
const NAMES: &[(&str, u8)] = &[
    ("Minimize-Delay", 0x10),
    ("Maximize-Throughput", 0x08),
    ("Maximize-Reliability", 0x04),
    ("Minimize-Cost", 0x02),
    ("Normal-Service", 0x00),
];

pub(crate) const KIND: Kind<Tos> = Kind {
    name: "tos",
    forms: |_| forms!["tos" 1],
    encode,
    decode,
    options: &[("--tos", 1)],
    parse,
};

fn encode(v: &Tos, _: Form, _: &Context<'_>) -> Encoded {
    Ok(Some(written(&XtTosMatchInfo {
        tos_mask: v.mask,
        tos_value: v.value,
        invert: v.not.0.into(),
    })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Tos> {
    let w: XtTosMatchInfo = read(b)?;
    Some(Tos {
        not: Not(w.invert != 0),
        value: w.tos_value,
        mask: w.tos_mask,
    })
}

impl fmt::Display for Tos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} --tos {:#04x}/{:#04x}",
            self.not, self.value, self.mask
        )
    }
}

/// `VALUE`, `VALUE/MASK` or a name.
pub(in super::super) fn value_and_mask(o: &Opt) -> Result<(u8, u8), Complaint> {
    let mut names = NAMES.iter();
    if let Some((_, value)) = names.find(|(n, _)| n.eq_ignore_ascii_case(o.word(0))) {
        return Ok((*value, 0x3f));
    }
    let (value, mask) = o.masked(0)?;
    let mask = if mask == u32::MAX { 0xff } else { mask };
    match (u8::try_from(value), u8::try_from(mask)) {
        (Ok(value), Ok(mask)) => Ok((value, mask)),
        _ => Err(o.wrong("is more than a byte; give VALUE/MASK up to 0xff")),
    }
}

fn parse(given: &mut Given) -> Result<Tos, Complaint> {
    let o = given.need(&["--tos"])?;
    let (value, mask) = value_and_mask(&o)?;
    Ok(Tos {
        not: o.not,
        value,
        mask,
    })
}
