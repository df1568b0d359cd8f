//! Options of `create`, and numbers.

use super::command::need;
use super::range::{address, bounds};
use super::token::Token;
use super::{Wrong, wrong};
use crate::ipset::codec::MAX_TIMEOUT;
use crate::ipset::model::{Header, SetFamily, SetType};
use std::net::{IpAddr, Ipv4Addr};

/// The largest timeout that ipset accepts, in seconds.
pub(super) const TIMEOUT_MAX: u64 = MAX_TIMEOUT as u64;

/// A number in a range, decimal or, after `0x`, hexadecimal.
pub(super) fn number<T: TryFrom<u64>>(token: &Token<'_>, min: u64, max: u64) -> Result<T, Wrong> {
    part_number(token, &token.text, min, max)
}

/// As [`number`], for a part of a word.
pub(super) fn part_number<T: TryFrom<u64>>(
    token: &Token<'_>,
    text: &str,
    min: u64,
    max: u64,
) -> Result<T, Wrong> {
    let value = match text.strip_prefix("0x") {
        Some(hex) if !hex.starts_with('+') => u64::from_str_radix(hex, 16).ok(),
        // ipset would read it as octal.
        _ if text.len() > 1 && text.starts_with('0') => None,
        _ if text.starts_with('+') => None,
        _ => text.parse().ok(),
    };
    match value
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

/// Parses the options after the type.
pub(super) fn create_options(
    h: &mut Header,
    type_token: &Token<'_>,
    rest: &mut &[Token<'_>],
) -> Result<(), Wrong> {
    const ALL: u64 = u32::MAX as u64;
    let is_hash = h.kind.is_hash();
    let has_mask = matches!(
        h.kind,
        SetType::HashIp | SetType::HashIpPort | SetType::HashNetNet
    );
    let is_addresses = h.kind.is_bitmap() && h.family == SetFamily::Inet;
    // The family determines how the others are parsed.
    let mut others = Vec::new();
    while let Some((option, after)) = rest.split_first() {
        *rest = after;
        let name = option.text.trim_start_matches("--");
        let is_flag = matches!(name, "counters" | "comment" | "forceadd" | "skbinfo");
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
            // Older texts name a family for sets without addresses too.
            "family" if matches!(&*value.text, "inet" | "inet6" | "unspec") => {}
            _ => others.push((name, option, value)),
        }
    }
    let prefix = if h.family == SetFamily::Inet6 {
        128
    } else {
        32
    };
    for (name, option, value) in others {
        match name {
            "hashsize" if is_hash => h.hash_size = Some(number(value, 1, ALL)?),
            "maxelem" if is_hash => h.max_elem = Some(number(value, 0, ALL)?),
            "bucketsize" if is_hash => h.bucket_size = Some(number(value, 1, 255)?),
            "initval" if is_hash => h.init_val = Some(number(value, 0, ALL)?),
            "forceadd" if is_hash => h.forceadd = true,
            "netmask" if has_mask || h.kind == SetType::BitmapIp => {
                h.netmask = Some(number(value, 1, prefix)?)
            }
            "bitmask" if has_mask => h.bitmask = Some(address(h.family, value, &value.text)?),
            "markmask" if h.kind == SetType::HashIpMark => {
                h.mark_mask = Some(number(value, 1, ALL)?);
            }
            "range" if is_addresses => h.addresses = Some(address_range(value)?),
            "range" if h.kind == SetType::BitmapPort => h.range = Some(range(value)?),
            "size" if h.kind == SetType::ListSet => h.size = Some(number(value, 1, ALL)?),
            "timeout" => h.timeout = Some(number(value, 0, TIMEOUT_MAX)?),
            "counters" => h.counters = true,
            "comment" => h.comment = true,
            "skbinfo" => h.skbinfo = true,
            other => {
                return wrong(
                    option,
                    format!("{} has no option \"{other}\": remove it", h.kind),
                );
            }
        }
        if h.netmask.is_some() && h.bitmask.is_some() {
            return wrong(option, "netmask and bitmask exclude each other: remove one");
        }
    }
    if h.kind == SetType::BitmapPort && h.range.is_none() {
        return wrong(type_token, "bitmap:port needs a range, as `range 0-65535`");
    }
    if is_addresses && h.addresses.is_none() {
        let why = format!("{} needs a range, as `range 10.0.0.0/16`", h.kind);
        return wrong(type_token, why);
    }
    Ok(())
}

/// `FROM-TO` or a network.
fn address_range(value: &Token<'_>) -> Result<(Ipv4Addr, Ipv4Addr), Wrong> {
    match bounds(SetFamily::Inet, value, &value.text)? {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ok((from, to)),
        _ => wrong(value, "the range has addresses of IPv4: write those"),
    }
}

fn range(value: &Token<'_>) -> Result<(u16, u16), Wrong> {
    let Some((from, to)) = value.text.split_once('-') else {
        return wrong(
            value,
            format!("\"{}\" is no range: write it as 0-65535", value.text),
        );
    };
    let port = |text| part_number::<u16>(value, text, 0, 65535);
    let (from, to) = (port(from)?, port(to)?);
    Ok((from.min(to), from.max(to)))
}
