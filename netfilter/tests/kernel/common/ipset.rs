//! The real `ipset`, and functions that make its listings comparable.

use crate::common::tool;
use weir_netfilter::ipset::restore::{ParseError, Parser, Statement};
use weir_netfilter::ipset::{Existing, IpsetEngine, Set};
use weir_netlink::Netns;

/// Ends the test if the kernel's sets do not support this option yet.
#[macro_export]
macro_rules! option_or_skip {
    ($option:literal, $value:literal, since $since:literal) => {
        let probe = weir_testing::namespace_or_skip!();
        let set = concat!("create x hash:ip ", $option, " ", $value, "\n");
        if let Err(e) = $crate::common::ipset::our_load(&probe, set) {
            assert!(
                matches!(e.kind, weir_netlink::ErrorKind::Unsupported(_)),
                "{e}"
            );
            return lacks::skip(concat!("ipset ", $option), $since, e);
        }
    };
}

/// Like `option_or_skip`, for the bucket size, which any listing may contain.
#[macro_export]
macro_rules! bucketsize_or_skip {
    () => {
        $crate::option_or_skip!("bucketsize", "4", since "5.11")
    };
}

/// Runs the real `ipset`.
pub fn ipset(ns: &Netns, args: &str, input: &str) -> Result<String, String> {
    let args: Vec<&str> = args.split_whitespace().collect();
    tool(ns, "ipset", &args, input)
}

/// Loads text with the real tool.
pub fn load(ns: &Netns, text: &str) {
    ipset(ns, "restore", text).unwrap_or_else(|e| panic!("ipset refuses:\n{text}\n{e}"));
}

/// `ipset save` by the real tool.
pub fn save(ns: &Netns) -> String {
    ipset(ns, "save", "").unwrap()
}

/// Calls `f` with an engine in the namespace.
pub fn engine<T: Send>(ns: &Netns, f: impl FnOnce(&mut IpsetEngine) -> T + Send) -> T {
    ns.run(|| f(&mut IpsetEngine::open().unwrap())).unwrap()
}

/// The text of `ipset save`, written by this crate.
pub fn our_save(ns: &Netns) -> String {
    engine(ns, |e| {
        let mut out = Vec::new();
        e.save(None, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    })
}

/// Executes the text of `ipset restore` with this crate.
pub fn our_load(ns: &Netns, text: &str) -> weir_netlink::Result<()> {
    engine(ns, |e| e.restore(text, Existing::Refuse).map(|_| ()))
}

/// The commands of a text for a namespace without sets.
pub fn statements(text: &str) -> Result<Vec<Statement>, ParseError> {
    let mut parser = Parser::default();
    let lines = text.lines();
    lines.filter_map(|l| parser.line(l).transpose()).collect()
}

/// All sets, as this crate reads them.
pub fn sets(ns: &Netns) -> Vec<Set> {
    engine(ns, |e| {
        e.list(None).unwrap().into_iter().map(|l| l.set).collect()
    })
}

/// Replaces the remaining timeout of each entry by `T`.
pub fn timeless(text: &str) -> String {
    let line = |line: &str| {
        let Some((before, after)) = line
            .split_once(" timeout ")
            .filter(|_| line.starts_with("add "))
        else {
            return line.to_owned();
        };
        let (seconds, rest) = after.split_once(' ').map_or((after, ""), |(s, r)| (s, r));
        let seconds = if seconds == "0" { "0" } else { "T" };
        format!("{before} timeout {seconds} {rest}")
            .trim_end()
            .to_owned()
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The lines, sorted.
pub fn sorted(text: &str) -> String {
    let mut lines: Vec<String> = timeless(text).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// The text without what depends on the seed of a set.
///
/// Each set has its own seed, which determines where elements collide, and so when the hash table grows.
pub fn seedless(text: &str) -> String {
    let text = sorted(text);
    let words = text.split(' ');
    let mut after = "";
    let kept = words.filter(|w| {
        let of_the_seed = matches!(after, "initval" | "hashsize");
        after = w;
        !of_the_seed
    });
    sorted(&kept.collect::<Vec<_>>().join(" "))
}
