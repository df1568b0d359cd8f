//! `-m hashlimit` (`struct xt_hashlimit_mtinfo3`): a rate limit for each address or port.
//!
//! A packet rate is stored as the time between two packets, in microseconds. A byte rate is stored as a cost:
//! `u32::MAX / (rate / 16 + 1)`, with the rate in bytes per second.

use super::limit::{read_rate, show_rate};
use super::prelude::*;

const NAME_LEN: usize = 255;
const AVG: usize = 256;
const BURST: usize = 264;
const MODE: Place = Place { at: 272, width: 4 };
const EXPIRE: usize = 288;
const INTERVAL: usize = 292;

/// `XT_HASHLIMIT_*`
const INVERT: u64 = 16;
const BYTES: u64 = 32;
const RATE_MATCH: u64 = 64;

/// In the order in which they are printed.
const MODES: &[(&str, u64)] = &[("srcip", 4), ("srcport", 8), ("dstip", 1), ("dstport", 2)];

/// The number of periods in a second: a period is stored in microseconds.
const SCALE: u64 = 1_000_000;

const SIZES: [(&str, u64); 3] = [("m", 1024 * 1024), ("k", 1024), ("", 1)];

/// `XT_HASHLIMIT_BURST_MAX`
const MAX_BURST: u64 = 1_000_000;

/// `XT_HASHLIMIT_BURST`, `XT_HASHLIMIT_GCINTERVAL`, and the lifetime of the entries of byte limits, in milliseconds.
const DEFAULT_BURST: u64 = 5;
const DEFAULT_GC_INTERVAL: u64 = 1000;
const EXPIRE_BYTES: u64 = 15_000;
const EXPIRE_BURST: u64 = 60_000;

/// Numbers of four bytes: option, offset, and the default, which is not printed.
const NUMBERS: [(&str, usize, u64); 3] = [
    ("--hashlimit-htable-size", 276, 0),
    ("--hashlimit-htable-max", 280, 0),
    ("--hashlimit-htable-gcinterval", 284, DEFAULT_GC_INTERVAL),
];

const MASKS: [(&str, usize); 2] = [("--hashlimit-srcmask", 296), ("--hashlimit-dstmask", 297)];

fn cost_to_bytes(cost: u64) -> u64 {
    let rate = u64::from(u32::MAX)
        .checked_div(cost)
        .unwrap_or(u32::MAX.into());
    rate.wrapping_sub(1) << 4
}

fn bytes_to_cost(bytes: u64) -> u64 {
    u64::from(u32::MAX) / (((bytes >> 4) & 0xffff_ffff) + 1)
}

/// The byte rate in the largest unit that represents it without loss.
fn show_bytes(avg: u64) -> String {
    let rate = cost_to_bytes(avg);
    // As in iptables, only 32 bits of the rate are compared.
    let fits =
        |size: u64| rate >= size && bytes_to_cost(rate & !(size - 1) & u64::from(u32::MAX)) == avg;
    let found = SIZES.iter().find(|(_, size)| *size == 1 || fits(*size));
    found.map_or_else(String::new, |(name, size)| {
        format!("{}{name}b/s", rate / size)
    })
}

fn show(b: &Blob, family: XtFamily) -> Option<Vec<Shown>> {
    let above = b.has(MODE, INVERT);
    let limit = if above {
        "--hashlimit-above"
    } else {
        "--hashlimit-upto"
    };
    let (avg, burst) = (b.uint(AVG, 8), b.uint(BURST, 8));
    let mut all = Vec::new();
    let expire = if b.has(MODE, BYTES) {
        all.push(Shown::one(limit, show_bytes(avg)));
        if burst == 0 {
            EXPIRE_BYTES
        } else {
            let rate = cost_to_bytes(avg);
            let bytes = rate.wrapping_mul(burst);
            // iptables rounds down; the largest unit that restores the same burst.
            let is_same = |size: u64| {
                let rounded = bytes / size * size;
                rate > 0 && rounded >= rate && rounded.div_ceil(rate) == burst
            };
            let (name, size) = SIZES.iter().find(|(_, size)| is_same(*size))?;
            all.push(Shown::one(
                "--hashlimit-burst",
                format!("{}{name}b", bytes / size),
            ));
            EXPIRE_BURST
        }
    } else {
        let (rate, seconds) = show_rate(avg, SCALE)?;
        all.push(Shown::one(limit, rate));
        all.push(Shown::one("--hashlimit-burst", burst));
        seconds * 1000
    };
    let modes: Vec<&str> = MODES
        .iter()
        .filter(|(_, bit)| b.has(MODE, *bit))
        .map(|(name, _)| *name)
        .collect();
    if !modes.is_empty() {
        all.push(Shown::one("--hashlimit-mode", modes.join(",")));
    }
    all.push(Shown::one("--hashlimit-name", b.text(0, NAME_LEN)?));
    let expire = ("--hashlimit-htable-expire", EXPIRE, expire);
    for (name, at, default) in NUMBERS.into_iter().chain([expire]) {
        if b.uint(at, 4) != default {
            all.push(Shown::one(name, b.uint(at, 4)));
        }
    }
    for (name, at) in MASKS {
        if b.uint(at, 1) != u64::from(max_length(family)) {
            all.push(Shown::one(name, b.uint(at, 1)));
        }
    }
    if b.has(MODE, RATE_MATCH) {
        all.push(Shown::new("--hashlimit-rate-match", Vec::new()));
        if b.uint(INTERVAL, 4) != 1 {
            all.push(Shown::one("--hashlimit-rate-interval", b.uint(INTERVAL, 4)));
        }
    }
    Some(all)
}

