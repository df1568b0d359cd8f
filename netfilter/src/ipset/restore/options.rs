//! Options of `create`, and numbers.

use super::command::need;
use super::token::Token;
use super::{Wrong, wrong};
use crate::ipset::codec::MAX_TIMEOUT;
use crate::ipset::model::{Header, SetFamily, SetType};
use crate::ipset::options::{CreateOption, options};
use crate::text;
use std::collections::BTreeSet;

/// The largest timeout that ipset accepts, in seconds.
pub(super) const TIMEOUT_MAX: u64 = MAX_TIMEOUT as u64;

/// Parses a number from `min` to `max`: decimal, or hexadecimal with `0x`.
pub(in crate::ipset) fn number<T: TryFrom<u64>>(
    token: &Token<'_>,
    min: u64,
    max: u64,
) -> Result<T, Wrong> {
    part_number(token, &token.text, min, max)
}

/// As [`number`], for a part of a word.
pub(in crate::ipset) fn part_number<T: TryFrom<u64>>(
    token: &Token<'_>,
    text: &str,
    min: u64,
    max: u64,
) -> Result<T, Wrong> {
    match text::number(text)
        .filter(|v| (min..=max).contains(v))
        .and_then(|v| T::try_from(v).ok())
    {
        Some(v) => Ok(v),
        None => wrong(
            token,
            format!(
                "\"{text}\" is no number from {min} to {max}; names are not looked up, and no number begins with 0"
            ),
        ),
    }
}

/// Refuses, as ipset does, an option that was given before, also by another of its names.
pub(super) fn once<'a>(
    option: &Token<'_>,
    name: &'a str,
    names: &mut BTreeSet<&'a str>,
) -> Result<(), Wrong> {
    match names.insert(name) {
        true => Ok(()),
        false => wrong(option, format!("\"{name}\" is given twice: remove one")),
    }
}

use SetType::{HashIp, HashIpMark, HashIpPort, HashIpPortIp, HashIpPortNet, HashNet};

/// Options of older releases with a value, which `ipset` 7.17 still accepts for these types, and ignores.
#[rustfmt::skip]
static IGNORED: [(&str, &[SetType]); 6] = [
    ("probes", &[HashIp, HashNet, HashIpMark, HashIpPort, HashIpPortIp, HashIpPortNet]),
    ("resize", &[HashIp, HashNet, HashIpMark, HashIpPort, HashIpPortIp, HashIpPortNet]),
    ("gc", &[HashIp]),
    ("from", &[HashIpMark, HashIpPort, HashIpPortIp, HashIpPortNet]),
    ("to", &[HashIpMark, HashIpPort, HashIpPortIp, HashIpPortNet]),
    ("network", &[HashIpMark, HashIpPort, HashIpPortIp, HashIpPortNet]),
];

/// Parses the options after the type.
pub(super) fn create_options(
    h: &mut Header,
    type_token: &Token<'_>,
    rest: &mut &[Token<'_>],
) -> Result<(), Wrong> {
    // The family determines how the other options are parsed.
    let (mut others, mut names) = (Vec::new(), BTreeSet::new());
    let (mut from, mut to) = (None, None);
    while let Some((option, after)) = rest.split_first() {
        *rest = after;
        let name = option.text.trim_start_matches("--");
        let of = match name {
            "-4" | "-6" if h.kind.has_family() => "family",
            "from" | "network" if h.kind.is_bitmap() => "range",
            _ => name,
        };
        once(option, of, &mut names)?;
        let family = match name {
            "-4" => Some(SetFamily::Inet),
            "-6" => Some(SetFamily::Inet6),
            _ => None,
        };
        if let Some(family) = family.filter(|_| h.kind.has_family()) {
            h.family = family;
            continue;
        }
        let is_flag = options(&h.kind).any(|o| o.name == name && o.is_flag);
        let value = if is_flag {
            option
        } else {
            need(option, rest, "a value")?
        };
        match name {
            "family" if h.kind.has_family() => {
                h.family = match &*value.text {
                    "inet" | "ipv4" => SetFamily::Inet,
                    "inet6" | "ipv6" => SetFamily::Inet6,
                    other => {
                        return wrong(
                            value,
                            format!("family \"{other}\" is not known: inet or inet6"),
                        );
                    }
                }
            }
            // Older texts give a family for sets without addresses as well.
            "family" if matches!(&*value.text, "inet" | "inet6" | "unspec") => {}
            // A range in the older notation.
            "from" if h.kind.is_bitmap() => from = Some(value),
            "to" if h.kind.is_bitmap() => to = Some(value),
            "network" if h.kind.is_bitmap() => others.push(("range", option, value)),
            _ if IGNORED
                .iter()
                .any(|(old, of)| *old == name && of.contains(&h.kind)) => {}
            _ => others.push((name, option, value)),
        }
    }
    let range = match (from, to) {
        (Some(from), Some(to)) => Some(Token {
            text: format!("{}-{}", from.text, to.text).into(),
            ..Token::clone(from)
        }),
        (Some(one), None) | (None, Some(one)) => {
            return wrong(one, "from and to belong together: give both, or a range");
        }
        (None, None) => None,
    };
    others.extend(range.as_ref().map(|range| ("range", range, range)));
    for (name, option, value) in others {
        let found = options(&h.kind).find(|o| o.name == name && (o.takes)(&h.kind));
        let Some(found) = found else {
            let why = format!("{} has no option \"{name}\": remove it", h.kind);
            return wrong(option, why);
        };
        (found.parse)(h, value)?;
        if h.netmask.is_some() && h.bitmask.is_some() {
            return wrong(option, "netmask and bitmask exclude each other: remove one");
        }
    }
    let lacks = |o: &&CreateOption| (o.takes)(&h.kind) && !(o.is_given)(h);
    let mut needed = options(&h.kind)
        .filter(lacks)
        .filter_map(|o| Some((o.name, o.needed?)));
    if let Some((name, example)) = needed.next() {
        let why = format!("{} needs a {name}, as `{name} {example}`", h.kind);
        return wrong(type_token, why);
    }
    Ok(())
}
