//! Namespaces and the real `nft`, for tests only.

pub mod ipset;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use weir_netfilter::nft::{NftApplied, NftEngine, Ruleset, Snapshot, TableId};
use weir_netlink::Netns;
pub use weir_testing::tool::tool;

/// Ends the test with a printed reason where one datagram cannot hold what a ruleset takes.
#[macro_export]
macro_rules! fits_or_skip {
    ($ns:expr, $ruleset:expr) => {
        let bytes = $crate::common::bytes_of($ns, $ruleset);
        if let Some(reason) = $crate::common::too_large(bytes) {
            eprintln!("skipped: {reason}");
            return;
        }
    };
}

/// How long the batch is that applies this.
pub fn bytes_of(ns: &Netns, ruleset: &Ruleset) -> usize {
    let owned = owned_of(ruleset);
    let batch = ns.run(|| NftEngine::open().unwrap().drift(ruleset, &owned));
    batch.unwrap().unwrap().to_bytes().unwrap().len()
}

/// Why a socket of this process cannot send that many bytes at once, by asking for the room: `SO_SNDBUFFORCE`
/// needs CAP_NET_ADMIN in the first user namespace, and `SO_SNDBUF` gets what `net.core.wmem_max` allows.
pub fn too_large(bytes: usize) -> Option<String> {
    let (socket, _) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let want = 2 * bytes;
    if setsockopt(&socket, sockopt::SndBufForce, &want).is_ok() {
        return None;
    }
    setsockopt(&socket, sockopt::SndBuf, &want).unwrap();
    // netlink_sendmsg() keeps 32 bytes back. The kernel answers with twice what was asked for.
    let room = getsockopt(&socket, sockopt::SndBuf).unwrap() - 32;
    (bytes > room).then(|| {
        format!(
            "a batch of {bytes} bytes, and a socket may send {room}: SO_SNDBUFFORCE is refused here, and \
             net.core.wmem_max is the limit"
        )
    })
}

/// Loads text with the real `nft`.
pub fn load(ns: &Netns, text: &str) {
    tool(ns, "nft", &["-f", "-"], text).unwrap_or_else(|e| panic!("nft refuses:\n{text}\n{e}"));
}

/// `nft list ruleset`
pub fn list(ns: &Netns) -> String {
    tool(ns, "nft", &["list", "ruleset"], "").unwrap()
}

/// Our reading of everything.
pub fn read(ns: &Netns) -> Snapshot {
    ns.run(|| NftEngine::open().unwrap().read().unwrap())
        .unwrap()
}

/// Every table of a ruleset.
pub fn owned_of(ruleset: &Ruleset) -> Vec<TableId> {
    ruleset
        .tables
        .iter()
        .map(|t| (t.family, t.name.clone()))
        .collect()
}

/// Our apply; every table of the ruleset is ours.
pub fn apply(ns: &Netns, ruleset: &Ruleset) -> weir_netlink::Result<NftApplied> {
    let owned = owned_of(ruleset);
    ns.run(|| NftEngine::open().unwrap().apply(ruleset, &owned))
        .unwrap()
}

/// Without the times that pass between two listings.
pub fn timeless(text: &str) -> String {
    let mut words = Vec::new();
    for line in text.lines() {
        let mut out = String::new();
        let mut skip = false;
        for word in line.split(' ') {
            if skip {
                skip = false;
                // Keeps what closes the element.
                if word.ends_with(',') {
                    out.push(',');
                }
                continue;
            }
            if word == "expires" {
                skip = true;
                continue;
            }
            if !out.is_empty() {
                out.push(' ');
            }
            out += word;
        }
        words.push(out);
    }
    words.join("\n")
}

/// Equal texts, or the lines that differ.
#[track_caller]
pub fn assert_text(got: &str, want: &str) {
    if got == want {
        return;
    }
    let (got, want): (Vec<_>, Vec<_>) = (got.lines().collect(), want.lines().collect());
    for l in want.iter().filter(|l| !got.contains(l)) {
        eprintln!("- {l}");
    }
    for l in got.iter().filter(|l| !want.contains(l)) {
        eprintln!("+ {l}");
    }
    panic!("the listings differ (- expected, + found)");
}

/// We read what nft wrote and print it as nft does; nft lists what we write from that, the same.
pub fn both_ways(text: &str) {
    let theirs = weir_testing::namespace_or_skip!();
    load(&theirs, text);
    let listing = list(&theirs);
    let snapshot = read(&theirs);
    assert_text(
        &timeless(&snapshot.ruleset.to_string()),
        &timeless(&listing),
    );
    let ours = weir_testing::namespace_or_skip!();
    let applied = apply(&ours, &snapshot.ruleset).unwrap();
    assert!(!applied.ops.is_empty());
    assert_text(&timeless(&list(&ours)), &timeless(&listing));
    // Nothing is left to do.
    assert_eq!(apply(&ours, &snapshot.ruleset).unwrap().ops, vec![]);
}
