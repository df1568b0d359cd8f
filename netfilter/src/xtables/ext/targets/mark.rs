//! `-j MARK`: `struct xt_mark_tginfo2` (`linux/netfilter/xt_mark.h`), 8 bytes.

use super::super::structs::XtMarkTginfo2;
use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::Target;
use crate::xtables::structs::{read, written};
use crate::xtables::text::{Complaint, Given};

pub(crate) const KIND: Kind<Target> = Kind {
    name: "MARK",
    forms: |_| forms!["MARK" 2],
    encode,
    decode,
    options: &[
        ("--set-xmark", 1),
        ("--set-mark", 1),
        ("--and-mark", 1),
        ("--or-mark", 1),
        ("--xor-mark", 1),
    ],
    parse,
};

fn encode(value: &Target, _: Form, _: &Context<'_>) -> Encoded {
    let Target::SetXmark { value, mask } = *value else {
        return Ok(None);
    };
    Ok(Some(written(&XtMarkTginfo2 { mark: value, mask })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Target> {
    let w: XtMarkTginfo2 = read(b)?;
    Some(Target::SetXmark {
        value: w.mark,
        mask: w.mask,
    })
}

/// The value and the mask of the given option: every other option is a short form of `--set-xmark`.
pub(super) fn xmark(given: &mut Given) -> Result<Option<(u32, u32)>, Complaint> {
    let mut found = None;
    for name in [
        "--set-xmark",
        "--set-mark",
        "--and-mark",
        "--or-mark",
        "--xor-mark",
    ] {
        let Some(o) = given.take(&[name]) else {
            continue;
        };
        let (value, mask) = o.plain()?.masked(0)?;
        if found.is_some() {
            return Err(o.wrong("conflicts with another option of its kind; give only one"));
        }
        found = Some(match name {
            "--set-mark" => (value, value | mask),
            "--and-mark" => (0, !value),
            "--or-mark" => (value, value),
            "--xor-mark" => (value, 0),
            _ => (value, mask),
        });
    }
    Ok(found)
}

fn parse(given: &mut Given) -> Result<Target, Complaint> {
    let found = xmark(given)?;
    let (value, mask) = found.ok_or_else(|| given.lacks("--set-xmark or --set-mark"))?;
    Ok(Target::SetXmark { value, mask })
}
