//! A pod with users of its own (`hostUsers: false`): its network namespace belongs to another user namespace.

use crate::support::{config, lo_up, path, weir};
use serde_json::json;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use weir_netlink::{Netns, Owner};

/// The mapping that a container runtime writes: the users of the pod are other users of the node.
const USERS: &str = "0 100000 65536";
/// The only mapping that an ordinary user may write: a single user.
const ONE_USER: &str = "0 0 1";

/// A process in user and network namespaces of its own, which ends with the test.
struct Pod {
    process: Child,
    netns: Netns,
}

impl Pod {
    fn create(users: &str) -> Self {
        let mut process = Command::new("unshare")
            .args(["--user", "--net", "sh", "-c", "echo && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is needed for this test");
        let mut ready = [0];
        let out = process.stdout.as_mut().unwrap();
        out.read_exact(&mut ready).expect("the namespaces are made");
        for map in ["uid_map", "gid_map"] {
            std::fs::write(format!("/proc/{}/{map}", process.id()), users).unwrap();
        }
        let netns = Netns::of_pid(process.id()).unwrap();
        lo_up(&netns);
        Self { process, netns }
    }

    /// Runs a tool as root of the pod.
    fn inside(&self, command: &[&str]) -> String {
        let out = Command::new("nsenter")
            .arg(format!("--target={}", self.process.id()))
            .args(["--user", "--net"])
            .args(command)
            .env("XTABLES_LOCKFILE", "/dev/null")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{command:?}: {errors}");
        String::from_utf8(out.stdout).unwrap()
    }

    fn weir(&self, verb: &str, engine: &str, more: &[&str]) -> crate::support::Run {
        let (ns, file) = (path(&self.netns), config(&json!({})));
        let on = ["--config", file.path(), "--netns", &ns, "--engine", engine];
        weir(&[&[verb, "sidecar"][..], &on, more].concat())
    }

    fn apply(&self, engine: &str, more: &[&str]) -> crate::support::Run {
        self.weir("apply", engine, more)
    }

    fn legacy_rules(&self) -> String {
        let saved = self.inside(&["iptables-legacy-save", "-t", "nat"]);
        // Comments contain the time.
        let rules = saved.lines().filter(|line| !line.starts_with('#'));
        rules.map(|line| format!("{line}\n")).collect()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

macro_rules! pod_or_skip {
    ($users:expr) => {{
        if let Some(reason) = crate::rights::not_first_user_namespace() {
            eprintln!("skipped: {reason}");
            return;
        }
        Pod::create($users)
    }};
}

#[test]
fn the_owner_is_seen() {
    let pod = pod_or_skip!(USERS);
    assert!(!matches!(pod.netns.owner().unwrap(), Owner::Own));
    let own = Netns::create().unwrap();
    assert!(matches!(own.owner().unwrap(), Owner::Own));
}

#[test]
fn nf_tables_is_chosen_and_verified() {
    for engine in ["auto", "nft"] {
        let pod = pod_or_skip!(USERS);
        let applied = pod.apply(engine, &[]);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        let listed = pod.inside(&["nft", "list", "ruleset"]);
        assert!(listed.contains("table inet istio-proxy-nat"), "{listed}");
        assert_eq!(pod.apply(engine, &[]).stdout, "unchanged\n");
    }
}

/// The kernel accepts rules that match users only from the pod's user namespace, which a child process enters.
#[test]
fn legacy_tables_are_written_from_inside() {
    let pod = pod_or_skip!(USERS);
    let rule = "-A OUTPUT -d 203.0.113.9/32";
    let words: Vec<&str> = rule.split(' ').collect();
    pod.inside(&[&["iptables-legacy", "-t", "nat"][..], &words].concat());
    let applied = pod.apply("xtables", &[]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let listed = pod.legacy_rules();
    for part in [
        "--uid-owner 1337",
        "--gid-owner 1337",
        "-j ISTIO_OUTPUT",
        rule,
    ] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    for engine in ["xtables", "auto"] {
        assert_eq!(pod.apply(engine, &[]).stdout, "unchanged\n");
        assert_eq!(pod.weir("verify", engine, &[]).code, 0);
    }
    pod.inside(&["iptables-legacy", "-t", "nat", "-F", "ISTIO_OUTPUT"]);
    assert_eq!(pod.weir("verify", "auto", &[]).code, 1);
    assert_eq!(pod.apply("auto", &[]).code, 0);
    assert_eq!(pod.legacy_rules(), listed);
    let cleaned = weir(&["clean", "--netns", &path(&pod.netns)]);
    assert_eq!(cleaned.code, 0, "{}", cleaned.stderr);
    let left = pod.legacy_rules();
    assert!(!left.contains("ISTIO") && left.contains(rule), "{left}");
}

/// The child has a copy of weir's memory, and root of the pod may trace processes that enter its user namespace.
#[test]
fn the_pod_cannot_look_into_the_child() {
    let pod = pod_or_skip!(USERS);
    let (ns, file) = (path(&pod.netns), config(&json!({})));
    let traced = Command::new("strace")
        .args(["-f", "-e", "trace=prctl,setns", "-e", "signal=none"])
        .args([env!("CARGO_BIN_EXE_weir"), "apply", "sidecar"])
        .args(["--config", file.path(), "--netns", &ns])
        .args(["--engine", "xtables"])
        .output()
        .expect("strace is needed for this test");
    let calls = String::from_utf8(traced.stderr).unwrap();
    assert!(traced.status.success(), "{calls}");
    let place = |call: &str| calls.lines().position(|l| l.contains(call));
    let (shut, entered) = (
        place("prctl(PR_SET_DUMPABLE, SUID_DUMP_DISABLE"),
        place("CLONE_NEWUSER"),
    );
    assert!(shut.is_some() && shut < entered, "{calls}");
}

/// The user of the proxy does not exist in such a pod, so no rule can match it.
#[test]
fn users_that_the_pod_does_not_have_are_refused() {
    let pod = pod_or_skip!(ONE_USER);
    let addresses = pod.inside(&["ip", "address"]);
    let refused = pod.apply("xtables", &[]);
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    assert!(refused.stderr.contains("uid_map"), "{}", refused.stderr);
    assert_eq!(pod.inside(&["ip", "address"]), addresses);
    assert_eq!(pod.inside(&["nft", "list", "ruleset"]), "");
    assert!(!pod.legacy_rules().contains("ISTIO"));
}

/// Upstream's installer ran in the pod and used legacy tables: weir keeps them in use.
#[test]
fn what_the_pod_wrote_stays_in_legacy_tables() {
    let pod = pod_or_skip!(USERS);
    for rule in [
        "-N ISTIO_OUTPUT",
        "-A OUTPUT -j ISTIO_OUTPUT",
        "-A ISTIO_OUTPUT -m owner --uid-owner 0 -j RETURN",
    ] {
        let rule: Vec<&str> = rule.split(' ').collect();
        pod.inside(&[&["iptables-legacy", "-t", "nat"][..], &rule].concat());
    }
    let applied = pod.apply("auto", &[]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert_eq!(pod.inside(&["nft", "list", "ruleset"]), "");
    let saved = pod.legacy_rules();
    assert!(
        saved.contains("-j ISTIO_REDIRECT") && !saved.contains("--uid-owner 0 "),
        "{saved}"
    );
}

/// Rules match the proxy by its user ID in the pod, so the sockets of the probe need that ID as well.
#[test]
fn run_validation_probes_as_the_proxy_of_the_pod() {
    for engine in ["nft", "xtables"] {
        let pod = pod_or_skip!(USERS);
        let given = json!({
            "run_validation": true, "proxy_uid": "1337", "proxy_gid": "1337",
            "inbound_ports_include": "*", "outbound_ip_ranges_include": "*", "probe_timeout": "20s",
        });
        let (ns, file) = (path(&pod.netns), config(&given));
        let on = ["--config", file.path(), "--netns", &ns, "--engine", engine];
        let applied = weir(&[&["apply", "sidecar"][..], &on].concat());
        assert_eq!(applied.code, 0, "{}", applied.stderr);
    }
    let pod = pod_or_skip!(ONE_USER);
    let (ns, file) = (path(&pod.netns), config(&json!({ "run_validation": true })));
    let on = ["--config", file.path(), "--netns", &ns, "--engine", "nft"];
    let refused = weir(&[&["apply", "sidecar"][..], &on].concat());
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    assert!(
        refused.stderr.contains("1337 is not in its uid_map"),
        "{}",
        refused.stderr
    );
    assert_eq!(pod.inside(&["nft", "list", "ruleset"]), "");
}