/// Parses a number with a unit of [`SIZES`].
fn bytes_of(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, size) = SIZES.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*size)
}

/// Parses the limit, and returns the seconds of its unit.
fn read_limit(o: &Opt, b: &mut Blob) -> Result<u64, Complaint> {
    let wrong =
        || o.wrong("is no rate; give N/sec, N/min, N/hour, N/day, or N with b/s, kb/s or mb/s");
    if let Some(bytes) = o.word(0).strip_suffix("b/s") {
        // iptables prints a rate below 16 bytes per second as 0.
        let cost = bytes_of(bytes).map(bytes_to_cost);
        b.put(AVG, 8, cost.filter(|cost| *cost > 0).ok_or_else(wrong)?);
        b.or(MODE, BYTES);
        return Ok(EXPIRE_BYTES / 1000);
    }
    let (period, seconds) = read_rate(o, SCALE).ok_or_else(wrong)?;
    b.put(AVG, 8, period);
    Ok(seconds)
}

fn read_burst(o: &Opt, b: &mut Blob) -> Result<u64, Complaint> {
    let word = o.plain()?.word(0);
    let wrong = || {
        o.wrong("is no burst that goes with the limit; give packets, or more bytes than the limit")
    };
    if !b.has(MODE, BYTES) {
        let packets = number_of(o, word, 8)?;
        if !(1..=MAX_BURST).contains(&packets) {
            return Err(o.wrong("is no burst of packets; give 1 to 1000000"));
        }
        b.put(BURST, 8, packets);
        return Ok(0);
    }
    let cost = cost_to_bytes(b.uint(AVG, 8));
    let bytes = bytes_of(word.strip_suffix('b').unwrap_or(word)).filter(|bytes| *bytes >= cost);
    let bytes = bytes.ok_or_else(wrong)?;
    let burst = bytes.checked_div(cost).ok_or_else(wrong)?;
    let more = u64::from(bytes.checked_rem(cost).ok_or_else(wrong)? != 0);
    b.put(BURST, 8, (burst + more) & 0xffff_ffff);
    Ok(EXPIRE_BURST)
}

fn read(given: &mut Given, b: &mut Blob) -> Result<(), Complaint> {
    let family = given.family;
    let o = given.need(&["--hashlimit-upto", "--hashlimit-above", "--hashlimit"])?;
    if o.is("--hashlimit-above") != o.not.0 {
        b.or(MODE, INVERT);
    }
    let seconds = read_limit(&o, b)?;
    let mut expire = seconds * 1000;
    b.put(BURST, 8, if b.has(MODE, BYTES) { 0 } else { DEFAULT_BURST });
    if let Some(o) = given.take(&["--hashlimit-burst"]) {
        expire = expire.max(read_burst(&o, b)?);
    }
    if let Some(o) = given.take(&["--hashlimit-mode"]) {
        for word in o.plain()?.word(0).split([',', '|']) {
            b.or(MODE, named(&o, word, MODES)?);
        }
    }
    let o = given.need(&["--hashlimit-name"])?;
    Value::Text(NAME_LEN, Quote::Never).read(o.plain()?, b, 0, family)?;
    for (name, at, default) in
        NUMBERS
            .into_iter()
            .chain([("--hashlimit-htable-expire", EXPIRE, expire)])
    {
        let o = given.take(&[name]);
        let value = o.map_or(Ok(default), |o| number_of(&o, o.plain()?.word(0), 4))?;
        b.put(at, 4, value);
    }
    for (name, at) in MASKS {
        let max = u64::from(max_length(family));
        let o = given.take(&[name]);
        let length = o.map_or(Ok(max), |o| match number_of(&o, o.plain()?.word(0), 1)? {
            length if length > max => Err(o.wrong("is longer than an address; give fewer bits")),
            length => Ok(length),
        })?;
        b.put(at, 1, length);
    }
    let interval = given.take(&["--hashlimit-rate-interval"]);
    let interval = interval.map_or(Ok(0), |o| number_of(&o, o.plain()?.word(0), 4))?;
    b.put(INTERVAL, 4, interval);
    if given.flag("--hashlimit-rate-match")? {
        b.or(MODE, RATE_MATCH);
        let is_bytes = b.has(MODE, BYTES);
        if !is_bytes {
            b.put(AVG, 8, b.uint(AVG, 8).checked_div(seconds).unwrap_or(0));
        }
        if interval == 0 {
            b.put(INTERVAL, 4, if is_bytes { 1 } else { seconds });
        }
    }
    Ok(())
}

rows! {
    // The interval has no meaning without `--hashlimit-rate-match`, and iptables does not print it then.
    MATCH "hashlimit" { revision: 3, size: 312, rounded: INTERVAL..INTERVAL + 4,
        options: Options::Code { repeated: false, show, read, names: &[
        ("--hashlimit-upto", 1), ("--hashlimit-above", 1), ("--hashlimit", 1), ("--hashlimit-srcmask", 1),
        ("--hashlimit-dstmask", 1), ("--hashlimit-burst", 1), ("--hashlimit-htable-size", 1),
        ("--hashlimit-htable-max", 1), ("--hashlimit-htable-gcinterval", 1), ("--hashlimit-htable-expire", 1),
        ("--hashlimit-mode", 1), ("--hashlimit-name", 1), ("--hashlimit-rate-match", 0),
        ("--hashlimit-rate-interval", 1),
    ] } }
}
