//! The text forms of booleans, numbers, durations, lists and networks.

use ipnet::IpNet;
use std::net::IpAddr;
use std::time::Duration;

/// Parses a boolean as `strconv.ParseBool` of Go does: `1 t T true TRUE True` or `0 f F false FALSE False`; `None` for anything else.
#[must_use]
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Parses a decimal number of digits only: no sign, no blank. `FromStr` of the integers would accept a `+`.
#[must_use]
pub fn decimal<N: std::str::FromStr>(text: &str) -> Option<N> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

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
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
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

/// Formats a duration as text that [`duration`] parses: `1m30s`, `500ms`, `0s`.
#[must_use]
pub fn duration_text(duration: Duration) -> String {
    let mut text = String::new();
    let mut rest = duration.as_nanos();
    for (name, unit) in UNITS
        .iter()
        .rev()
        .filter(|(name, _)| name.is_ascii() && *name != "us")
    {
        let unit = u128::from(*unit);
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

/// Returns the elements of a list in order, including duplicates. Ignores blanks around an element and empty elements.
pub fn elements(list: &str) -> impl Iterator<Item = &str> {
    list.split(',')
        .map(str::trim)
        .filter(|element| !element.is_empty())
}

/// Parses a network, `ADDRESS/LENGTH`. Host bits may be set and are kept. Accepts no zone, no blanks, and no sign or
/// leading zeros in the length.
///
/// # Errors
/// The reason why it is not a network.
pub fn cidr(text: &str) -> Result<IpNet, &'static str> {
    let (addr, len) = text.rsplit_once('/').ok_or("has no /LENGTH")?;
    let addr: IpAddr = addr.parse().map_err(|_| "has no IP address before the /")?;
    if len.len() > 1 && len.starts_with('0') {
        return Err("has a length with leading zeros");
    }
    let len: u8 = decimal(len).ok_or("has a length that is not a small number")?;
    IpNet::new(addr, len).map_err(|_| "is longer than an address of its family")
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
            assert_eq!(duration(text), expected, "{text:?}");
        }
    }

    #[test]
    fn duration_text_is_read_back() {
        for (millis, text) in [
            (0, "0s"),
            (5_000, "5s"),
            (90_000, "1m30s"),
            (1_500, "1s500ms"),
        ] {
            let value = Duration::from_millis(millis);
            assert_eq!(duration_text(value), text);
            assert_eq!(duration(text), Some(value));
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(decimal::<u16>("65535"), Some(65535));
        assert_eq!(decimal::<u16>("65536"), None);
        assert_eq!(decimal::<u16>("+1"), None);
        assert_eq!(decimal::<u16>(" 1"), None);
        assert_eq!(decimal::<u16>("007"), Some(7));
    }

    #[test]
    fn networks() {
        for good in [
            "10.0.0.0/8",
            "10.1.2.3/8",
            "0.0.0.0/0",
            "::1/0",
            "::ffff:10.0.0.1/104",
        ] {
            assert_eq!(cidr(good).unwrap().to_string(), good);
        }
        for bad in [
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            " 10.0.0.0/8",
            "10.0.0.0/8 ",
            "fe80::1%eth0/64",
            "*",
            "",
            "/8",
            "10.0.0/8",
            "::/129",
            "010.0.0.0/8",
        ] {
            assert!(cidr(bad).is_err(), "{bad:?}");
        }
    }
}
