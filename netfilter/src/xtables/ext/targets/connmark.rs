//! `-j CONNMARK`: `struct xt_connmark_tginfo1` and `2` (`linux/netfilter/xt_connmark.h`), 13 and 15 bytes.
//! Revision 2 can also shift the mark; weir keeps rules that do so as raw bytes.

use super::super::structs::{XtConnmarkTginfo1, XtConnmarkTginfo2};
use super::super::{Context, Encoded, Form, Kind, forms};
use super::mark::xmark;
use crate::xtables::Target;
use crate::xtables::raw::*;
use crate::xtables::structs::{read, written, zeroed};
use crate::xtables::text::{Complaint, Given};

pub(crate) const KIND: Kind<Target> = Kind {
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

fn encode(value: &Target, form: Form, _: &Context<'_>) -> Encoded {
    let (ctmark, ctmask, nfmask, mode) = match *value {
        Target::SetConnXmark { value, mask } => (value, mask, u32::MAX, XT_CONNMARK_SET),
        Target::SaveMark { nfmask, ctmask } => (0, ctmask, nfmask, XT_CONNMARK_SAVE),
        Target::RestoreMark { nfmask, ctmask } => (0, ctmask, nfmask, XT_CONNMARK_RESTORE),
        _ => return Ok(None),
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

fn decode(form: Form, b: &[u8], _: &Context<'_>) -> Option<Target> {
    let w: XtConnmarkTginfo1 = read(b)?;
    let (ctmark, ctmask, nfmask) = (w.ctmark, w.ctmask, w.nfmask);
    let mode = match form.revision {
        1 => w.mode,
        _ => read(b).map(|w: XtConnmarkTginfo2| w.mode)?,
    };
    match mode {
        XT_CONNMARK_SET => Some(Target::SetConnXmark {
            value: ctmark,
            mask: ctmask,
        }),
        XT_CONNMARK_SAVE => Some(Target::SaveMark { nfmask, ctmask }),
        XT_CONNMARK_RESTORE => Some(Target::RestoreMark { nfmask, ctmask }),
        _ => None,
    }
}

fn parse(given: &mut Given) -> Result<Target, Complaint> {
    if let Some((value, mask)) = xmark(given)? {
        return Ok(Target::SetConnXmark { value, mask });
    }
    let save = given.flag("--save-mark")?;
    let restore = given.flag("--restore-mark")?;
    let mut mask = |names: &[&str]| given.take(names).map(|o| o.plain()?.number(0)).transpose();
    let both = mask(&["--mask"])?.unwrap_or(u32::MAX);
    let nfmask = mask(&["--nfmask"])?.unwrap_or(both);
    let ctmask = mask(&["--ctmask"])?.unwrap_or(both);
    match (save, restore) {
        (true, false) => Ok(Target::SaveMark { nfmask, ctmask }),
        (false, true) => Ok(Target::RestoreMark { nfmask, ctmask }),
        _ => Err(given.lacks("one of --set-mark, --save-mark and --restore-mark")),
    }
}
