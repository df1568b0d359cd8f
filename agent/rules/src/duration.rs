//! The text form of durations, as Go's `time.ParseDuration` reads it.

use std::time::Duration;
use weir_cni::config::text::decimal;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration: numbers, each with a unit, such as `5s`, `500ms`, `1m30s`, `1.5h`; `0` needs no unit.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if text.is_empty() {
        return None;
    }
    let mut rest = text;
    let mut nanos = 0_u64;
    while !rest.is_empty() {
        let split = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at_checked(split)?;
        let split = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at_checked(split)?;
        let (_, unit) = UNITS.iter().find(|(name, _)| *name == unit)?;
        nanos = nanos.checked_add(scaled(number, *unit)?)?;
        rest = tail;
    }
    Some(Duration::from_nanos(nanos))
}

/// `number * unit` for a decimal fraction; fractions of a nanosecond are dropped.
fn scaled(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut nanos = if whole.is_empty() {
        0
    } else {
        decimal::<u64>(whole)?.checked_mul(unit)?
    };
    let mut part = unit;
    for digit in fraction.chars() {
        part /= 10;
        nanos = nanos.checked_add(part.checked_mul(u64::from(digit.to_digit(10)?))?)?;
    }
    Some(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let ms = |n| Some(Duration::from_millis(n));
        for (text, expected) in [
            ("0", ms(0)),
            ("0s", ms(0)),
            ("5s", ms(5_000)),
            ("500ms", ms(500)),
            ("1m30s", ms(90_000)),
            ("1.5h", ms(5_400_000)),
            (".5s", ms(500)),
            ("1h0.001s", ms(3_600_001)),
            ("2\u{b5}s", Some(Duration::from_micros(2))),
            ("", None),
            ("5", None),
            ("s", None),
            (".s", None),
            ("-5s", None),
            ("5x", None),
            ("5s ", None),
            ("99999999999h", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
