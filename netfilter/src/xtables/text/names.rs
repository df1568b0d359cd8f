//! Abbreviated long options: `--to-port` is `--to-ports` unless another option has this prefix.
//!
//! iptables parses options with `getopt_long(3)`: an exact name has precedence over the only name with the given prefix. The names are
//! those of iptables itself, and of the matches and the target that precede the option in the line.

use super::options::{Complaint, complain};
use super::words::Word;
use crate::xtables::XtFamily;

/// The long options of `iptables` and `ip6tables` themselves, with their short options or `""`. All are listed,
/// because each may make an abbreviation ambiguous.
const OWN: [(&str, &str); 34] = [
    ("--append", "-A"),
    ("--check", "-C"),
    ("--delete", "-D"),
    ("--delete-chain", "-X"),
    ("--destination", "-d"),
    ("--dst", "-d"),
    ("--exact", "-x"),
    ("--flush", "-F"),
    ("--goto", "-g"),
    ("--help", "-h"),
    ("--in-interface", "-i"),
    ("--insert", "-I"),
    ("--ipv4", "-4"),
    ("--ipv6", "-6"),
    ("--jump", "-j"),
    ("--line-numbers", ""),
    ("--list", "-L"),
    ("--list-rules", "-S"),
    ("--match", "-m"),
    ("--modprobe", "-M"),
    ("--new-chain", "-N"),
    ("--numeric", "-n"),
    ("--out-interface", "-o"),
    ("--policy", "-P"),
    ("--protocol", "-p"),
    ("--rename-chain", "-E"),
    ("--replace", "-R"),
    ("--set-counters", "-c"),
    ("--source", "-s"),
    ("--src", "-s"),
    ("--table", "-t"),
    ("--verbose", "-v"),
    ("--wait", "-w"),
    ("--zero", "-Z"),
];

/// The option for fragments, which ip6tables does not have.
const FRAGMENTS: (&str, &str) = ("--fragments", "-f");

/// Options of targets that the kernel supports and iptables 1.8.9 lacks. weir accepts their full names, and no abbreviation of them.
const ONLY_WHOLE: [(&str, &str); 4] = [
    ("REDIRECT", "--random-fully"),
    ("REDIRECT", "--persistent"),
    ("MASQUERADE", "--persistent"),
    ("DNAT", "--random-fully"),
];

/// The result of looking up a name or prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Exactly this name.
    One(&'static str),
    /// No name has the prefix.
    Nothing,
    /// Several names have the prefix.
    Many(Vec<&'static str>),
}

impl Found {
    /// The name, or `None`.
    ///
    /// # Errors
    /// Several names have the prefix.
    pub(super) fn only(
        self,
        given: &str,
        column: usize,
    ) -> Result<Option<&'static str>, Complaint> {
        match self {
            Self::One(name) => Ok(Some(name)),
            Self::Nothing => Ok(None),
            Self::Many(names) => Err(complain(
                column,
                format!(
                    "{given} may be {}; write the whole name",
                    names.join(" or ")
                ),
            )),
        }
    }
}

/// Looks up a name or prefix.
pub(super) fn find(given: &str, names: impl Iterator<Item = &'static str>) -> Found {
    // "--" alone is a prefix of all names and ends the options.
    if given.len() < 3 || !given.starts_with("--") {
        return Found::Nothing;
    }
    let mut found: Vec<&'static str> = Vec::new();
    for name in names.filter(|name| name.starts_with(given)) {
        if name == given {
            return Found::One(name);
        }
        if !found.contains(&name) {
            found.push(name);
        }
    }
    match found.as_slice() {
        [] => Found::Nothing,
        [name] => Found::One(name),
        _ => Found::Many(found),
    }
}

/// Whether `given` may be an abbreviation of this option of a match or target.
pub(super) fn may_be(given: &str, extension: &str, option: &str) -> bool {
    given == option || !ONLY_WHOLE.contains(&(extension, option))
}

/// The long options of `iptables` or `ip6tables` itself.
pub(super) fn own(family: XtFamily) -> impl Iterator<Item = &'static str> {
    let fragments = (family == XtFamily::Ip).then_some(FRAGMENTS);
    OWN.into_iter().chain(fragments).map(|(long, _)| long)
}

/// The short option for a long option of iptables itself; the same name for an option of an extension.
pub(super) fn short(name: &str) -> &str {
    let mut all = OWN.iter().chain([&FRAGMENTS]);
    match all.find(|(long, _)| *long == name) {
        Some((_, short)) if !short.is_empty() => short,
        _ => name,
    }
}

/// The family to which a word (`-4`, `--ipv6`) restricts its line, in a text for both iptables and ip6tables.
pub(super) fn family(word: &Word) -> Option<XtFamily> {
    match short(&word.text) {
        "-4" => Some(XtFamily::Ip),
        "-6" => Some(XtFamily::Ip6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_by_what_only_it_begins_with() {
        let of = |given| find(given, own(XtFamily::Ip));
        assert_eq!(of("--append"), Found::One("--append"));
        assert_eq!(of("--app"), Found::One("--append"));
        // An exact name has precedence over a longer one.
        assert_eq!(of("--delete"), Found::One("--delete"));
        assert_eq!(
            of("--delet"),
            Found::Many(vec!["--delete", "--delete-chain"])
        );
        assert_eq!(of("--in"), Found::Many(vec!["--in-interface", "--insert"]));
        assert_eq!(of("--frag"), Found::One("--fragments"));
        assert_eq!(find("--frag", own(XtFamily::Ip6)), Found::Nothing);
        for none in ["--", "-A", "append", "--appendix", ""] {
            assert_eq!(of(none), Found::Nothing, "{none}");
        }
        let twice = find("--dpo", ["--dport", "--dport"].into_iter());
        assert_eq!(twice, Found::One("--dport"));
    }

    #[test]
    fn own_names_have_their_short_ones() {
        assert_eq!(short("--append"), "-A");
        assert_eq!(short("--fragments"), "-f");
        assert_eq!(short("--line-numbers"), "--line-numbers");
        assert_eq!(short("--dport"), "--dport");
        assert_eq!(short("-A"), "-A");
    }
}
