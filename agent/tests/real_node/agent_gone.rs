//! Pods while the agent hangs, is killed, or is replaced by another one.

use crate::node::node;
use crate::pods::{Gate, Namespace};

#[test]
fn the_plugin_asks_the_api_server_when_the_agent_hangs() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "hanging");
    let agent = node.agent_pid();
    let gate = Gate::close(node);
    mesh.sidecar("one");
    gate.somebody_waits();
    node.sh(&format!("kill -STOP {agent}"));
    drop(gate);
    mesh.ready(&["one"]);
    mesh.captured("one");
    node.sh(&format!("kill -CONT {agent}"));
    node.rolled_out();
}

#[test]
fn a_killed_agent_comes_back_and_disturbs_nobody() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "killed");
    mesh.sidecar("before");
    mesh.ready(&["before"]);
    let netns = node.netns_of("killed", "before");
    let rules = node.handles(&netns);
    assert!(rules.contains("15001"), "{rules}");
    let killed = node.agent_pid();
    let gate = Gate::close(node);
    mesh.sidecar("meanwhile");
    gate.somebody_waits();
    node.sh(&format!("kill -KILL {killed}"));
    drop(gate);
    mesh.ready(&["before", "meanwhile"]);
    mesh.captured("meanwhile");
    assert_ne!(node.agent_pid(), killed);
    node.rolled_out();
    let metrics = node.metrics();
    let expected = |n| n >= 2.0;
    metrics.wait("pods are expected again", "weir_pods_expected", expected);
    metrics.wait("and verified", "weir_pods_verified", expected);
    assert_eq!(node.handles(&netns), rules);
    mesh.captured("before");
}

#[test]
fn pods_start_while_one_agent_takes_over_from_another() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "upgrade");
    let names: Vec<_> = (0..8).map(|n| format!("pod-{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let old = node.agent_pid();
    // Without the entry, even for a moment, a pod could start outside the mesh.
    let list = "/etc/cni/net.d/10-bridge.conflist";
    node.sh(&format!(
        "rm -f /tmp/absent; touch /tmp/looks
         setsid sh -c 'while [ -e /tmp/looks ]; do grep -q istio-cni {list} || touch /tmp/absent; done' \
             </dev/null >/dev/null 2>&1 &"
    ));
    for (n, name) in names.iter().enumerate() {
        mesh.sidecar(name);
        if n == 1 {
            node.restart();
        }
    }
    mesh.ready(&names);
    node.rolled_out();
    assert_ne!(node.agent_pid(), old);
    let absent = node.sh("rm /tmp/looks; [ -e /tmp/absent ] && echo absent || echo always there");
    assert_eq!(absent.trim(), "always there");
    for name in names {
        mesh.captured(name);
    }
}
