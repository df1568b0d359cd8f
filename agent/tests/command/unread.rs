//! What cannot be read is said to be unknown, and is not shown as absent.
// matrix: smoke

use crate::support::{Run, TempFile, inside, path, tproxy, weir_with};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use weir_netlink::Netns;
use weir_testing::{TempDir, namespace_or_skip};

/// `weir show` while bpf(2) fails like this.
fn show(netns: &Netns, errno: &str, more: &[&str]) -> Run {
    let out = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=bpf", "-e"])
        .arg(format!("inject=bpf:error={errno}"))
        .args(["-o", "/dev/null", env!("CARGO_BIN_EXE_weir"), "show"])
        .args(["--netns", &path(netns)])
        .args(more)
        .output()
        .expect("strace is needed here");
    Run {
        code: out.status.code().unwrap(),
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
    }
}

#[test]
fn programs_that_cannot_be_read_are_unknown_and_the_rest_is_shown() {
    let netns = namespace_or_skip!();
    inside(&netns, "nft", &["add", "table", "ip", "other"]);
    let all = show(&netns, "EPERM", &[]);
    assert_eq!(all.code, 3, "{all:?}");
    assert!(all.stdout.contains("table ip other"), "{all:?}");
    for words in ["eBPF programs cannot be read", "CAP_BPF", "--engine"] {
        assert!(all.stderr.contains(words), "{words}: {all:?}");
    }
    let json = show(&netns, "EPERM", &["--json"]);
    assert_eq!(json.code, 3, "{json:?}");
    let value: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(value["bpf"], Value::Null);
    assert_eq!(value["nft"][0]["name"], "other");
    let untold = value["untold"][0].as_str().unwrap();
    assert!(json.stderr.contains(untold), "{json:?}");
    // Nobody asked for programs.
    let part = show(&netns, "EPERM", &["--engine", "nft", "--json"]);
    assert_eq!(part.code, 0, "{part:?}");
    let value: Value = serde_json::from_str(&part.stdout).unwrap();
    assert_eq!(value["untold"], Value::Array(vec![]));
    // A kernel without bpf(2) has no programs.
    let none = show(&netns, "ENOSYS", &["--json"]);
    assert_eq!(none.code, 0, "{none:?}");
    let value: Value = serde_json::from_str(&none.stdout).unwrap();
    assert_eq!(value["bpf"]["programs"], Value::Array(vec![]));
}

/// A file system of pins that cannot be looked at: `ELOOP`.
#[test]
fn a_file_system_of_pins_that_cannot_be_read_is_no_proof_of_anything() {
    let netns = namespace_or_skip!();
    let dir = TempDir::new();
    let pins = dir.file("loop");
    std::os::unix::fs::symlink(&pins, &pins).unwrap();
    let with =
        |pins: &Path, args: &[&str]| weir_with(args, &[("WEIR_BPFFS", pins.to_str().unwrap())]);
    let run = |args: &[&str]| with(&pins, args);
    let at = path(&netns);
    let shown = run(&["show", "--netns", &at]);
    assert_eq!(shown.code, 3, "{shown:?}");
    assert!(
        shown.stderr.contains("eBPF programs cannot be read"),
        "{shown:?}"
    );
    // What is not redirected by rules may be redirected by programs.
    let ip = |args: &str| drop(inside(&netns, "ip", &args.split(' ').collect::<Vec<_>>()));
    for command in [
        "link set lo up",
        "link add eth0 type veth peer name eth1",
        "address add 10.97.0.2/24 dev eth0",
        "link set eth0 up",
        "link set eth1 up",
        "route add default via 10.97.0.1",
        "neighbour add 10.97.0.1 lladdr 02:00:00:00:00:01 dev eth0",
    ] {
        ip(command);
    }
    let live = ["verify", "netns", &at, "--live", "--outbound-only"];
    let known = with(dir.path(), &live);
    assert_eq!(known.code, 1, "{known:?}");
    let unknown = run(&live);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    assert!(unknown.stdout.is_empty(), "{unknown:?}");
    for words in ["it is unknown whether", "WEIR_BPFFS"] {
        assert!(unknown.stderr.contains(words), "{words}: {unknown:?}");
    }
}

