//! `-j CONNMARK`: `struct xt_connmark_tginfo1` and `2` (`linux/netfilter/xt_connmark.h`), 13 and 15 bytes.
//! Revision 2 can also shift the mark; weir keeps rules that do so as raw bytes.

use super::super::structs::{XtConnmarkTginfo1, XtConnmarkTginfo2};
use super::super::{Context, Encoded, Form, Kind, forms};
use super::mark::{Xmark, xmark};
use crate::xtables::raw::*;
use crate::xtables::structs::{read, written, zeroed};
use crate::xtables::text::{Complaint, Given};
use std::fmt;

/// What becomes of the connection's mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_connmark_tginfo2")]
pub enum Connmark {
    /// `--set-xmark`
    Set(Xmark),
    /// `--save-mark`: packet's mark to connection's mark.
    Save {
        /// `--nfmask`: bits of the packet's mark.
        nfmask: u32,
        /// `--ctmask`: bits of the connection's mark.
        ctmask: u32,
    },
    /// `--restore-mark`: connection's mark to packet's mark. Only in `mangle`.
    Restore {
        /// `--nfmask`: bits of the packet's mark.
        nfmask: u32,
        /// `--ctmask`: bits of the connection's mark.
        ctmask: u32,
    },
}

pub(crate) const KIND: Kind<Connmark> = Kind {
    name: "CONNMARK",
    forms: |_| forms!["CONNMARK" 2, "CONNMARK" 1],
    encode,
    decode,
    options: &[
        ("--set-xmark", 1),
        ("--set-mark", 1),
        ("--and-mark", 1),
        ("--or-mark", 1),
        ("--xor-mark", 1),
        ("--save-mark", 0),
        ("--restore-mark", 0),
        ("--nfmask", 1),
        ("--ctmask", 1),
        ("--mask", 1),
    ],
    parse,
};

fn encode(value: &Connmark, form: Form, _: &Context<'_>) -> Encoded {
    let (ctmark, ctmask, nfmask, mode) = match *value {
        Connmark::Set(Xmark { value, mask }) => (value, mask, u32::MAX, XT_CONNMARK_SET),
        Connmark::Save { nfmask, ctmask } => (0, ctmask, nfmask, XT_CONNMARK_SAVE),
        Connmark::Restore { nfmask, ctmask } => (0, ctmask, nfmask, XT_CONNMARK_RESTORE),
    };
    Ok(Some(match form.revision {
        1 => written(&XtConnmarkTginfo1 {
            ctmark,
            ctmask,
            nfmask,
            mode,
            ..zeroed()
        }),
        _ => written(&XtConnmarkTginfo2 {
            ctmark,
            ctmask,
            nfmask,
            mode,
            ..zeroed()
        }),
    }))
}

fn decode(form: Form, b: &[u8], _: &Context<'_>) -> Option<Connmark> {
    let w: XtConnmarkTginfo1 = read(b)?;
    let (ctmark, ctmask, nfmask) = (w.ctmark, w.ctmask, w.nfmask);
    let mode = match form.revision {
        1 => w.mode,
        _ => read(b).map(|w: XtConnmarkTginfo2| w.mode)?,
    };
    match mode {
        XT_CONNMARK_SET => Some(Connmark::Set(Xmark {
            value: ctmark,
            mask: ctmask,
        })),
        XT_CONNMARK_SAVE => Some(Connmark::Save { nfmask, ctmask }),
        XT_CONNMARK_RESTORE => Some(Connmark::Restore { nfmask, ctmask }),
        _ => None,
    }
}

impl fmt::Display for Connmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (option, nfmask, ctmask) = match self {
            Self::Set(xmark) => return xmark.fmt(f),
            Self::Save { nfmask, ctmask } => ("--save-mark", nfmask, ctmask),
            Self::Restore { nfmask, ctmask } => ("--restore-mark", nfmask, ctmask),
        };
        write!(f, " {option} --nfmask {nfmask:#x} --ctmask {ctmask:#x}")
    }
}

fn parse(given: &mut Given) -> Result<Connmark, Complaint> {
    if let Some(xmark) = xmark(given)? {
        return Ok(Connmark::Set(xmark));
    }
    let save = given.flag("--save-mark")?;
    let restore = given.flag("--restore-mark")?;
    let mut mask = |names: &[&str]| given.take(names).map(|o| o.plain()?.number(0)).transpose();
    let both = mask(&["--mask"])?.unwrap_or(u32::MAX);
    let nfmask = mask(&["--nfmask"])?.unwrap_or(both);
    let ctmask = mask(&["--ctmask"])?.unwrap_or(both);
    match (save, restore) {
        (true, false) => Ok(Connmark::Save { nfmask, ctmask }),
        (false, true) => Ok(Connmark::Restore { nfmask, ctmask }),
        _ => Err(given.lacks("one of --set-mark, --save-mark and --restore-mark")),
    }
}
