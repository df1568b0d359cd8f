//! Entries: the key and the options.

use super::command::{checked, need};
use super::options::{TIMEOUT_MAX, number, once, part_number};
use super::range::{address, addresses, networks, port_range, ports, product};
use super::token::Token;
use super::{Wrong, wrong};
use crate::ipset::model::{Dimension, Entry, Header, Key, KeyPart};
use crate::ipset::raw::IPSET_MAX_COMMENT_SIZE;
use crate::text;
use std::collections::BTreeSet;
use weir_netlink::attr::bytes_of;

/// Parses the keys of an entry; several if the word contains a range.
pub(super) fn keys(h: &Header, token: &Token<'_>) -> Result<Vec<Key>, Wrong> {
    let dimensions = h.kind.dimensions();
    let wants = dimensions.len().max(1);
    let has = token.text.split(',').count();
    let is_short = dimensions.last() == Some(&Dimension::MacOrNone) && has + 1 == wants;
    if has != wants && !is_short && !h.kind.has(Dimension::Set) {
        return wrong(
            token,
            format!(
                "\"{}\" has {has} parts; an entry of {} has {wants}",
                token.text, h.kind
            ),
        );
    }
    Ok(match dimensions {
        [Dimension::Number] => bitmap_ports(h, token)?,
        [Dimension::Set] => vec![Key::Set(checked(token)?.text.to_string())],
        [] => {
            return wrong(
                token,
                format!(
                    "sets of type {} are not known: the line cannot be read",
                    h.kind
                ),
            );
        }
        _ => products(h, token, dimensions)?
            .into_iter()
            .map(Key::Parts)
            .collect(),
    })
}

/// Parses the keys of a type with these dimensions: the product of the values of each part.
fn products(
    h: &Header,
    token: &Token<'_>,
    dimensions: &[Dimension],
) -> Result<Vec<Vec<KeyPart>>, Wrong> {
    let mut words = token.text.split(',');
    let mut parts: Vec<Vec<KeyPart>> = Vec::with_capacity(dimensions.len());
    for (number, dimension) in dimensions.iter().enumerate() {
        let word = words.next().unwrap_or_default();
        let some: Vec<KeyPart> = match dimension {
            // The second address cannot be a range.
            Dimension::Ip if number > 0 => vec![KeyPart::Ip(address(h.family, token, word)?)],
            Dimension::Ip => addresses(h, token, word)?
                .into_iter()
                .map(KeyPart::Ip)
                .collect(),
            Dimension::Net => networks(h.family, token, word)?
                .into_iter()
                .map(KeyPart::Net)
                .collect(),
            Dimension::Port => ports(h.family, token, word)?
                .into_iter()
                .map(KeyPart::Port)
                .collect(),
            Dimension::Mark => {
                let mark: u32 = part_number(token, word, 0, u32::MAX.into())?;
                vec![KeyPart::Mark(mark & h.mark_mask.unwrap_or(u32::MAX))]
            }
            Dimension::MacOrNone if word.is_empty() => vec![KeyPart::Mac(None)],
            Dimension::Mac | Dimension::MacOrNone => vec![KeyPart::Mac(Some(mac(token, word)?))],
            Dimension::Interface => vec![interface(token, word)?],
            Dimension::Number | Dimension::Set => {
                return wrong(token, "this type has other entries");
            }
        };
        parts.push(some);
    }
    product(token, parts)
}

/// `NAME` or `physdev:NAME`
fn interface(token: &Token<'_>, word: &str) -> Result<KeyPart, Wrong> {
    let (name, is_port) = match word.strip_prefix("physdev:") {
        Some(name) => (name, true),
        None => (word, false),
    };
    if name.is_empty() || bytes_of(name).len() > 15 {
        return wrong(
            token,
            format!("\"{name}\" is no interface: a name has 1 to 15 bytes"),
        );
    }
    Ok(KeyPart::Interface {
        name: name.to_owned(),
        is_port,
        is_prefix: false,
    })
}

fn bitmap_ports(h: &Header, token: &Token<'_>) -> Result<Vec<Key>, Wrong> {
    let (from, to) = port_range(token)?;
    let (first, last) = h.range.unwrap_or((0, u16::MAX));
    if from < first || to > last {
        return wrong(
            token,
            format!(
                "{} is outside of the set's range {first}-{last}",
                token.text
            ),
        );
    }
    Ok((from..=to).map(Key::Port).collect())
}

