//! The text of one value, by its type.

use super::concat::Field;
use super::numbers::{bits, name};
use super::unread;
use crate::address::Address;
use crate::calendar::civil;
use crate::nft::model::{Data, DataType, Element, ElementKey, Shown, Verdict};
use crate::nft::set::{ByElement, next};
use std::net::IpAddr;
use std::time::Duration;
use weir_netlink::attr::text_of;

/// The text of a value; `host_order` is true if a number in it is in host order.
pub(crate) fn value(data: &Data, data_type: DataType, host_order: bool) -> String {
    if data_type.is_concatenation() {
        let fields = Field::of(data_type, u32::try_from(data.0.len()).unwrap_or(0));
        return fields.map_or_else(|| hex(&data.0), |f| Field::text(data, data, &f));
    }
    let named = |table, n| name(table, n).map(str::to_owned);
    match (data_type.shown(), data.number(host_order)) {
        (Shown::Bytes(text), _) => text(&data.0, host_order),
        (Shown::Named(_), None) if !data.0.is_empty() => decimal(&data.0, host_order),
        (_, None) => hex(&data.0),
        (Shown::Bits(table), Some(n)) => bits(table, n),
        (Shown::Text(text), Some(n)) => text(n),
        (Shown::Hex(table, digits), Some(n)) => {
            named(table, n).unwrap_or_else(|| format!("0x{n:0digits$x}"))
        }
        (Shown::Named(table), Some(n)) => named(table, n).unwrap_or_else(|| n.to_string()),
    }
}

/// A number of any length.
fn decimal(bytes: &[u8], host_order: bool) -> String {
    let mut digits = vec![0];
    let mut add = |byte: &u8| {
        let mut carry = u32::from(*byte);
        for digit in &mut digits {
            carry += *digit << 8;
            (*digit, carry) = (carry % 10, carry / 10);
        }
        while carry > 0 {
            digits.push(carry % 10);
            carry /= 10;
        }
    };
    match host_order && cfg!(target_endian = "little") {
        true => bytes.iter().rev().for_each(&mut add),
        false => bytes.iter().for_each(&mut add),
    }
    digits.iter().rev().map(ToString::to_string).collect()
}

/// The numbers of the bits that are set in a bit map of the kernel; in network order the last byte has the lowest bits.
pub(crate) fn labels(bytes: &[u8], host_order: bool) -> String {
    let bit = |i: &usize| {
        let at = match host_order {
            true => Some(i / 8),
            false => (bytes.len() - 1).checked_sub(i / 8),
        };
        let byte = at.and_then(|at| bytes.get(at)).copied().unwrap_or(0);
        byte & (1 << (i % 8)) != 0
    };
    let set: Vec<String> = (0..bytes.len() * 8)
        .filter(bit)
        .map(|i| i.to_string())
        .collect();
    match set.is_empty() {
        true => "0x0".to_owned(),
        false => set.join(" | "),
    }
}

/// One end of a range: as [`value`], but for most types `nft` uses no symbolic names there.
pub(crate) fn bound(data: &Data, data_type: DataType, host_order: bool) -> String {
    match (data_type, data_type.shown(), data.number(host_order)) {
        (DataType::IFINDEX | DataType::CT_EVENT, ..) => value(data, data_type, host_order),
        (DataType::TIME, _, Some(n)) => format!("{}s", n / 1000),
        (t, Shown::Named(_), Some(n)) if !t.is_concatenation() => n.to_string(),
        (DataType::ECN, _, Some(n)) | (_, Shown::Bits(_), Some(n)) => format!("0x{n:x}"),
        (_, Shown::Hex(_, digits), Some(n)) => format!("0x{n:0digits$x}"),
        _ => value(data, data_type, host_order),
    }
}

/// The operand of an ordering comparison. `nft` finds no symbolic name for a number whose byte order was changed (`turned`),
/// and for flags in one byte only if a single flag is set.
pub(crate) fn ordered(data: &Data, data_type: DataType, host_order: bool, turned: bool) -> String {
    match (data_type, data.number(host_order)) {
        (DataType::CT_STATE | DataType::CT_STATUS, Some(n)) if turned && n != 0 => {
            let bits = (0..64).map(|i| n & (1 << i)).filter(|bit| *bit != 0);
            let bits: Vec<String> = bits.map(|bit| format!("0x{bit:x}")).collect();
            bits.join(" | ")
        }
        // 0 is the same in both orders.
        (DataType::ARPHRD | DataType::FIB_ADDR | DataType::BOOLEAN, n)
            if turned && n != Some(0) =>
        {
            bound(data, data_type, host_order)
        }
        (DataType::TCP_FLAG, Some(n)) if n.count_ones() != 1 => format!("0x{n:x}"),
        _ => value(data, data_type, host_order),
    }
}

