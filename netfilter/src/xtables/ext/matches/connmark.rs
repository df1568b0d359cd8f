//! `-m connmark`: `struct xt_connmark_mtinfo1` (`linux/netfilter/xt_connmark.h`), 12 bytes, with the
//! layout of `-m mark`.

use super::super::{Context, Encoded, Form, Kind, forms};
use super::mark::{parse, value, wire};
use crate::xtables::Match;

pub(crate) const KIND: Kind<Match> = Kind {
    name: "connmark",
    forms: |_| forms!["connmark" 1],
    encode: |value: &Match, _: Form, _: &Context<'_>| -> Encoded {
        match value {
            Match::Connmark(v) => Ok(Some(wire(v))),
            _ => Ok(None),
        }
    },
    decode: |_, b, _| value(b).map(Match::Connmark),
    options: &[("--mark", 1)],
    parse: |given| parse(given).map(Match::Connmark),
};
