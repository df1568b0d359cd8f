//! The closed formats of values that a report may contain from files of other authors. Free text has no such format, and neither has a
//! word that may be a key or a token.

use super::messages;
use std::net::IpAddr;
use std::path::{Component, Path};

/// Maximum length of a name.
const NAME: usize = 32;
/// `IFNAMSIZ` (linux/if.h) without the zero.
const INTERFACE: usize = 15;
/// Maximum length of a mixed sequence of letters and digits in a name. Longer sequences are hashes, keys and tokens.
const MIXED: usize = 12;
/// Maximum number of digits of a number.
const DIGITS: usize = 10;

/// The format of a configuration value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// IP addresses or networks, separated by commas.
    Address,
    /// `true` or `false`.
    Bool,
    /// A hardware address or GUID.
    Hardware,
    /// An interface name.
    Interface,
    /// A short name.
    Name,
    Number,
    /// An object or array; its elements are examined.
    Parts,
    /// A path of short names below a standard directory.
    Path,
    /// A plugin type.
    Plugin,
    /// Numbers separated by dots.
    Version,
    /// One of these words.
    Word(&'static [&'static str]),
}

impl Form {
    /// True if a value has this format, as text or as JSON.
    pub(super) fn fits(self, text: &str) -> bool {
        match self {
            Self::Address => text.split(',').all(is_address),
            Self::Bool => matches!(text, "true" | "false"),
            Self::Hardware => is_hardware(text),
            Self::Interface => text.len() <= INTERFACE && is_name(text),
            Self::Name => is_name(text),
            Self::Number => is_number(text),
            Self::Parts => false,
            Self::Path => is_path(text),
            Self::Plugin => is_name(text) && !text.contains(|c: char| c.is_ascii_uppercase()),
            Self::Version => text.len() <= NAME && text.split('.').all(is_number),
            Self::Word(words) => words.contains(&text),
        }
    }
}

/// True for a short name of plain characters that cannot contain a key or token.
pub(super) fn is_name(text: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let runs = text.split(|c: char| !c.is_ascii_alphanumeric());
    !text.is_empty()
        && text.len() <= NAME
        && text.chars().all(of_name)
        && !runs.into_iter().any(is_mixed)
}

fn is_mixed(run: &str) -> bool {
    let has = |of: fn(&u8) -> bool| run.as_bytes().iter().any(of);
    run.len() > MIXED && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    (1..=DIGITS).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

fn is_address(text: &str) -> bool {
    let (address, length) = text.split_once('/').unwrap_or((text, "0"));
    let length = length.parse::<u8>().is_ok_and(|length| length <= 128);
    length && address.parse::<IpAddr>().is_ok()
}

/// True for six, eight or twenty bytes as pairs of hexadecimal digits.
fn is_hardware(text: &str) -> bool {
    let mut bytes = text.split([':', '-']);
    let pairs = bytes.all(|b| b.len() == 2 && b.bytes().all(|b| b.is_ascii_hexdigit()));
    pairs && matches!(text.len(), 17 | 23 | 59)
}

fn is_path(text: &str) -> bool {
    let is_plain = |part: Component<'_>| match part {
        Component::Normal(name) => name.to_str().is_some_and(is_name),
        other => other == Component::RootDir,
    };
    messages::is_known_path(text) && Path::new(text).components().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_form_fits_and_nothing_else() {
        const MODES: Form = Form::Word(&["l2", "l3"]);
        for (form, good, bad) in [
            (
                Form::Address,
                &["10.0.0.1", "fd00::/64", "10.0.0.0/8,fd00::1"][..],
                &["x", "10.0.0.1/x", "10.0.0.1/200", ""][..],
            ),
            (Form::Bool, &["true", "false"], &["yes", "s3cret", ""]),
            (
                Form::Hardware,
                &["02:00:00:00:00:01"],
                &["0200", "02:00:00:00:00:0g", ""],
            ),
            (
                Form::Interface,
                &["eth0", "br-lan.100"],
                &["a-name-of-sixteen", "a/b", ""],
            ),
            (
                Form::Name,
                &["k8s-pod-network", "cbr0", "kube-system"],
                &[
                    "4f9d8e7a6b5c4d3e2f1a",
                    "AKIAIOSFODNN7EXAMPLE",
                    "a b",
                    "a@b",
                    "",
                ],
            ),
            (
                Form::Number,
                &["1500", "-1"],
                &["12345678901", "0x1", "1.5", "", "-"],
            ),
            (Form::Parts, &[], &["x", "1"]),
            (
                Form::Path,
                &["/etc/cni/net.d/calico-kubeconfig"],
                &["/root/x", "etc", "/etc/4f9d8e7a6b5c4d3e2f1a", "/etc/../x"],
            ),
            (Form::Plugin, &["bridge", "host-local"], &["Hunter2", "a/b"]),
            (Form::Version, &["1.0.0", "0.3.1"], &["v1", "1.", ""]),
            (MODES, &["l2"], &["l4"]),
        ] {
            for text in good {
                assert!(form.fits(text), "{form:?} {text:?}");
            }
            for text in bad {
                assert!(!form.fits(text), "{form:?} {text:?}");
            }
        }
    }
}