/// `meta priority` is a class of traffic control, `MAJOR:MINOR`.
pub(crate) fn tc_handle(n: u64) -> String {
    match n {
        0 => "none".to_owned(),
        0xffff_ffff => "root".to_owned(),
        n => format!("{:x}:{:x}", n >> 16, n & 0xffff),
    }
}

/// A number in hexadecimal without leading zeros, for bytes without a name.
pub(crate) fn hex_number(d: &Data) -> String {
    let text = hex(&d.0);
    let digits = text.trim_start_matches("0x").trim_start_matches('0');
    format!("0x{}", if digits.is_empty() { "0" } else { digits })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::from("0x"), |s, b| s + &format!("{b:02x}"))
}

/// `02:00:00:00:00:01`
pub(crate) fn ether(bytes: &[u8], _: bool) -> String {
    let texts: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    texts.join(":")
}

pub(crate) fn ifname(bytes: &[u8], _: bool) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let name = text_of(bytes.get(..end).unwrap_or_default());
    match name.strip_suffix('*') {
        // The escaped `*` is part of the name, not a pattern.
        Some(front) => format!("\"{front}\\*\""),
        None => format!("\"{name}\""),
    }
}

/// Nanoseconds since 1970 as date and time in UTC. `nft` uses the time zone of the process.
pub(crate) fn date(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("\"{year}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}\"")
}

/// Seconds since midnight in UTC, as the kernel counts them.
pub(crate) fn hour(seconds: u64) -> String {
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match s {
        0 => format!("\"{h:02}:{m:02}\""),
        s => format!("\"{h:02}:{m:02}:{s:02}\""),
    }
}

/// An address as `inet_ntop(3)` prints it.
pub(crate) fn address(bytes: &[u8], _: bool) -> String {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let found = v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    found.map_or_else(|_| hex(bytes), |address| Address(address).to_string())
}

/// The prefix length, if the range is a network.
pub(super) fn prefix_len(first: &Data, last: &Data, host_order: bool) -> Option<usize> {
    if host_order && cfg!(target_endian = "little") {
        let turned = |d: &Data| Data(d.0.iter().rev().copied().collect());
        return prefix_len(&turned(first), &turned(last), false);
    }
    let ones: u32 = first
        .0
        .iter()
        .zip(&last.0)
        .map(|(a, b)| (a ^ b).count_ones())
        .sum();
    let bits = first.0.len() * 8;
    let len = bits.checked_sub(usize::try_from(ones).ok()?)?;
    let mask = crate::nft::linearize::prefix_mask(first.0.len(), u8::try_from(len).ok()?);
    let is_network = first
        .0
        .iter()
        .zip(&last.0)
        .zip(&mask)
        .all(|((a, b), m)| a & !m == 0 && b & !m == !m && a & m == b & m);
    is_network.then_some(len)
}

/// The range from one value to another, as a network if it is one.
pub(crate) fn range(first: &Data, last: &Data, t: DataType, host_order: bool) -> String {
    match prefix_len(first, last, host_order) {
        Some(len) if t.has_prefixes() => format!("{}/{len}", value(first, t, host_order)),
        _ if t == DataType::IFNAME
            && let Some([one]) = names(first, last).as_deref() =>
        {
            one.clone()
        }
        _ if t == DataType::IFNAME => format!("{}-{}", hex(&first.0), hex(&last.0)),
        _ => {
            let (first, last) = (bound(first, t, host_order), bound(last, t, host_order));
            format!("{first}-{last}")
        }
    }
}

/// The most adjacent names in one range; a foreign program can make a range of any number.
const NAMES: usize = 256;

/// The names and patterns of a range of interface names: nft joins `"a*"` and `"b"`, which are adjacent. `None` if other bytes
/// are in the range, or more than [`NAMES`] names.
fn names(first: &Data, last: &Data) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    let mut at = first.clone();
    loop {
        let len = at.0.iter().position(|b| *b == 0)?;
        let rest = |d: &mut Data, byte| d.0.iter_mut().skip(len).for_each(|b| *b = byte);
        let (mut name, mut end) = (at.clone(), at.clone());
        rest(&mut name, 0);
        rest(&mut end, 0xff);
        if len == 0 || name != at || texts.len() == NAMES {
            return None;
        }
        let text = ifname(&at.0, false);
        if end <= *last {
            texts.push(format!("{}*\"", text.trim_end_matches('"')));
        } else {
            texts.push(text);
            end = at;
        }
        if end == *last {
            return Some(texts);
        }
        at = next(&end)?;
    }
}

