//! Versions of the CNI specification.

use std::fmt;

/// All versions that the plugin supports, oldest first.
pub const SUPPORTED: [&str; 7] = [
    "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
];

/// The newest version that the plugin supports.
pub const IMPLEMENTED: &str = "1.1.0";

/// A version as a comparable value: `major.minor.micro`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub micro: u32,
}

impl Version {
    /// The first version with CHECK, and with `prevResult` for DEL.
    pub const V0_4_0: Self = Self {
        major: 0,
        minor: 4,
        micro: 0,
    };
    /// The first version with GC and STATUS.
    pub const V1_1_0: Self = Self {
        major: 1,
        minor: 1,
        micro: 0,
    };

    /// Parses a version such as `1.0.0`; missing numbers are zero. Empty text is `0.1.0`, the version of a configuration
    /// that states none.
    ///
    /// Returns `None` for anything except one to three decimal numbers separated by dots.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self {
                major: 0,
                minor: 1,
                micro: 0,
            });
        }
        let mut parts = text.split('.');
        let mut next = |must: bool| match parts.next() {
            None if must => None,
            None => Some(0),
            Some(part) if part.bytes().all(|b| b.is_ascii_digit()) => part.parse().ok(),
            Some(_) => None,
        };
        let version = Self {
            major: next(true)?,
            minor: next(false)?,
            micro: next(false)?,
        };
        parts.next().is_none().then_some(version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// True if the plugin supports exactly this version.
#[must_use]
pub fn is_supported(version: &str) -> bool {
    SUPPORTED.contains(&version)
}

/// True if results of both versions have the same form: 0.1-0.2, 0.3-0.4, 1.0-1.1. False if one of them is not
/// supported.
pub(crate) fn same_family(a: &str, b: &str) -> bool {
    matches!((family(a), family(b)), (Some(x), Some(y)) if x == y)
}

/// The form of results in a supported version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// 0.1.0 and 0.2.0: `ip4` and `ip6`.
    V020,
    /// 0.3.0 to 0.4.0: `ips` with `version`, `dns` always.
    V040,
    /// 1.0.0 and 1.1.0.
    V100,
}

pub(crate) fn family(version: &str) -> Option<Family> {
    match version {
        "0.1.0" | "0.2.0" => Some(Family::V020),
        "0.3.0" | "0.3.1" | "0.4.0" => Some(Family::V040),
        "1.0.0" | "1.1.0" => Some(Family::V100),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_numeric() {
        let v = |text| Version::parse(text).unwrap();
        assert!(v("0.10.0") > v("0.4.0"));
        assert!(v("1.0.0") < Version::V1_1_0);
        assert_eq!(v(""), v("0.1.0"));
        assert_eq!(v("1"), v("1.0.0"));
    }

    #[test]
    fn nonsense_is_not_a_version() {
        for text in ["x", "1.x", "1.0.0.0", "-1.0.0", "1..0", "+1", "."] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn families() {
        assert!(same_family("0.3.1", "0.4.0"));
        assert!(!same_family("0.4.0", "1.0.0"));
        assert!(!same_family("9.9.9", "9.9.9"));
        assert!(SUPPORTED.iter().all(|v| family(v).is_some()));
    }
}
