//! Namespaces and the real `nft`.

pub mod ipset;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use weir_netfilter::nft::{NftApplied, NftEngine, Ruleset, Snapshot, TableId};
use weir_netlink::Netns;
pub use weir_testing::tool::tool;

/// Prints the reason and ends the test if a single datagram cannot hold the ruleset.
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

/// The length of the batch that applies the ruleset.
pub fn bytes_of(ns: &Netns, ruleset: &Ruleset) -> usize {
    let owned = owned_of(ruleset);
    let batch = ns.run(|| NftEngine::open().unwrap().drift(ruleset, &owned));
    batch.unwrap().unwrap().to_bytes().unwrap().len()
}

/// The reason why a socket of this process cannot send that many bytes at once, found by reserving the room.
///
/// `SO_SNDBUFFORCE` requires CAP_NET_ADMIN in the initial user namespace, and `SO_SNDBUF` is limited by `net.core.wmem_max`.
pub fn too_large(bytes: usize) -> Option<String> {
    let (socket, _) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let want = 2 * bytes;
    if setsockopt(&socket, sockopt::SndBufForce, &want).is_ok() {
        return None;
    }
    setsockopt(&socket, sockopt::SndBuf, &want).unwrap();
    // netlink_sendmsg() reserves 32 bytes. getsockopt() returns twice the requested size.
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

/// The complete ruleset, as this crate reads it.
pub fn read(ns: &Netns) -> Snapshot {
    ns.run(|| NftEngine::open().unwrap().read().unwrap())
        .unwrap()
}

/// The IDs of all tables of a ruleset.
pub fn owned_of(ruleset: &Ruleset) -> Vec<TableId> {
    ruleset
        .tables
        .iter()
        .map(|t| (t.family, t.name.clone()))
        .collect()
}

/// Applies a ruleset with this crate, which owns all its tables.
pub fn apply(ns: &Netns, ruleset: &Ruleset) -> weir_netlink::Result<NftApplied> {
    let owned = owned_of(ruleset);
    ns.run(|| NftEngine::open().unwrap().apply(ruleset, &owned))
        .unwrap()
}

/// Without the remaining times, which differ between two listings.
pub fn timeless(text: &str) -> String {
    let mut words = Vec::new();
    for line in text.lines() {
        let mut out = String::new();
        let mut skip = false;
        for word in line.split(' ') {
            if skip {
                skip = false;
                // Keeps the character that ends the element.
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

/// Asserts that texts are equal, and prints the lines that differ.
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

/// This crate reads what nft wrote and prints it as nft does; nft lists the same after this crate has written it.
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
    // A second apply has nothing to do.
    assert_eq!(apply(&ours, &snapshot.ruleset).unwrap().ops, vec![]);
}