/// An element with its statements, timeouts, comment and value. `fields` are those of its key and of its value; `unread`
/// holds the attributes without a field of all elements.
pub(crate) fn element(
    e: &Element,
    fields: &[Field],
    data: Option<&[Field]>,
    unread: &ByElement<'_>,
) -> String {
    let keys = match (&e.key, fields) {
        (ElementKey::Value(d), _) if d.0.is_empty() => vec!["*".to_owned()],
        (ElementKey::Range(ends), [f]) if f.data_type == DataType::IFNAME => {
            names(&ends.0, &ends.1).unwrap_or_default()
        }
        _ => Vec::new(),
    };
    let (mut text, rest) = unread::of_element(unread, e);
    let extra = e.extra();
    match extra.timeout {
        Some(Duration::ZERO) => text += " timeout never",
        Some(timeout) => text += &format!(" timeout {}", duration(timeout)),
        None => {}
    }
    if let Some(expires) = extra.expires {
        text += &format!(" expires {}", duration(expires));
    }
    if let Some(comment) = &extra.comment {
        text += &format!(" comment \"{comment}\"");
    }
    if let Some(v) = &extra.verdict {
        text += &format!(" : {v}");
    }
    if let (Some(d), Some(fields)) = (&extra.value, data) {
        text += &format!(" : {}", data_text(d, fields));
    }
    text += &rest;
    if keys.is_empty() {
        return Field::text(e.key.first(), e.key.last(), fields) + &text;
    }
    let all: Vec<String> = keys.into_iter().map(|key| key + &text).collect();
    all.join(", ")
}

/// The key by which `nft` sorts the elements of a set of flags: first the lowest bit.
pub(crate) fn by_bit(e: &Element, host_order: bool, is_map: bool) -> (u32, u64) {
    let n = e.key.first().number(host_order).unwrap_or(0);
    (n.trailing_zeros(), if is_map { n } else { u64::MAX - n })
}

/// Puts the texts of elements into the order of `nft`: without ranges, it sorts the catch-all element like one with all bits
/// set, and lists it before such an element.
pub(crate) fn order(texts: &mut [String], elements: &[Element], interval: bool) {
    if let ([.., last, other], [.., a, b]) = (elements, texts)
        && !interval
        && other.key.first().0.is_empty()
        && last.key.first().0.iter().all(|b| *b == 0xff)
    {
        std::mem::swap(a, b);
    }
}

/// The value of a map; a range if it is twice as long as its type.
fn data_text(d: &Data, fields: &[Field]) -> String {
    let padded: usize = fields.iter().map(|f| f.len.next_multiple_of(4)).sum();
    match d.0.split_at_checked(padded) {
        Some((first, last)) if last.len() == padded => {
            Field::text(&first.into(), &last.into(), fields)
        }
        _ => Field::text(d, d, fields),
    }
}

/// A number of bytes in the largest unit that divides it.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        n if n != 0 && n % (1 << 20) == 0 => format!("{} mbytes", n >> 20),
        n if n != 0 && n % (1 << 10) == 0 => format!("{} kbytes", n >> 10),
        n => format!("{n} bytes"),
    }
}

/// `1d2h3m4s5ms`
pub(crate) fn duration(t: Duration) -> String {
    let ms = t.as_millis();
    let parts = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1000, "s"),
        (1, "ms"),
    ];
    let mut left = ms;
    let mut text = String::new();
    for (unit, name) in parts {
        if left >= unit {
            text += &format!("{}{name}", left / unit);
            left %= unit;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Drop => f.write_str("drop"),
            Self::Continue => f.write_str("continue"),
            Self::Return => f.write_str("return"),
            Self::Jump(chain) => write!(f, "jump {chain}"),
            Self::Goto(chain) => write!(f, "goto {chain}"),
            Self::Other(n) => write!(f, "verdict {n}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_names_is_listed_within_bounds() {
        let name = |text: &[u8], rest: u8| {
            let mut bytes = text.to_vec();
            bytes.resize(16, rest);
            Data::from(bytes)
        };
        let two = names(&name(b"a", 0), &name(b"b", 0));
        assert_eq!(two.unwrap(), ["\"a*\"", "\"b\""]);
        let all = names(&name(b"\x01", 0), &name(b"\xfe", 0xff));
        assert_eq!(all.unwrap().len(), 254);
        // 26 to the power of 14 names.
        assert_eq!(names(&name(&[b'a'; 15], 0), &name(&[b'z'; 15], 0xff)), None);
    }
}
