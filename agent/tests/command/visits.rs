//! How often a command enters the network namespace of a pod, and dumps its addresses.

use crate::ambient_ebpf::Scene;
use crate::support::{TempFile, config, lo_up, path};
use serde_json::json;
use std::process::Command;

/// Runs `weir` with `strace`; returns the number of entries and of dumps.
fn counted(args: &[&str], bpffs: &str) -> (usize, usize) {
    let record = TempFile::new("");
    let traced = Command::new("strace")
        .args(["-f", "-qq", "-s", "64", "-e", "signal=none"])
        .args(["-e", "trace=setns,sendto,sendmsg", "-o", record.path()])
        .arg(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .env("WEIR_BPFFS", bpffs)
        .output()
        .expect("strace is needed for this test");
    let calls = std::fs::read_to_string(record.path()).unwrap();
    assert!(traced.status.success(), "{args:?}: {traced:?} {calls}");
    let count = |words: &[&str]| {
        let has = |line: &&str| words.iter().any(|word| line.contains(word));
        calls.lines().filter(has).count()
    };
    // strace prints the number if it cannot determine the protocol of the socket, which is in another namespace.
    (
        count(&["setns("]),
        count(&["RTM_GETADDR", "nlmsg_type=0x16 "]),
    )
}

#[test]
fn a_sidecar_takes_one_visit() {
    let netns = weir_testing::namespace_or_skip!();
    lo_up(&netns);
    let (at, file) = (path(&netns), config(&json!({ "enable_ipv6": true })));
    let of = |verb| {
        let args = [verb, "sidecar", "--config", file.path(), "--netns", &at];
        counted(&args, "/nonexistent")
    };
    // The address for IPv6 is read back after it is added.
    assert_eq!(of("apply"), (1, 2));
    assert_eq!(of("apply"), (1, 1));
    assert_eq!(of("verify"), (1, 1));
}

/// Programs and hindrances take one visit, and the removal of netfilter rules another one. Entries before it look for programs that are
/// pinned elsewhere and, where there are pins, for the cookie of the namespace.
// matrix: newest
#[test]
fn programs_take_one_visit() {
    let Some(scene) = Scene::new() else {
        return;
    };
    let (at, file) = (path(&scene.netns), scene.request());
    let entries = |verb, engine| {
        let args = [verb, "ambient", "--config", file, "--netns", &at];
        counted(&[&args[..], &["--engine", engine]].concat(), scene.bpffs()).0
    };
    entries("apply", "nft");
    assert_eq!(entries("apply", "ebpf"), 3);
    assert_eq!(entries("apply", "ebpf"), 3);
    assert_eq!(entries("verify", "ebpf"), 3);
}
