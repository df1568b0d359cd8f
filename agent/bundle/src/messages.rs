//! The known content of weir's messages.
//!
//! A message mixes weir's words with outside text, such as a value from a configuration or the answer of a server. Both look
//! alike, so only recognized content stays: the phrases of weir's messages, the kernel's error
//! texts, and after them values of a closed format (numbers, addresses, namespaces, paths below standard
//! directories, names of pods). Everything else is left out, including complete foreign messages.
//!
//! Messages are searched for phrases, and not identified by event, because they come from files and from a running agent: both may
//! be of another version, and a log has no field for the parts of a message.

use super::secrets::CUT;
use std::net::IpAddr;
use std::path::Path;
use std::sync::LazyLock;
use weir_core::settings::TABLE;

/// The text between the values in weir's messages, one phrase per line. Words that are missing here are left out of a
/// report.
const PHRASES: &str = include_str!("phrases.txt");
/// The largest errno of Linux (`EHWPOISON`).
const ERRNO_MAX: i32 = 133;
/// Maximum number of digits of a port, count or errno: a longer number may be a secret.
const DIGITS: usize = 6;
/// Directories whose paths are kept. Below other directories, a name may be a secret.
const DIRECTORIES: [&str; 9] = [
    "/etc", "/host", "/opt", "/proc", "/run", "/sys", "/tmp", "/usr", "/var",
];
const PUNCTUATION: &str = ".,:;()";

/// Longest first, so that the first match is the longest.
static KNOWN: LazyLock<Vec<String>> = LazyLock::new(|| {
    let errors = (1..=ERRNO_MAX).map(|n| std::io::Error::from_raw_os_error(n).to_string());
    let settings = TABLE.iter().flat_map(|s| [s.env, s.flag]);
    let ours = PHRASES.lines().chain(settings).chain([CUT]);
    let ours = ours.filter(|p| !p.is_empty()).map(str::to_owned);
    let mut known: Vec<String> = ours.chain(errors).collect();
    known.sort_by_key(|p| std::cmp::Reverse(p.len()));
    known.dedup();
    known
});

/// Returns the message with every sequence of unknown words replaced by [`CUT`].
pub(super) fn known(message: &str) -> String {
    let (mut out, mut rest) = (String::new(), message);
    // The previous phrase, which a value may follow.
    let mut before = "";
    loop {
        let next = rest.trim_start();
        let is_spaced = next.len() < rest.len();
        let Some(first) = next.chars().next() else {
            return out;
        };
        let is_apart = is_spaced || out.is_empty() || out.ends_with(|c| PUNCTUATION.contains(c));
        let (text, length, kept) = match phrase(next).filter(|_| is_apart || out.ends_with(CUT)) {
            Some(phrase) => (phrase, phrase.len(), phrase),
            None if PUNCTUATION.contains(first) => {
                let length = first.len_utf8();
                (next.get(..length).unwrap_or_default(), length, before)
            }
            None => {
                let word = word(next);
                match is_value(word, before) && is_apart {
                    // Another phrase must precede the next value.
                    true => (word, word.len(), if before == "pod" { "" } else { before }),
                    false => (CUT, whole_word(next), ""),
                }
            }
        };
        if is_spaced && !out.is_empty() && !(text == CUT && out.ends_with(CUT)) {
            out.push(' ');
        }
        if text != CUT || !out.trim_end().ends_with(CUT) {
            out += text;
        }
        before = kept;
        rest = next.get(length..).unwrap_or_default();
    }
}

/// Returns the longest phrase at the beginning of the text that ends at a word boundary.
fn phrase(text: &str) -> Option<&'static str> {
    let fits = |phrase: &&String| {
        let rest = text.strip_prefix(phrase.as_str());
        let of_word = |c: char| c.is_alphanumeric() || "_-/=@".contains(c);
        rest.is_some_and(|rest| !rest.starts_with(of_word))
    };
    KNOWN.iter().find(fits).map(String::as_str)
}

/// Returns the text up to the next blank, without trailing punctuation.
fn word(text: &str) -> &str {
    let word = text.get(..whole_word(text)).unwrap_or_default();
    word.trim_end_matches(|c| PUNCTUATION.contains(c))
}

fn whole_word(text: &str) -> usize {
    text.find(char::is_whitespace).unwrap_or(text.len())
}

fn is_value(word: &str, before: &str) -> bool {
    if before.is_empty() {
        return false;
    }
    is_number(word)
        || word.parse::<IpAddr>().is_ok()
        || is_netns(word)
        || is_known_path(word)
        || matches!(word, "nft" | "legacy")
        || (before == "pod" || before.ends_with(" pod")) && is_pod(word)
}

