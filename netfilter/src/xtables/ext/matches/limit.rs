//! `-m limit`: `struct xt_rateinfo` (`linux/netfilter/xt_limit.h`), 40 bytes, of which all but the first 8 are
//! private to the kernel.

use super::super::structs::XtRateinfo;
use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::raw::XT_LIMIT_SCALE;
use crate::xtables::structs::{read, written, zeroed};
use crate::xtables::text::{Complaint, Given};
use std::fmt;

/// A limited rate of packets: a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_rateinfo")]
pub struct Limit {
    /// `--limit`: time between two packets in 1/10000 second, never 0.
    pub period: u32,
    /// `--limit-burst`: packets that may exceed the rate.
    pub burst: u32,
}

/// The default of `iptables` (`XT_LIMIT_BURST`).
const BURST: u32 = 5;

const UNITS: &[(&str, &str, u32)] = &[
    ("day", "day", 24 * 60 * 60 * XT_LIMIT_SCALE),
    ("hour", "hour", 60 * 60 * XT_LIMIT_SCALE),
    ("min", "minute", 60 * XT_LIMIT_SCALE),
    ("sec", "second", XT_LIMIT_SCALE),
];

pub(crate) const KIND: Kind<Limit> = Kind {
    name: "limit",
    forms: |_| forms!["limit" 0],
    encode,
    decode,
    options: &[("--limit", 1), ("--limit-burst", 1)],
    parse,
};

fn encode(v: &Limit, _: Form, _: &Context<'_>) -> Encoded {
    if v.period == 0 {
        return Err("the time between two packets is 0; leave the limit out".into());
    }
    Ok(Some(written(&XtRateinfo {
        avg: v.period,
        burst: v.burst,
        ..zeroed()
    })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Limit> {
    let w: XtRateinfo = read(b)?;
    Some(Limit {
        period: w.avg,
        burst: w.burst,
    })
}

impl fmt::Display for Limit {
    /// In the largest unit without much loss, as `iptables-save` chooses it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per = |unit: u32| unit.checked_div(self.period).unwrap_or(0);
        let worse = |unit: u32| {
            self.period > unit || per(unit) < unit.checked_rem(self.period).unwrap_or(0)
        };
        let further = UNITS
            .iter()
            .skip(1)
            .take_while(|(.., unit)| !worse(*unit))
            .count();
        if let Some((name, _, unit)) = UNITS.get(further) {
            write!(f, " --limit {}/{name}", per(*unit))?;
        }
        if self.burst == BURST {
            Ok(())
        } else {
            write!(f, " --limit-burst {}", self.burst)
        }
    }
}

fn parse(given: &mut Given) -> Result<Limit, Complaint> {
    let mut v = Limit {
        period: 60 * 60 * XT_LIMIT_SCALE / 3,
        burst: BURST,
    };
    if let Some(o) = given.take(&["--limit"]) {
        let (count, unit) = o
            .plain()?
            .word(0)
            .split_once('/')
            .unwrap_or((o.word(0), "second"));
        let remedy = "is no rate; give N/sec, N/min, N/hour or N/day with N up to 10000 a second";
        let unit = UNITS
            .iter()
            .find(|(_, long, _)| !unit.is_empty() && long.starts_with(unit));
        let count: u32 = count.parse().map_err(|_| o.wrong(remedy))?;
        v.period = unit
            .and_then(|(.., unit)| unit.checked_div(count))
            .filter(|period| *period > 0)
            .ok_or_else(|| o.wrong(remedy))?;
    }
    if let Some(o) = given.take(&["--limit-burst"]) {
        v.burst = o.plain()?.number(0)?;
    }
    Ok(v)
}
