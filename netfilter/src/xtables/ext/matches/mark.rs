//! `-m mark`: `struct xt_mark_mtinfo1` (`linux/netfilter/xt_mark.h`), 12 bytes.

use super::super::prelude::*;

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

pub(crate) const KIND: Kind<Mark> = Kind {
    name: "mark",
    forms: |_| forms!["mark" 1],
    encode,
    decode,
    options: &[("--mark", 1)],
    parse,
};

fn encode(v: &Mark, _: Form, _: &Context<'_>) -> Encoded {
    Ok(Some(written(&XtMarkMtinfo1 {
        mark: v.value,
        mask: v.mask,
        invert: v.not.0.into(),
        ..zeroed()
    })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Mark> {
    let w: XtMarkMtinfo1 = read(b)?;
    Some(Mark {
        not: Not(w.invert != 0),
        value: w.mark,
        mask: w.mask,
    })
}

fn parse(given: &mut Given) -> Result<Mark, Complaint> {
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
