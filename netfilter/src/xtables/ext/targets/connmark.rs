//! `-j CONNMARK`: `struct xt_connmark_tginfo1` and `2` (`linux/netfilter/xt_connmark.h`), 16 bytes each.
//! Only revision 2 (Linux 4.17) can shift the mark.

use super::super::prelude::*;
use super::mark::{Xmark, xmark};

/// `D_SHIFT_LEFT` and `D_SHIFT_RIGHT` of an enum without a name.
const D_SHIFT_LEFT: u8 = 0;
const D_SHIFT_RIGHT: u8 = 1;
/// The kernel refuses a larger shift.
const MOST_BITS: u8 = 31;

/// A change of the connection's mark, or of the packet's mark by the connection's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_connmark_tginfo2")]
pub enum Connmark {
    /// `--set-xmark`
    Set(Xmark),
    /// `--save-mark`: copies the packet's mark to the connection.
    Save {
        /// `--nfmask`: bits of the packet's mark.
        nfmask: u32,
        /// `--ctmask`: bits of the connection's mark.
        ctmask: u32,
    },
    /// `--restore-mark`: copies the connection's mark to the packet. Only in `mangle`.
    Restore {
        /// `--nfmask`: bits of the packet's mark.
        nfmask: u32,
        /// `--ctmask`: bits of the connection's mark.
        ctmask: u32,
    },
    /// Another variant with a shift by 1 to 31 bits of the copied mark, or of the result of [`Connmark::Set`].
    Shifted(Box<Connmark>, Shift),
}

/// The direction of a shift and the number of bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shift {
    /// `--left-shift-mark`
    #[doc(alias = "D_SHIFT_LEFT")]
    Left(u8),
    /// `--right-shift-mark`
    #[doc(alias = "D_SHIFT_RIGHT")]
    Right(u8),
}

#[rustfmt::skip]
pub(crate) const KIND: Kind<Connmark> = Kind {
    name: "CONNMARK",
    forms: |_| forms!["CONNMARK" 2, "CONNMARK" 1],
    encode,
    decode,
    options: &[
        ("--set-xmark", 1), ("--set-mark", 1), ("--and-mark", 1), ("--or-mark", 1), ("--xor-mark", 1),
        ("--save-mark", 0), ("--restore-mark", 0), ("--nfmask", 1), ("--ctmask", 1), ("--mask", 1),
        ("--left-shift-mark", 1), ("--right-shift-mark", 1),
    ],
    parse,
};

fn encode(value: &Connmark, form: Form, _: &Context<'_>) -> Encoded {
    let (value, shift) = match value {
        Connmark::Shifted(of, shift) => (&**of, Some(shift)),
        of => (of, None),
    };
    let (shift_dir, shift_bits) = match shift {
        None => (D_SHIFT_LEFT, 0),
        Some(Shift::Left(bits)) => (D_SHIFT_LEFT, *bits),
        Some(Shift::Right(bits)) => (D_SHIFT_RIGHT, *bits),
    };
    if shift.is_some() && !(1..=MOST_BITS).contains(&shift_bits) {
        return Err(format!(
            "a mark is shifted by 1 to {MOST_BITS} bits, not {shift_bits}"
        ));
    }
    let (ctmark, ctmask, nfmask, mode) = match *value {
        Connmark::Set(Xmark { value, mask }) => (value, mask, u32::MAX, XT_CONNMARK_SET),
        Connmark::Save { nfmask, ctmask } => (0, ctmask, nfmask, XT_CONNMARK_SAVE),
        Connmark::Restore { nfmask, ctmask } => (0, ctmask, nfmask, XT_CONNMARK_RESTORE),
        Connmark::Shifted(..) => return Err("a mark is shifted once; add the two shifts".into()),
    };
    Ok(Some(match form.revision {
        1 if shift.is_some() => return Ok(None),
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
            shift_dir,
            shift_bits,
            mode,
            ..zeroed()
        }),
    }))
}

fn decode(form: Form, b: &[u8], _: &Context<'_>) -> Option<Connmark> {
    let w: XtConnmarkTginfo1 = read(b)?;
    let (ctmark, ctmask, nfmask) = (w.ctmark, w.ctmask, w.nfmask);
    let (mode, shift) = match form.revision {
        1 => (w.mode, (D_SHIFT_LEFT, 0)),
        _ => read(b).map(|w: XtConnmarkTginfo2| (w.mode, (w.shift_dir, w.shift_bits)))?,
    };
    let value = match mode {
        XT_CONNMARK_SET => Connmark::Set(Xmark {
            value: ctmark,
            mask: ctmask,
        }),
        XT_CONNMARK_SAVE => Connmark::Save { nfmask, ctmask },
        XT_CONNMARK_RESTORE => Connmark::Restore { nfmask, ctmask },
        _ => return None,
    };
    let shift = match shift {
        (D_SHIFT_LEFT, 0) => return Some(value),
        (D_SHIFT_LEFT, bits) => Shift::Left(bits),
        (D_SHIFT_RIGHT, bits) => Shift::Right(bits),
        _ => return None,
    };
    Some(Connmark::Shifted(Box::new(value), shift))
}

impl fmt::Display for Connmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (option, nfmask, ctmask) = match self {
            Self::Set(xmark) => return xmark.fmt(f),
            Self::Save { nfmask, ctmask } => ("--save-mark", nfmask, ctmask),
            Self::Restore { nfmask, ctmask } => ("--restore-mark", nfmask, ctmask),
            Self::Shifted(of, Shift::Left(bits)) => {
                return write!(f, "{of} --left-shift-mark {bits}");
            }
            Self::Shifted(of, Shift::Right(bits)) => {
                return write!(f, "{of} --right-shift-mark {bits}");
            }
        };
        write!(f, " {option} --nfmask {nfmask:#x} --ctmask {ctmask:#x}")
    }
}

fn parse(given: &mut Given) -> Result<Connmark, Complaint> {
    let mut bits = |name| -> Result<Option<u8>, Complaint> {
        let Some(o) = given.take(&[name]) else {
            return Ok(None);
        };
        let bits = o.plain()?.number(0)?;
        if bits > MOST_BITS {
            return Err(o.wrong("is more than the mark has; give 0 to 31 bits"));
        }
        Ok(Some(bits))
    };
    let shift = match (bits("--left-shift-mark")?, bits("--right-shift-mark")?) {
        (Some(_), Some(_)) => {
            return Err(given.conflict("--left-shift-mark and --right-shift-mark"));
        }
        (None | Some(0), None) | (None, Some(0)) => return change(given),
        (Some(bits), None) => Shift::Left(bits),
        (None, Some(bits)) => Shift::Right(bits),
    };
    Ok(Connmark::Shifted(Box::new(change(given)?), shift))
}

/// Parses all options but the shift.
fn change(given: &mut Given) -> Result<Connmark, Complaint> {
    if let Some(xmark) = xmark(given)? {
        return Ok(Connmark::Set(xmark));
    }
    let save = given.flag("--save-mark")?;
    let restore = given.flag("--restore-mark")?;
    if given.has(&["--mask"]) && given.has(&["--nfmask", "--ctmask"]) {
        return Err(given.conflict("--mask and --nfmask or --ctmask"));
    }
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