/// A setting of the agent changes what a pod has.
#[test]
fn an_agent_that_cannot_be_asked_is_told_apart_from_none() {
    let dir = TempDir::new();
    let pod = TempFile::new(&weir_testing::pods::sidecar("shop", "web-0").to_string());
    let plan = || {
        let run_dir = dir.path().to_str().unwrap();
        let args = [
            "plan",
            "sidecar",
            "--pod",
            pod.path(),
            "--address",
            "10.0.0.2",
        ];
        weir_with(&args, &[("CNI_AGENT_RUN_DIR", run_dir)])
    };
    let none = plan();
    assert_eq!((none.code, none.stderr.as_str()), (0, ""));
    let socket = dir.file("agent.sock");
    std::os::unix::fs::symlink(&socket, &socket).unwrap();
    let unasked = plan();
    assert_eq!((unasked.code, &unasked.stdout), (0, &none.stdout));
    for words in [
        "could not be asked",
        "ISTIO_OUTBOUND_OWNER_GROUPS",
        "agent.sock",
    ] {
        assert!(unasked.stderr.contains(words), "{words}: {unasked:?}");
    }
}

/// An older agent answers, without the settings.
#[test]
fn an_agent_without_the_settings_is_not_called_silent() {
    let dir = TempDir::new();
    let listener = UnixListener::bind(dir.file("agent.sock")).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]";
        stream.write_all(answer).unwrap();
    });
    let mut pod = weir_testing::pods::plain("shop", "web-0", serde_json::json!({}));
    (pod["apiVersion"], pod["kind"]) = ("v1".into(), "Pod".into());
    let pod = TempFile::new(&pod.to_string());
    let run_dir = dir.path().to_str().unwrap();
    let args = ["plan", "ambient", "--pod", pod.path()];
    let plan = weir_with(&args, &[("CNI_AGENT_RUN_DIR", run_dir)]);
    assert_eq!(plan.code, 0, "{plan:?}");
    let words = "and the running agent does not have them; set them";
    let is_said = plan.stderr.contains("AMBIENT_IPV6=") && plan.stderr.contains(words);
    assert!(is_said && !plan.stderr.contains("asked"), "{plan:?}");
}

/// A foreign policy rule leads replies past the proxy, and the routes that it looks up cannot be read: weir's rule would stay behind it.
#[test]
fn a_plan_does_not_depend_on_what_can_be_read() {
    let netns = pod_or_skip!();
    let (file, at) = (tproxy(), path(&netns));
    let ip = |args: &str| drop(inside(&netns, "ip", &args.split(' ').collect::<Vec<_>>()));
    for command in [
        "link add eth0 type veth peer name eth1",
        "address add 10.97.0.2/24 dev eth0",
        "link set eth0 up",
        "link set eth1 up",
    ] {
        ip(command);
    }
    let apply = [
        "apply",
        "sidecar",
        "--config",
        file.path(),
        "--engine",
        "nft",
        "--netns",
        &at,
    ];
    assert_eq!(weir_with(&apply, &[]).code, 0);
    ip("route add default via 10.97.0.1 table 50");
    ip("rule add from 10.97.0.2 lookup 50 priority 50");
    let plan = [&apply[..], &["--dry-run"]].concat();
    let planned = weir_with(&plan, &[]).stdout;
    assert!(planned.contains("rule add"), "{planned}");
    for n in 1.. {
        let out = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=sendto", "-e"])
            .arg(format!("inject=sendto:error=EIO:when={n}"))
            .args(["-o", "/dev/stderr", env!("CARGO_BIN_EXE_weir")])
            .args(&plan)
            .output()
            .expect("strace is needed here");
        let told = format!("{n}: {out:?}");
        let text = String::from_utf8(out.stdout).unwrap();
        match out.status.code() {
            Some(0) => assert_eq!(text, planned, "{told}"),
            code => assert_eq!((code, text.as_str()), (Some(1), ""), "{told}"),
        }
        if !told.contains("(INJECTED)") {
            assert!(n > 5, "nothing was injected: {told}");
            return;
        }
    }
}
