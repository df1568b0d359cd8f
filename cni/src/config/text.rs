//! The text forms of booleans, numbers, lists and networks.

use ipnet::IpNet;
use std::net::IpAddr;

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
