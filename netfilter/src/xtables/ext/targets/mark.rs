//! `-j MARK`: `struct xt_mark_tginfo2` (`linux/netfilter/xt_mark.h`), 8 bytes.

use super::super::prelude::*;

/// `--set-xmark VALUE/MASK`: the mark becomes `(mark & ~MASK) ^ VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_mark_tginfo2")]
pub struct Xmark {
    /// Bits that are inverted after those of `mask` are cleared.
    pub value: u32,
    /// Bits that are cleared.
    pub mask: u32,
}

#[rustfmt::skip]
const XMARK: [(&str, usize); 5] = [
    ("--set-xmark", 1), ("--set-mark", 1), ("--and-mark", 1), ("--or-mark", 1), ("--xor-mark", 1),
];

pub(crate) const KIND: Kind<Xmark> = Kind {
    name: "MARK",
    forms: |_| forms!["MARK" 2],
    encode,
    decode,
    options: &XMARK,
    parse,
};

fn encode(v: &Xmark, _: Form, _: &Context<'_>) -> Encoded {
    let Xmark { value: mark, mask } = *v;
    Ok(Some(written(&XtMarkTginfo2 { mark, mask })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Xmark> {
    let XtMarkTginfo2 { mark: value, mask } = read(b)?;
    Some(Xmark { value, mask })
}

impl fmt::Display for Xmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " --set-xmark {:#x}/{:#x}", self.value, self.mask)
    }
}

/// The value of the given option: every other option is a short form of `--set-xmark`.
pub(super) fn xmark(given: &mut Given) -> Result<Option<Xmark>, Complaint> {
    let mut found = None;
    for (name, _) in XMARK {
        let Some(o) = given.take(&[name]) else {
            continue;
        };
        let (value, mask) = match name {
            "--set-xmark" | "--set-mark" => o.plain()?.masked(0)?,
            // These options take no mask.
            _ => (o.plain()?.number(0)?, u32::MAX),
        };
        if found.is_some() {
            return Err(o.wrong("conflicts with another option of its kind; give only one"));
        }
        let (value, mask) = match name {
            "--set-mark" => (value, value | mask),
            "--and-mark" => (0, !value),
            "--or-mark" => (value, value),
            "--xor-mark" => (value, 0),
            _ => (value, mask),
        };
        found = Some(Xmark { value, mask });
    }
    Ok(found)
}

fn parse(given: &mut Given) -> Result<Xmark, Complaint> {
    xmark(given)?.ok_or_else(|| given.lacks("--set-xmark or --set-mark"))
}
