//! A pod with users of its own (`hostUsers: false`): its network namespace belongs to another user namespace.

use crate::support::{config, path, weir};
use serde_json::json;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use weir_netlink::Netns;

/// Something that lives in user and network namespaces of its own and ends with the test.
struct Pod {
    process: Child,
    netns: Netns,
}

impl Pod {
    fn create() -> Self {
        let mut process = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "sh", "-c"])
            .arg("ip link set lo up && echo && exec cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is needed for this test");
        let mut ready = [0];
        let out = process.stdout.as_mut().unwrap();
        out.read_exact(&mut ready).expect("lo is up");
        let netns = Netns::of_pid(process.id()).unwrap();
        Self { process, netns }
    }

    /// Runs a tool as the pod's own root would.
    fn inside(&self, command: &[&str]) -> String {
        let out = Command::new("nsenter")
            .arg(format!("--target={}", self.process.id()))
            .args(["--user", "--net", "--preserve-credentials"])
            .args(command)
            .env("XTABLES_LOCKFILE", "/dev/null")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{command:?}: {errors}");
        String::from_utf8(out.stdout).unwrap()
    }

    fn apply(&self, engine: &str, more: &[&str]) -> crate::support::Run {
        let (ns, file) = (path(&self.netns), config(&json!({})));
        let on = ["--config", file.path(), "--netns", &ns, "--engine", engine];
        weir(&[&["apply", "sidecar"][..], &on, more].concat())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

macro_rules! pod_or_skip {
    () => {{
        if let Some(reason) = crate::rights::not_first_user_namespace() {
            eprintln!("skipped: {reason}");
            return;
        }
        Pod::create()
    }};
}

#[test]
fn the_owner_is_seen() {
    let pod = pod_or_skip!();
    assert!(!pod.netns.is_of_own_user_namespace().unwrap());
    let own = Netns::create().unwrap();
    assert!(own.is_of_own_user_namespace().unwrap());
}

#[test]
fn nf_tables_is_chosen_and_verified() {
    for engine in ["auto", "nft"] {
        let pod = pod_or_skip!();
        let applied = pod.apply(engine, &[]);
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        let listed = pod.inside(&["nft", "list", "ruleset"]);
        assert!(listed.contains("table inet istio-proxy-nat"), "{listed}");
        assert_eq!(pod.apply(engine, &[]).stdout, "unchanged\n");
    }
}

#[test]
fn legacy_tables_are_refused_before_anything_changes() {
    let pod = pod_or_skip!();
    let addresses = pod.inside(&["ip", "address"]);
    for more in [&[][..], &["--dry-run"]] {
        let refused = pod.apply("xtables", more);
        assert_eq!(refused.code, 1, "{}", refused.stdout);
        for part in [
            &pod.netns.id().to_string()[..],
            "hostUsers: false",
            "--engine nft",
        ] {
            assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
        }
    }
    assert_eq!(pod.inside(&["ip", "address"]), addresses);
    assert_eq!(pod.inside(&["nft", "list", "ruleset"]), "");
    let names = pod
        .netns
        .run(|| std::fs::read_to_string("/proc/thread-self/net/ip_tables_names"));
    assert_eq!(names.unwrap().unwrap(), "");
}

/// Upstream's installer ran in the pod and used legacy tables, which only the pod itself could write.
#[test]
fn nf_tables_takes_over_from_what_the_pod_wrote() {
    let pod = pod_or_skip!();
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
    let listed = pod.inside(&["nft", "list", "ruleset"]);
    assert!(listed.contains("table inet istio-proxy-nat"), "{listed}");
    let saved = pod.inside(&["iptables-legacy-save", "-t", "nat"]);
    assert!(!saved.contains("ISTIO"), "{saved}");
}
