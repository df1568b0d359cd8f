//! Ports, user and group ids, interface names: typed values of list elements.

use super::{InputError, names, text};
use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

/// A range of ports, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortRange(pub RangeInclusive<u16>);

/// A range of user or group ids, both ends included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdRange(pub RangeInclusive<u32>);

/// An interface name, 1 to 15 bytes (`IFNAMSIZ` less the terminating zero).
///
/// The two engines have different wildcards, and each treats the other's as an ordinary character: `eth*` is a prefix
/// in nf_tables and a name in xtables, `eth+` the reverse. So the text stays unchanged until it is compiled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceName(String);

/// Maximum user or group id: `(uid_t) -1` means "no id" in the kernel's interfaces.
pub(crate) const MAX_ID: u32 = u32::MAX - 1;

/// Parses a list of ids, and of names that are looked up in `file`; `field` names its source in errors.
///
/// # Errors
/// An element is invalid; the error names it, the reason and the accepted values.
pub fn ids(field: &str, list: &str, file: &Path) -> Result<Vec<IdRange>, InputError> {
    let elements = text::elements(list);
    elements.map(|element| id(field, element, file)).collect()
}

/// Parses a list element that holds ids, or a name.
fn id(field: &str, element: &str, file: &Path) -> Result<IdRange, InputError> {
    let accepted = || {
        format!(
            "a number 0-{MAX_ID}, a range LOW-HIGH, or a name in {}",
            file.display()
        )
    };
    let error = |reason: &str| Err(InputError::value(field, element, reason, accepted()));
    if element == "*" {
        return error("stands for all users or groups only when it is the whole list");
    }
    let numeric = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (first, last) = match element.split_once('-') {
        Some((first, last)) if numeric(first) && numeric(last) => (first, last),
        _ if numeric(element) => (element, element),
        _ => {
            return match names::lookup(file, element)? {
                Some(id) => Ok(IdRange(id..=id)),
                None => error("is neither a number nor a known name"),
            };
        }
    };
    match (text::decimal::<u32>(first), text::decimal::<u32>(last)) {
        (Some(first), Some(last)) if first <= last && last <= MAX_ID => Ok(IdRange(first..=last)),
        (Some(first), Some(last)) if first > last => {
            error("is a range whose end is below its start")
        }
        _ => error("is too large"),
    }
}

impl InterfaceName {
    /// Parses a list element that holds an interface name; `field` names its source in errors.
    ///
    /// # Errors
    /// No interface can have this name.
    pub fn parse(field: &str, element: &str) -> Result<Self, InputError> {
        let reason = if element.is_empty() || element.len() > 15 {
            "does not have 1 to 15 bytes"
        } else if element.contains('/') || element.contains(char::is_whitespace) {
            "contains a slash or a blank"
        } else if element.contains('\0') {
            "contains a zero byte"
        } else if element == "*" {
            "is a wildcard without anything before it"
        } else {
            return Ok(Self(element.to_owned()));
        };
        let accepted =
            "an interface name, or its beginning with * (nf_tables) or + (xtables) behind it";
        Err(InputError::value(field, element, reason, accepted))
    }

    /// Returns the text as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_elements() {
        let file = std::env::temp_dir().join(format!("weir-group-{}", std::process::id()));
        std::fs::write(&file, "root:x:0:\nmy-web-1:x:77:\nbad:x:no:\n").unwrap();
        let of = |element| id("f", element, &file);
        assert_eq!(of("1337"), Ok(IdRange(1337..=1337)));
        assert_eq!(of("0-4294967294"), Ok(IdRange(0..=4_294_967_294)));
        assert_eq!(of("my-web-1"), Ok(IdRange(77..=77)));
        for (bad, words) in [
            ("*", "whole list"),
            ("nobody-here", "known name"),
            ("bad", "known name"),
            ("4294967295", "too large"),
            ("9-1", "below its start"),
            ("99999999999", "too large"),
        ] {
            let error = of(bad).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(of("my-web-1").is_err(), "a missing file knows no names");
        assert_eq!(of("3"), Ok(IdRange(3..=3)));
    }

    #[test]
    fn interface_elements() {
        for good in ["eth0", "eth+", "eth*", "+", "a", "fifteen-bytes-x"] {
            assert_eq!(InterfaceName::parse("f", good).unwrap().as_str(), good);
        }
        for bad in ["", "sixteen-bytes-xx", "a/b", "a b", "a\tb", "*", "a\0"] {
            assert!(InterfaceName::parse("f", bad).is_err(), "{bad:?}");
        }
    }
}
