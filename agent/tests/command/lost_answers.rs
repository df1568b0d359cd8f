//! An exchange with the kernel fails in the middle, once at every call: the message of `apply` agrees with the state of the namespace, and
//! the next run repairs it.
//!
//! `strace` injects the failures. It does not execute the system call, so after a commit the answer is lost.

use crate::support::{inside, path, tproxy, weir};
use std::process::Command;
use weir_netlink::Netns;

/// Everything that a redirection changes, without counters.
pub(crate) fn held(pod: &Netns) -> String {
    let rules = inside(pod, "nft", &["-s", "list", "ruleset"]);
    let legacy = ["iptables-legacy-save", "ip6tables-legacy-save"].map(|tool| {
        let saved = inside(pod, tool, &[]);
        let lines = saved.lines().filter(|l| l.starts_with("-A"));
        lines.map(|l| format!("{l}\n")).collect::<String>()
    });
    let routing = [
        "-6 address show dev lo",
        "-4 rule",
        "-6 rule",
        "-4 route show table all type local default",
        "-6 route show table all type local default",
    ];
    let words = |l: &str| inside(pod, "ip", &l.split_whitespace().collect::<Vec<_>>());
    rules + &legacy.concat() + &routing.map(words).concat()
}

/// Runs `weir apply` while calls `n..=n + more` of these system calls fail in each thread. Returns whether one failed, the exit code and
/// the error.
fn apply(
    calls: &str,
    error: &str,
    (n, more): (usize, usize),
    args: &[&str],
) -> (bool, i32, String) {
    let inject = format!("inject={calls}:error={error}:when={n}..{}", n + more);
    let out = Command::new("strace")
        .args(["-f", "-qq", "-e", &format!("trace={calls}"), "-e", &inject])
        .args(["-o", "/dev/stdout", env!("CARGO_BIN_EXE_weir")])
        .args(args)
        .output()
        .expect("strace is needed here");
    let trace = String::from_utf8_lossy(&out.stdout);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    let code = out.status.code().expect("ended by a signal");
    (trace.contains("(INJECTED)"), code, text)
}

fn each(engine: &str, calls: &str, error: &str) {
    each_of(engine, calls, error, 0);
}

/// Lets `more` further calls fail after the first one.
fn each_of(engine: &str, calls: &str, error: &str, more: usize) {
    let file = tproxy();
    let args = |ns: &str| {
        let words = [
            "apply",
            "sidecar",
            "--config",
            file.path(),
            "--engine",
            engine,
            "--netns",
            ns,
        ];
        words.map(str::to_owned)
    };
    let pod = legacy_pod_or_skip!();
    let untouched = held(&pod);
    assert_eq!(
        weir(&args(&path(&pod)).each_ref().map(String::as_str)).code,
        0
    );
    let complete = held(&pod);
    assert_ne!(untouched, complete);
    for n in 1.. {
        let pod = legacy_pod_or_skip!();
        let args = args(&path(&pod));
        let args = args.each_ref().map(String::as_str);
        let (injected, code, text) = apply(calls, error, (n, more), &args);
        let told = format!("{engine}, {error} at {calls} {n}: exit code {code}: {text}");
        let now = held(&pod);
        let is_complete = code == 0 || text.contains("is in force with its routing");
        assert!(
            code == 0 || !is_complete,
            "nothing was there before: {told}"
        );
        let expected = if is_complete { &complete } else { &untouched };
        assert_eq!(&now, expected, "{told}");
        assert!(code == 0 || !text.contains("it is not known"), "{told}");
        assert_eq!(weir(&args).code, 0, "{told}");
        assert_eq!(held(&pod), complete, "{told}");
        if !injected {
            assert!(n > 5, "nothing was injected: {told}");
            return;
        }
    }
}

#[test]
fn a_lost_answer_leaves_all_or_nothing_in_nf_tables() {
    each("nft", "recvmsg,recvfrom", "ENOBUFS");
}

#[test]
fn a_lost_answer_leaves_all_or_nothing_in_legacy_tables() {
    each(
        "xtables",
        "recvmsg,recvfrom,getsockopt,setsockopt",
        "ENOMEM",
    );
}

/// Weir cannot send the request: once, so that a second attempt succeeds, and twice in a row.
#[test]
fn a_request_that_fails_leaves_the_namespace_as_it_was() {
    for engine in ["nft", "xtables"] {
        for more in [0, 1] {
            each_of(engine, "sendto,sendmsg", "EIO", more);
        }
    }
}

/// Weir cannot remove the rules of the other engine: the new rules stay, and the error reports it.
#[test]
fn older_rules_that_stay_beside_the_new_ones_are_named() {
    let file = tproxy();
    let mut named = 0;
    for n in 1.. {
        let pod = legacy_pod_or_skip!();
        let ns = path(&pod);
        let on = |engine: &'static str| {
            let words = ["apply", "sidecar", "--config", file.path(), "--netns"];
            [&words[..], &[ns.as_str(), "--engine", engine]].concat()
        };
        assert_eq!(weir(&on("xtables")).code, 0);
        let (injected, code, text) = apply("getsockopt", "EIO", (n, 9), &on("nft"));
        let told = format!("getsockopt {n}: exit code {code}: {text}");
        let legacy =
            inside(&pod, "iptables-legacy-save", &[]) + &inside(&pod, "ip6tables-legacy-save", &[]);
        let stays = legacy.lines().any(|l| l.starts_with("-A"));
        let is_in_force = !inside(&pod, "nft", &["list", "tables"]).is_empty();
        assert!(stays || is_in_force, "{told}");
        if code != 0 && is_in_force {
            assert!(text.contains("older rules in legacy tables"), "{told}");
            named += 1;
        }
        assert!(code != 0 || !stays, "{told}");
        assert_eq!(weir(&on("nft")).code, 0, "{told}");
        if !injected {
            break;
        }
    }
    assert!(named > 0, "no failure came after the commit");
}

/// From one call on every call fails, so that weir can neither undo nor read anything: the error names what may be left.
#[test]
fn what_may_be_left_is_named_where_nothing_can_be_read() {
    let file = tproxy();
    let mut named = 0;
    for engine in ["nft", "xtables"] {
        for n in 1.. {
            let pod = legacy_pod_or_skip!();
            let ns = path(&pod);
            let on = ["apply", "sidecar", "--config", file.path(), "--netns", &ns];
            let args = [&on[..], &["--engine", engine]].concat();
            let calls = "recvmsg,recvfrom,setsockopt";
            let (injected, code, text) = apply(calls, "ENOBUFS", (n, 10_000), &args);
            let told = format!("{engine}, from call {n} on: exit code {code}: {text}");
            let now = held(&pod);
            let is_kept = text.contains("its routing") || code == 0;
            for (item, name) in [
                ("::6/128", "address delete"),
                ("lookup 133", "rule delete"),
                ("table 133", "route delete"),
            ] {
                if now.contains(item) && !is_kept {
                    assert!(text.contains(name), "{name}: {told}");
                    named += 1;
                }
            }
            assert_eq!(weir(&args).code, 0, "{told}");
            if !injected {
                break;
            }
        }
    }
    assert!(named > 0, "nothing was left");
}
