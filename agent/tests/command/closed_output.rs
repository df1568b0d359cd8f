//! Output that cannot be written affects the exit code alone, never the change itself.

use crate::support::{config, inside, path};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_netlink::Netns;

/// A file to which every write fails with ENOSPC.
fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

#[test]
fn a_message_that_cannot_be_written_does_not_change_the_exit_code() {
    for (arguments, code) in [
        (&["plan", "sidecar", "--config", "/nowhere"][..], 2),
        (&["show", "--netns", "/nowhere"], 2),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let status = command.args(arguments).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}: {status}");
    }
}

/// This also holds for arguments that are no command.
#[test]
fn help_that_cannot_be_written_is_3() {
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["agent", "--help"],
        &["plan", "--help"],
    ] {
        for (stdout, is_said) in [(full(), true), (closed(), false)] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
            let output = command.args(arguments).stdout(stdout).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(3), "{arguments:?}: {said}");
            assert_eq!(said.contains("cannot write to stdout"), is_said, "{said}");
        }
    }
}

/// The program was ended by a signal, without a word.
#[test]
fn output_beyond_the_limit_of_file_sizes_is_3() {
    if Command::new("prlimit").arg("--version").output().is_err() {
        return println!("skipped: there is no prlimit of util-linux");
    }
    let dir = weir_testing::TempDir::new();
    let out = File::create(dir.file("out")).unwrap();
    let mut limited = Command::new("prlimit");
    limited.args(["--fsize=0", env!("CARGO_BIN_EXE_weir"), "--help"]);
    let output = limited.stdout(out).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write to stdout"));
}

/// A pipe without a reader. A process that another test starts has a copy of the read end until it executes its program.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let end = Instant::now() + Duration::from_secs(30);
    let is_read = || {
        let mut fds = [PollFd::new(writer.as_fd(), PollFlags::POLLOUT)];
        poll(&mut fds, PollTimeout::ZERO).unwrap();
        !fds[0].revents().unwrap().contains(PollFlags::POLLERR)
    };
    while is_read() {
        assert!(Instant::now() < end, "the other end is open");
        std::thread::yield_now();
    }
    writer.into()
}

/// Runs `weir ARGUMENTS`; returns its code, its stderr, and whether the pod then contains rules of weir.
fn run(pod: &Netns, arguments: &[&str], stdout: Stdio) -> (Option<i32>, String, bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let netns = path(pod);
    command.args(arguments).args(["--netns", &netns]);
    let output = command.stdout(stdout).output().unwrap();
    let rules = inside(pod, "nft", &["list", "ruleset"]);
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said, rules.contains("istio"))
}

#[test]
fn an_answer_that_cannot_be_written_is_3_and_says_what_is_in_force() {
    let pod = pod_or_skip!();
    let file = config(&json!({}));
    let of = |verb: &'static str, more: &[&'static str]| -> Vec<&str> {
        let mut all = match verb {
            "clean" => vec!["clean"],
            verb => vec![verb, "sidecar", "--engine", "nft", "--config", file.path()],
        };
        all.extend(more);
        all
    };
    for json in [&[][..], &["--json"]] {
        for stdout in [full, closed] {
            for (verb, is_there) in [("apply", true), ("clean", false)] {
                let (code, said, holds) = run(&pod, &of(verb, json), stdout());
                assert_eq!((code, holds), (Some(3), is_there), "{verb}: {said}");
                assert!(said.contains("cannot write to stdout"), "{said}");
                assert!(said.contains("the change is made and in force"), "{said}");
            }
        }
    }
    // Nothing was changed, so only the answer is lost. Code 1 would be a valid answer, hence 3.
    let (code, said, _) = run(&pod, &of("apply", &["--dry-run"]), full());
    assert!(
        code == Some(3) && !said.contains("in force"),
        "{code:?}: {said}"
    );
    let (code, said, _) = run(&pod, &of("verify", &[]), full());
    assert!(
        code == Some(3) && !said.contains("in force"),
        "{code:?}: {said}"
    );
    // The reader closed the pipe, perhaps after it had read everything: weir prints nothing and still reports failure.
    for arguments in [of("verify", &[]), of("verify", &["--json"]), vec!["show"]] {
        inside(&pod, "nft", &["add table ip other"]);
        let (code, said, _) = run(&pod, &arguments, closed());
        assert_eq!((code, said.as_str()), (Some(3), ""), "{arguments:?}");
    }
}

#[test]
fn a_demonstration_that_cannot_be_shown_is_3() {
    let _ = weir_testing::namespace_or_skip!();
    for (stdout, is_said) in [(full(), true), (closed(), false)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.arg("demo").stdout(stdout).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        if output.status.code() == Some(1) {
            println!("skipped: there is nothing to show: {said}");
            return;
        }
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert_eq!(said.contains("cannot write to stdout"), is_said, "{said}");
    }
}

#[test]
fn a_plan_that_nobody_reads_is_3_without_a_word() {
    let file = config(&json!({}));
    for json in [&[][..], &["--json"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["plan", "sidecar", "--config", file.path()]);
        let output = command.args(json).stdout(closed()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.as_str()), (Some(3), ""));
    }
}