fn mac(token: &Token<'_>, text: &str) -> Result<[u8; 6], Wrong> {
    match text::mac(text) {
        Some(mac) => Ok(mac),
        None => wrong(
            token,
            format!("\"{text}\" is no hardware address: write it as 00:11:22:AA:BB:CC"),
        ),
    }
}

/// Parses the options after the key; the flag is true if `wildcard` is among them.
pub(super) fn options(h: &Header, rest: &mut &[Token<'_>]) -> Result<(Entry, bool), Wrong> {
    let mut e = Entry::new(Key::Port(0));
    let (mut is_wildcard, mut names) = (false, BTreeSet::new());
    while let Some((option, after)) = rest.split_first() {
        *rest = after;
        let name = option.text.trim_start_matches("--");
        once(option, name, &mut names)?;
        if name == "nomatch" {
            if !h.kind.has_nomatch() {
                return wrong(option, format!("{} has no nomatch: remove it", h.kind));
            }
            e.nomatch = true;
            continue;
        }
        if name == "wildcard" && h.kind.has(Dimension::Interface) {
            is_wildcard = true;
            continue;
        }
        let (is_possible, needs) = match name {
            "timeout" => (h.timeout.is_some(), "timeout"),
            "packets" | "bytes" => (h.counters, "counters"),
            "comment" => (h.comment, "comment"),
            "skbmark" | "skbprio" | "skbqueue" => (h.skbinfo, "skbinfo"),
            "before" | "after" => {
                let why = "members are added in the order of the lines: order them instead";
                return wrong(option, why);
            }
            other => {
                let why = format!("an entry has no option \"{other}\": remove it");
                return wrong(option, why);
            }
        };
        if !is_possible {
            let why = format!("set {} was created without {needs}: create it so", h.name);
            return wrong(option, why);
        }
        let value = need(option, rest, "a value")?;
        match name {
            "timeout" => e.timeout = Some(number(value, 0, TIMEOUT_MAX)?),
            "packets" => e.counters.get_or_insert_default().packets = number(value, 0, u64::MAX)?,
            "bytes" => e.counters.get_or_insert_default().bytes = number(value, 0, u64::MAX)?,
            "comment" => e.comment = Some(comment(value)?),
            "skbmark" => e.skbinfo.mark = Some(mark(value)?),
            "skbprio" => e.skbinfo.prio = Some(prio(value)?),
            _ => e.skbinfo.queue = Some(number(value, 0, 65535)?),
        }
    }
    Ok((e, is_wildcard))
}

fn comment(value: &Token<'_>) -> Result<String, Wrong> {
    let n = bytes_of(&value.text).len();
    if n > IPSET_MAX_COMMENT_SIZE {
        return wrong(
            value,
            format!("the comment has {n} bytes; at most 255 are possible: shorten it"),
        );
    }
    Ok(value.text.to_string())
}

/// A hexadecimal number, with or without `0x`.
fn hex(token: &Token<'_>, text: &str, max: u32) -> Result<u32, Wrong> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    match u32::from_str_radix(digits, 16) {
        Ok(n) if n <= max && !digits.starts_with('+') => Ok(n),
        _ => wrong(
            token,
            format!("\"{text}\" is no hexadecimal number up to 0x{max:x}"),
        ),
    }
}

/// `0xMARK[/0xMASK]`
fn mark(value: &Token<'_>) -> Result<(u32, u32), Wrong> {
    match value.text.split_once('/') {
        Some((mark, mask)) => Ok((hex(value, mark, u32::MAX)?, hex(value, mask, u32::MAX)?)),
        None => Ok((hex(value, &value.text, u32::MAX)?, u32::MAX)),
    }
}

/// `MAJOR:MINOR`, hexadecimal
fn prio(value: &Token<'_>) -> Result<u32, Wrong> {
    match value.text.split_once(':') {
        Some((major, minor)) => Ok(hex(value, major, 0xffff)? << 16 | hex(value, minor, 0xffff)?),
        None => wrong(
            value,
            format!("\"{}\" is no class: write it as 1:10", value.text),
        ),
    }
}
