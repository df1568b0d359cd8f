//! `-m statistic`: `struct xt_statistic_info` (`linux/netfilter/xt_statistic.h`), 24 bytes, the last 8 of which are
//! private to the kernel.

use super::super::structs::XtStatisticInfo;
use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::Not;
use crate::xtables::raw::*;
use crate::xtables::structs::{read, written, zeroed};
use crate::xtables::text::{Complaint, Given};
use std::fmt;

/// A part of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Statistic {
    /// `--mode random --probability`, in 1/2^31: 0 is never, `0x8000_0000` always.
    Random(Not, u32),
    /// `--mode nth --every EVERY --packet PACKET`: one of `every`, starting with `packet`.
    Nth {
        /// `!`
        not: Not,
        /// At least 1.
        every: u32,
        /// Less than `every`.
        packet: u32,
    },
}

/// Probability 1, in 1/2^31.
const ONE: u32 = 0x8000_0000;

pub(crate) const KIND: Kind<Statistic> = Kind {
    name: "statistic",
    forms: |_| forms!["statistic" 0],
    encode,
    decode,
    options: &[
        ("--mode", 1),
        ("--probability", 1),
        ("--every", 1),
        ("--packet", 1),
    ],
    parse,
};

fn encode(v: &Statistic, _: Form, _: &Context<'_>) -> Encoded {
    let wire = |mode: u16, not: Not, every: u32, packet: u32, count: u32| {
        Ok(Some(written(&XtStatisticInfo {
            mode,
            flags: u16::from(not.0) * XT_STATISTIC_INVERT,
            every,
            packet,
            count,
            ..zeroed()
        })))
    };
    match v {
        // The last field has no meaning here; iptables repeats the probability in it.
        Statistic::Random(not, p) if *p <= ONE => wire(XT_STATISTIC_MODE_RANDOM, *not, *p, 0, *p),
        Statistic::Random(..) => Err("a probability is between 0 and 1; lower it".into()),
        Statistic::Nth { not, every, packet } if *every > *packet => {
            let last = every - 1;
            // The initial value of the kernel's counter.
            let count = last - packet;
            wire(XT_STATISTIC_MODE_NTH, *not, last, *packet, count)
        }
        Statistic::Nth { .. } => Err("--packet must be less than --every".into()),
    }
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Statistic> {
    let w: XtStatisticInfo = read(b)?;
    let not = Not(w.flags & XT_STATISTIC_INVERT != 0);
    Some(match w.mode {
        XT_STATISTIC_MODE_RANDOM => Statistic::Random(not, w.every),
        XT_STATISTIC_MODE_NTH => Statistic::Nth {
            not,
            every: w.every.checked_add(1)?,
            packet: w.packet,
        },
        _ => return None,
    })
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(not, p) => {
                let p = f64::from(*p) / f64::from(ONE);
                write!(f, " --mode random{not} --probability {p:.11}")
            }
            Self::Nth { not, every, packet } => {
                write!(f, " --mode nth{not} --every {every} --packet {packet}")
            }
        }
    }
}

fn parse(given: &mut Given) -> Result<Statistic, Complaint> {
    let mode = given.need(&["--mode"])?;
    match mode.plain()?.word(0) {
        "random" => {
            let o = given.need(&["--probability"])?;
            let p: f64 = o
                .word(0)
                .parse()
                .map_err(|_| o.wrong("is no number between 0 and 1"))?;
            if !(0.0..=1.0).contains(&p) {
                return Err(o.wrong("is not between 0 and 1"));
            }
            // In range: the product is at most 2^31.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let p = (p * f64::from(ONE)).round() as u32;
            Ok(Statistic::Random(o.not, p))
        }
        "nth" => {
            let o = given.need(&["--every"])?;
            let every: u32 = o.number(0)?;
            let packet = match given.take(&["--packet"]) {
                Some(o) => o.plain()?.number(0)?,
                None => 0,
            };
            if packet >= every {
                return Err(o.wrong("must be more than --packet, and at least 1"));
            }
            Ok(Statistic::Nth {
                not: o.not,
                every,
                packet,
            })
        }
        _ => Err(mode.wrong("is no mode; give random or nth")),
    }
}
