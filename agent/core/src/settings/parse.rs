//! Parses texts of settings as Go's libraries do, because existing values were written for those.

pub use weir_cni::config::text::boolean as go_bool;

/// Parses as `strconv.ParseInt(text, 0, 64)`: decimal, `0x` hexadecimal, `0b` binary, and octal both as `0o640` and as
/// `0640`. A file mode without its leading zero is therefore a decimal number.
#[must_use]
pub fn go_int(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let prefix = digits.get(..2).map(str::to_ascii_lowercase);
    let (radix, digits) = match prefix.as_deref() {
        Some("0x") => (16, digits.get(2..)?),
        Some("0o") => (8, digits.get(2..)?),
        Some("0b") => (2, digits.get(2..)?),
        _ if digits.len() > 1 && digits.starts_with('0') => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    // `from_str_radix` would accept a second sign.
    if !digits.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return None;
    }
    let value = i64::from_str_radix(digits, radix).ok()?;
    Some(if negative { -value } else { value })
}

/// Returns the items of a comma-separated list, trimmed, without empty ones.
pub(super) fn comma_list(text: &str) -> Vec<String> {
    let items = text.split(',').map(str::trim);
    items.filter(|i| !i.is_empty()).map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans() {
        for (text, value) in [
            ("True", Some(true)),
            ("t", Some(true)),
            ("0", Some(false)),
            ("FALSE", Some(false)),
            ("", None),
            ("yes", None),
            ("tRUE", None),
            (" true", None),
        ] {
            assert_eq!(go_bool(text), value, "{text:?}");
        }
    }

    #[test]
    fn integers() {
        for (text, value) in [
            ("0640", Some(0o640)),
            ("0o640", Some(0o640)),
            ("640", Some(640)),
            ("0x1A0", Some(0x1a0)),
            ("0b11", Some(3)),
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("+7", Some(7)),
            ("", None),
            ("-", None),
            ("--1", None),
            ("0x", None),
            ("0x-1", None),
            ("089", None),
            ("1 ", None),
            ("99999999999999999999", None),
            ("é", None),
        ] {
            assert_eq!(go_int(text), value, "{text:?}");
        }
    }

    #[test]
    fn lists() {
        assert_eq!(comma_list(" a, ,b,, c "), ["a", "b", "c"]);
        assert!(comma_list(" , ").is_empty());
    }
}
