//! Another program flushes the rules or the sets of the host in a loop, on which probes of the kubelet depend in ambient mode.
//!
//! The agent must repair them while the loop runs, count the repairs, and not show the host's part as in force.

use crate::ambient::{ambient_mode, enabled, label, uid, without_faults};
use crate::ambient_flushed::{Loop, legacy};
use crate::node::{HOST, node, wait_for};
use crate::pods::Namespace;

const HEALED: &str = "weir_ambient_host_healed_total{purpose=\"probes\"}";
const READY: &str = "weir_ambient_host_ready";

fn is_ready(mesh: &Namespace, pod: &str) -> bool {
    mesh.field(pod, ".status.conditions[?(@.type==\"Ready\")].status") == "True"
}

/// The host's part by this engine, while each of these commands runs in a loop.
fn is_healed_meanwhile(name: &'static str, settings: &str, commands: [&str; 2]) {
    let Some(node) = node() else { return };
    wait_for("nothing is left of an earlier agent", || {
        (!node.of_host().contains("istio-inpod-probes")).then_some(())
    });
    let mesh = Namespace::new(node, name);
    label(&mesh, "ambient");
    if name.ends_with("legacy") {
        // The agent prefers legacy tables where some exist: to list a table creates it.
        node.inside(HOST, &["iptables-legacy", "-w", "-t", "nat", "-S"]);
    }
    let (policy, ztunnel) = ambient_mode(node, &format!(",{settings}"));
    let probe =
        "    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, failureThreshold: 1}\n";
    mesh.application("one", probe);
    // Nothing listens on ztunnel's port, so a captured probe fails.
    mesh.ready(&["one"]);
    enabled(&mesh, "one");
    let uid = uid(&mesh, "one");
    assert!(node.of_host().contains(&uid));
    let is_legacy = legacy(node, HOST).contains("ISTIO_POSTRT");
    assert_eq!(is_legacy, name.ends_with("legacy"), "{}", node.of_host());
    let metrics = node.metrics();
    metrics.wait("in force", READY, |n| n == 1.0);
    for command in commands {
        let before = metrics.get(HEALED).unwrap();
        let flushes = Loop::start(node, HOST, &format!("{command}; sleep 0.1"));
        wait_for(&format!("{command}: a probe is captured"), || {
            (!is_ready(&mesh, "one")).then_some(())
        });
        metrics.wait(command, HEALED, |now| now >= before + 3.0);
        if command == commands[1] {
            metrics.wait("contention is shown", READY, |n| n == 0.0);
            let host = node.status()["ambient"]["host"].to_string();
            let told = "another program changes the rules again and again";
            assert!(host.contains(told), "{host}");
        }
        drop(flushes);
        // The pod may still be ready from a repair before the last flush.
        wait_for(&format!("{command}: the host has the pod"), || {
            node.of_host().contains(&uid).then_some(())
        });
        wait_for(&format!("{command}: probes get through"), || {
            is_ready(&mesh, "one").then_some(())
        });
    }
    without_faults(&ztunnel, policy);
}

#[test]
fn nf_tables_of_the_host_are_healed_while_another_program_flushes_them() {
    let commands = [
        "nft flush ruleset",
        "nft flush set inet istio-ambient-nat istio-inpod-probes-v4",
    ];
    is_healed_meanwhile("host-nft", r#""NATIVE_NFTABLES":"true""#, commands);
}

#[test]
fn legacy_tables_of_the_host_are_healed_while_another_program_flushes_them() {
    let commands = [
        "iptables-legacy -w -t nat -F; ip6tables-legacy -w -t nat -F",
        "ipset flush istio-inpod-probes-v4",
    ];
    is_healed_meanwhile("host-legacy", r#""NATIVE_NFTABLES":"false""#, commands);
}
