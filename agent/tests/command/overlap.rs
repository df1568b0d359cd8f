//! Two commands run at once in one namespace.
//!
//! The first is stopped at each of its exchanges with the kernel, the second runs to its end, and the first continues. If both report
//! success, the complete result of one of them is in force. `strace` stops the first with `SIGSTOP` after the Nth of these system calls.

use crate::lost_answers::held;
use crate::rights::not_first_user_namespace;
use crate::support::{TempFile, config, inside, lo_up, path, tproxy, weir};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use weir_netlink::Netns;

/// System calls that read or change something in the kernel.
const CALLS: &str = "sendto,sendmsg,getsockopt,setsockopt";

/// Runs `weir`, and `meanwhile` after the Nth of these calls. Returns whether there was such a call, and the exit code.
fn stopped(n: usize, args: &[&str], meanwhile: impl FnOnce()) -> (bool, i32) {
    stopped_with(n, &format!("trace={CALLS}"), args, meanwhile)
}

/// Like [`stopped`], with one more fault.
fn stopped_with(n: usize, fault: &str, args: &[&str], meanwhile: impl FnOnce()) -> (bool, i32) {
    let inject = format!("inject={CALLS}:signal=SIGSTOP:when={n}");
    let mut child = Command::new("strace")
        .args(["-f", "-qq", "-e", &format!("trace={CALLS}"), "-e", &inject])
        .args(["-e", fault])
        .arg(env!("CARGO_BIN_EXE_weir"))
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace is needed here");
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut meanwhile = Some(meanwhile);
    for line in lines.map_while(Result::ok) {
        if line.contains("--- stopped by SIGSTOP") {
            if let Some(meanwhile) = meanwhile.take() {
                meanwhile();
            }
            // Each thread reports that it stops, and a later one may stop at its own Nth call.
            let of_strace = format!("/proc/{0}/task/{0}/children", child.id());
            let weir = std::fs::read_to_string(of_strace).unwrap();
            let mut kill = Command::new("kill");
            let _ = kill
                .args(["-CONT", weir.trim()])
                .stderr(Stdio::null())
                .status();
        }
    }
    let code = child.wait().unwrap().code().expect("ended by a signal");
    (meanwhile.is_none(), code)
}

/// The arguments of a command for this namespace.
fn words<'a>(verb: &'a str, file: &'a TempFile, engine: &'a str, ns: &'a str) -> Vec<&'a str> {
    let words = [verb, "sidecar", "--config", file.path(), "--netns", ns];
    match verb {
        "clean" => vec!["clean", "--netns", ns],
        _ => [&words[..], &["--engine", engine]].concat(),
    }
}

/// A command: its verb, configuration and engine.
type Step<'a> = (&'a str, &'a TempFile, &'a str);

fn run(pod: &Netns, (verb, file, engine): Step<'_>) -> i32 {
    weir(&words(verb, file, engine, &path(pod))).code
}

/// A namespace after this command. Returns `None` if this user may not create one.
fn pod(before: Option<Step<'_>>) -> Option<Netns> {
    if let Some(reason) = not_first_user_namespace() {
        eprintln!("skipped: {reason}");
        return None;
    }
    let pod = weir_testing::namespace()?;
    lo_up(&pod);
    if let Some(step) = before {
        assert_eq!(run(&pod, step), 0);
    }
    Some(pod)
}

/// The complete state, independent of the order in which it was created.
fn lines(pod: &Netns) -> Vec<String> {
    let mut lines: Vec<String> = held(pod).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Runs `before`, then `first`, stopped at each call, with `second` in between.
fn overlap(before: Option<Step<'_>>, first: Step<'_>, second: Step<'_>) {
    let alone = |step| {
        let pod = pod(before)?;
        assert_eq!(run(&pod, step), 0);
        Some(lines(&pod))
    };
    let (Some(of_first), Some(of_second)) = (alone(first), alone(second)) else {
        return;
    };
    let mut seen = [0; 2];
    for n in 1.. {
        let Some(pod) = pod(before) else { return };
        let ns = path(&pod);
        let mut code_of_second = 0;
        let args = words(first.0, first.1, first.2, &ns);
        let (is_stopped, code) = stopped(n, &args, || code_of_second = run(&pod, second));
        assert_eq!((code, code_of_second), (0, 0), "call {n}");
        if !is_stopped {
            println!("{n} calls; the first stands, the second does: {seen:?}");
            assert!(n > 5, "nothing was stopped");
            return;
        }
        let now = lines(&pod);
        seen[0] += usize::from(now == of_first);
        seen[1] += usize::from(now == of_second);
        assert!(
            now == of_first || now == of_second,
            "call {n}: neither of both: {now:#?}"
        );
    }
}

#[test]
fn of_two_engines_at_once_one_stands() {
    let file = config(&json!({}));
    overlap(None, ("apply", &file, "nft"), ("apply", &file, "xtables"));
    overlap(None, ("apply", &file, "xtables"), ("apply", &file, "nft"));
}

#[test]
fn rules_that_were_in_sync_stand_or_are_replaced() {
    let file = config(&json!({}));
    let (nft, xtables) = (("apply", &file, "nft"), ("apply", &file, "xtables"));
    overlap(Some(xtables), ("apply", &file, "auto"), nft);
    overlap(Some(nft), ("apply", &file, "auto"), xtables);
}

#[test]
fn rules_that_mark_have_their_routing_beside_a_removal() {
    let transparent = tproxy();
    let clean = ("clean", &transparent, "");
    for engine in ["nft", "xtables"] {
        let apply = ("apply", &transparent, engine);
        overlap(Some(apply), clean, apply);
        overlap(None, apply, clean);
    }
}

#[test]
fn rules_that_mark_have_their_routing_beside_rules_that_do_not() {
    let (transparent, plain) = (tproxy(), config(&json!({})));
    for engine in ["nft", "xtables"] {
        let marks = ("apply", &transparent, engine);
        let redirects = ("apply", &plain, engine);
        overlap(Some(marks), redirects, marks);
        overlap(Some(redirects), marks, redirects);
    }
}

/// A failed command does not undo what another process wrote.
///
/// The first command finds the result of the second, and fails afterwards, when it reads legacy tables.
#[test]
fn what_another_process_wrote_stands_though_this_one_fails() {
    let file = config(&json!({}));
    let apply = ("apply", &file, "nft");
    let mut failures = 0;
    for n in 1.. {
        let Some(pod) = pod(None) else { return };
        let ns = path(&pod);
        let mut has_written = false;
        let meanwhile = || {
            let done = weir(&words(apply.0, apply.1, apply.2, &ns));
            assert_eq!(done.code, 0, "{}", done.stderr);
            has_written = done.stdout.contains("add table");
            // This creates the table, empty.
            inside(&pod, "iptables-legacy", &["-t", "nat", "-S"]);
        };
        let args = words(apply.0, apply.1, apply.2, &ns);
        let fault = "inject=getsockopt:error=EIO";
        let (is_stopped, code) = stopped_with(n, fault, &args, meanwhile);
        if !is_stopped {
            break;
        }
        if has_written {
            let now = lines(&pod).join("\n");
            assert!(now.contains("redirect to :15001"), "call {n}: {now}");
            failures += i32::from(code != 0);
        }
    }
    assert!(failures > 0, "the first one never failed");
}
