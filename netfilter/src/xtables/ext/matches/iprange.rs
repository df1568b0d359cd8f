//! `-m iprange`: `struct xt_iprange_mtinfo` (`linux/netfilter/xt_iprange.h`), 68 bytes.

use super::super::structs::XtIprangeMtinfo;
use super::super::{Context, Encoded, Form, Kind, forms};
use crate::address::Address;
use crate::xtables::raw::*;
use crate::xtables::structs::{InetAddr, read, written, zeroed};
use crate::xtables::text::{Complaint, Given, Opt};
use crate::xtables::{Not, XtFamily};
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Inclusive ranges of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_iprange_mtinfo")]
pub struct Iprange {
    /// `--src-range`
    pub source: Option<(Not, RangeInclusive<IpAddr>)>,
    /// `--dst-range`
    pub destination: Option<(Not, RangeInclusive<IpAddr>)>,
}

pub(crate) const KIND: Kind<Iprange> = Kind {
    name: "iprange",
    forms: |_| forms!["iprange" 1],
    encode,
    decode,
    options: &[("--src-range", 1), ("--dst-range", 1)],
    parse,
};

fn encode(v: &Iprange, _: Form, cx: &Context<'_>) -> Encoded {
    let mut wire: XtIprangeMtinfo = zeroed();
    for (range, field, is, inverted) in [
        (&v.source, &mut wire.src, IPRANGE_SRC, IPRANGE_SRC_INV),
        (&v.destination, &mut wire.dst, IPRANGE_DST, IPRANGE_DST_INV),
    ] {
        let Some((not, range)) = range else {
            continue;
        };
        for end in [range.start(), range.end()] {
            if end.is_ipv4() != (cx.family == XtFamily::Ip) {
                return Err(format!(
                    "{end} is no address of {}; give one of its family",
                    cx.family
                ));
            }
        }
        *field = [*range.start(), *range.end()].map(InetAddr::from);
        wire.flags |= is | if not.0 { inverted } else { 0 };
    }
    Ok(Some(written(&wire)))
}

fn decode(_: Form, b: &[u8], cx: &Context<'_>) -> Option<Iprange> {
    let w: XtIprangeMtinfo = read(b)?;
    let range = |[first, last]: [InetAddr; 2], is: u8, inverted: u8| {
        let range = first.ip(cx.family)..=last.ip(cx.family);
        (w.flags & is != 0).then_some((Not(w.flags & inverted != 0), range))
    };
    Some(Iprange {
        source: range(w.src, IPRANGE_SRC, IPRANGE_SRC_INV),
        destination: range(w.dst, IPRANGE_DST, IPRANGE_DST_INV),
    })
}

impl fmt::Display for Iprange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (option, range) in [
            ("--src-range", &self.source),
            ("--dst-range", &self.destination),
        ] {
            let Some((not, range)) = range else { continue };
            write!(
                f,
                "{not} {option} {}-{}",
                Address(*range.start()),
                Address(*range.end())
            )?;
        }
        Ok(())
    }
}

fn range(o: &Opt, family: XtFamily) -> Result<(Not, RangeInclusive<IpAddr>), Complaint> {
    let word = o.word(0);
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let address = |text: &str| {
        text.parse()
            .ok()
            .filter(|a: &IpAddr| a.is_ipv4() == (family == XtFamily::Ip))
            .ok_or_else(|| {
                o.wrong(&format!(
                    "give two addresses of {family} with a - between them"
                ))
            })
    };
    let range = address(first)?..=address(last)?;
    if range.is_empty() {
        return Err(o.wrong("ends before it begins; swap the two addresses"));
    }
    Ok((o.not, range))
}

fn parse(given: &mut Given) -> Result<Iprange, Complaint> {
    let family = given.family;
    let source = given
        .take(&["--src-range"])
        .map(|o| range(&o, family))
        .transpose()?;
    let destination = given
        .take(&["--dst-range"])
        .map(|o| range(&o, family))
        .transpose()?;
    if source.is_none() && destination.is_none() {
        return Err(given.lacks("--src-range or --dst-range"));
    }
    Ok(Iprange {
        source,
        destination,
    })
}
