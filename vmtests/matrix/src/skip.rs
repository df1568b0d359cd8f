//! The message of a test that does not run, and the check whether the skip is allowed.
//!
//! A test that finds that the kernel lacks something prints one line and returns:
//!
//! ```text
//! skipped: expression socket cgroupv2 (since 5.13): Operation not supported
//! ```
//!
//! The line names the probed feature, the first kernel that must have it, and the error of the kernel. A line without
//! `(since ...)` is about the user or the machine instead of the kernel.

use serde::{Deserialize, Serialize};

/// A kernel version: the two numbers that determine its features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

impl Version {
    /// The first two numbers of `uname -r`, or of `5.13`.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers = text.split(|c: char| !c.is_ascii_digit());
        let mut numbers = numbers.map(|n| n.parse().ok());
        Some(Self(numbers.next()??, numbers.next()??))
    }
}

/// The message of a test that does not run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Skip {
    /// The probed feature, in the terms of `weir preflight`; empty if the kernel is not the reason.
    pub probe: String,
    /// The first kernel that must have it (`5.13`); empty if the kernel is not the reason.
    pub since: String,
    /// The error of the kernel, or another reason.
    pub reason: String,
}

impl Skip {
    /// Finds all such lines in a test's output.
    pub fn all(output: &str) -> Vec<Self> {
        output.lines().filter_map(Self::parse).collect()
    }

    fn parse(line: &str) -> Option<Self> {
        // The test harness writes "test NAME ... " without a line end before the output of the test.
        let line = match line.split_once(" ... ") {
            Some((test, rest)) if test.starts_with("test ") => rest,
            _ => line,
        };
        let text = line.strip_prefix("skip")?;
        let text = text.strip_prefix("ped").unwrap_or(text);
        // "skipped, the eBPF part: ..." is a skip, too.
        if !text.starts_with([':', ',']) {
            return None;
        }
        let text = text.trim_start_matches([':', ',']).trim();
        let full = || {
            let (probe, rest) = text.split_once(" (since ")?;
            let (since, reason) = rest.split_once("):")?;
            Version::parse(since).map(|_| (probe, since, reason.trim()))
        };
        let (probe, since, reason) = full().unwrap_or(("", "", text));
        Some(Self {
            probe: probe.to_owned(),
            since: since.to_owned(),
            reason: reason.to_owned(),
        })
    }

    /// The reason if a guest with this kernel must not skip the feature; `taken` are the probes that a variant omits.
    pub fn objection(&self, kernel: Version, taken: &[String]) -> Option<String> {
        if self.probe.is_empty() {
            let why = "it did not run, and names no feature that the kernel lacks: here it has all rights, so \
                 something is missing in the guest";
            return Some(why.to_owned());
        }
        if taken.iter().any(|t| self.probe.starts_with(&**t)) {
            return None;
        }
        let (since, Version(major, minor)) = (&self.since, kernel);
        let why = || format!("every kernel since {since} has it, and this one is {major}.{minor}");
        (kernel >= Version::parse(since)?).then(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_wherever_the_harness_puts_them() {
        let output = "running 1 test\ntest a::b ... skipped: expression last (since 5.14): EOPNOTSUPP: no\n\
                      skipped: no root\nskip: WEIR_GOLDEN does not name it\nskipped, the eBPF part: no rights\n\
                      we skipped: nothing\nskipping\nok\n";
        let skips = Skip::all(output);
        let reasons: Vec<_> = skips.iter().map(|s| s.reason.as_str()).collect();
        assert_eq!(
            reasons,
            [
                "EOPNOTSUPP: no",
                "no root",
                "WEIR_GOLDEN does not name it",
                "the eBPF part: no rights"
            ]
        );
        assert_eq!(skips[0].probe, "expression last");
        assert_eq!(skips[0].since, "5.14");
        assert_eq!(skips[1].probe, "");
    }

    #[test]
    fn a_skip_is_in_order_only_below_its_kernel_or_where_a_variant_took_the_feature() {
        let skip = &Skip::all("skipped: expression last (since 5.14): EOPNOTSUPP")[0];
        assert_eq!(skip.objection(Version(5, 10), &[]), None);
        assert!(skip.objection(Version(5, 14), &[]).is_some());
        assert!(skip.objection(Version(6, 1), &["table".into()]).is_some());
        assert_eq!(skip.objection(Version(6, 1), &["expression".into()]), None);
        let bare = &Skip::all("skipped: for no reason")[0];
        assert!(bare.objection(Version(5, 10), &[]).is_some());
        // A line without a valid version has no probe.
        let odd = &Skip::all("skipped: it (since ever): no")[0];
        assert!(odd.objection(Version(5, 10), &[]).is_some());
    }

    #[test]
    fn versions() {
        assert_eq!(
            Version::parse("6.12.117+deb13-cloud-amd64"),
            Some(Version(6, 12))
        );
        assert_eq!(Version::parse("7.3-rc7"), Some(Version(7, 3)));
        assert!(Version(6, 1) < Version(6, 12));
        assert_eq!(Version::parse("six"), None);
    }
}
