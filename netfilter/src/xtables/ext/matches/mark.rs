//! `-m mark`: `struct xt_mark_mtinfo1` (`linux/netfilter/xt_mark.h`), 12 bytes.

use super::super::{Context, Encoded, Form, Kind, Masked, forms};
use crate::xtables::bytes::{Build, Bytes};
use crate::xtables::text::{Complaint, Given};
use crate::xtables::{Match, Not};
use std::fmt;

/// `--mark VALUE/MASK`: the packet's or the connection's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_mark_mtinfo1")]
pub struct Mark {
    /// `!`
    pub not: Not,
    /// Compared with the masked mark.
    pub value: u32,
    /// Bits that are compared.
    pub mask: u32,
}

pub(crate) const KIND: Kind<Match> = Kind {
    name: "mark",
    forms: |_| forms!["mark" 1],
    encode: |value: &Match, _: Form, _: &Context<'_>| -> Encoded {
        match value {
            Match::Mark(v) => Ok(Some(wire(v))),
            _ => Ok(None),
        }
    },
    decode: |_, b, _| value(b).map(Match::Mark),
    options: &[("--mark", 1)],
    parse: |given| parse(given).map(Match::Mark),
};

pub(super) fn wire(v: &Mark) -> Vec<u8> {
    Build::new()
        .u32(v.value)
        .u32(v.mask)
        .u8(u8::from(v.not.0))
        .done()
}

pub(super) fn value(b: Bytes<'_>) -> Option<Mark> {
    Some(Mark {
        not: Not(b.u8(8)? != 0),
        value: b.u32(0)?,
        mask: b.u32(4)?,
    })
}

pub(super) fn parse(given: &mut Given) -> Result<Mark, Complaint> {
    let o = given.need(&["--mark"])?;
    let (value, mask) = o.masked(0)?;
    Ok(Mark {
        not: o.not,
        value,
        mask,
    })
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} --mark {}", self.not, Masked(self.value, self.mask))
    }
}