fn is_number(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    (1..=DIGITS).contains(&digits) && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// True for `net:[4026531840]`, the format of `readlink /proc/PID/ns/net`.
fn is_netns(text: &str) -> bool {
    let inode = text.strip_prefix("net:[").and_then(|t| t.strip_suffix(']'));
    inode.is_some_and(|n| n.len() <= 10 && !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// True for a path of plain characters below a standard directory.
pub(super) fn is_known_path(text: &str) -> bool {
    let of_path = |c: char| c.is_ascii_alphanumeric() || "/_-.".contains(c);
    let path = Path::new(text);
    text.len() <= 255
        && text.chars().all(of_path)
        && DIRECTORIES.iter().any(|dir| path.starts_with(dir))
}

/// True for `NAMESPACE/NAME` in the characters of RFC 1123.
pub(super) fn is_pod(text: &str) -> bool {
    let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    let is_name = |name: &str| !name.is_empty() && name.len() <= 253 && name.chars().all(of_name);
    let parts = text.split_once('/');
    parts.is_some_and(|(namespace, name)| is_name(namespace) && is_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::time::Duration;
    use weir_core::journal::ambient::Event;
    use weir_core::journal::pod::{Cause, Contention, Healed, PodRef, Repair, Writer};

    #[test]
    fn what_is_ours_stays_and_what_is_not_goes() {
        for (message, wanted) in [
            (
                "the plugin is installed and in force",
                "the plugin is installed and in force",
            ),
            (
                "redirected by nft in net:[4026532947]: 27 changes, verified",
                "redirected by nft in net:[4026532947]: 27 changes, verified",
            ),
            (
                "ADD failed: pod shop/inv: annotation sidecar.istio.io/interceptionMode: \"S1\" is no interception mode; \
                 accepted: REDIRECT or TPROXY (code 999)",
                "ADD failed: pod shop/inv: annotation sidecar.istio.io/interceptionMode: (left out) is no interception \
                 mode; accepted: REDIRECT or TPROXY (code 999)",
            ),
            (
                "cannot write /host/opt/cni/bin/istio-cni: Permission denied (os error 13)",
                "cannot write /host/opt/cni/bin/istio-cni: Permission denied (os error 13)",
            ),
            ("pwd=S2", "(left out)"),
            ("the password is S3", "the (left out) is (left out)"),
            ("x --password S4 y", "(left out)"),
            ("pin 471100", "(left out)"),
            ("cannot read /x/S5: S6", "cannot read (left out)"),
            ("cannot read S7/missing", "cannot read (left out)"),
            ("is S8:missing", "is (left out)"),
            ("", ""),
        ] {
            assert_eq!(known(message), wanted, "{message}");
            assert_eq!(known(&known(message)), known(message), "twice: {message}");
        }
    }

    #[test]
    fn what_another_program_does_to_a_pod_stays() {
        let pod = PodRef {
            namespace: "shop".into(),
            name: "web".into(),
            uid: "S9".into(),
            version: "7".into(),
        };
        let by = Writer {
            pid: 4711,
            name: "nft".to_owned(),
        };
        let said = |event: Event| weir_core::journal::Event::from(event).to_string();
        for by in [Some(by.clone()), None] {
            let contention = said(Event::Contention(Contention {
                pod: pod.clone(),
                times: 6,
                pause: Duration::from_secs(30),
                by,
            }));
            assert_eq!(known(&contention), contention);
        }
        let failed = "the repair failed: cannot read /proc/7/ns/net: Permission denied (os error 13); it is retried";
        let later = "redirected by nft in net:[4026532947]: 27 changes, verified; it was changed while no agent watched it";
        for (summary, failed) in [(failed, true), (later, false)] {
            let healed = said(Event::Healed(Healed {
                pod: pod.clone(),
                repair: Repair {
                    first: "weir would S9".to_owned(),
                    differences: 2,
                    cause: Cause::Missing,
                    summary: summary.to_owned(),
                },
                by: Some(by.clone()),
                failed,
                is_new: true,
                notify: false,
            }));
            let wanted = format!(
                "pod shop/web was not captured as it should be, changed by process 4711 (nft): weir would (left out) \
                 ((left out) differences in all); {summary}"
            );
            assert_eq!(known(&healed), wanted);
        }
    }

    #[test]
    fn phrases_are_in_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut sources = String::new();
        for room in [
            "agent/bundle/src",
            "agent/src",
            "agent/command/src",
            "agent/reconcile/src",
            "agent/drift/src",
            "agent/show/src",
            "agent/core/src",
            "agent/install/src",
            "agent/preflight/src",
            "agent/rules/src",
            "agent/runner/src",
            "cni/src",
            "netfilter/src",
            "netlink/src",
        ] {
            read(&root.join(room), &mut sources);
        }
        let joined: Vec<&str> = sources.split("\\\n").collect();
        let joined: Vec<&str> = joined.iter().map(|line| line.trim_start()).collect();
        let sources = joined.concat();
        let phrases: BTreeSet<&str> = PHRASES.lines().collect();
        let gone: Vec<_> = phrases.iter().filter(|p| !sources.contains(**p)).collect();
        // A reworded message only loses a few words in a report.
        assert!(
            gone.len() * 20 < phrases.len(),
            "bring phrases.txt up to date: {gone:#?}"
        );
    }

    fn read(dir: &Path, into: &mut String) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, into);
            } else if path.extension().is_some_and(|e| e == "rs") {
                *into += &std::fs::read_to_string(path).unwrap();
            }
        }
    }
}
