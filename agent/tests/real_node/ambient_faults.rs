//! Ambient mode on a Kubernetes node under faults: pods that are deleted during enrolment, a ztunnel that is silent, restarted, killed or
//! absent, and an agent that is killed.

use crate::ambient::{
    LISTENS, ambient_mode, annotation, enabled, found, is_never_plain, label, plain, socket,
    stays_captured, uid, without_faults,
};
use crate::node::{Node, node, wait_for};
use crate::pods::{Gate, Namespace};
use std::collections::BTreeSet;
use std::time::Duration;
use weir_testing::ztunnel::Ztunnel;

/// The namespaces of the plugin's ADD calls for a pod, oldest first: a runtime repeats ADD, each time in another namespace.
fn added(node: &Node, namespace: &str, pod: &str) -> Vec<String> {
    let calls = node.sh("cat /run/gate-calls");
    let is_of_pod = |call: &&str| {
        // The arguments follow `args=` in any order.
        let words: Vec<&str> = call.split([' ', ';']).collect();
        let has = |name: &str, value: &str| {
            let word = format!("{name}={value}");
            words.iter().any(|w| w.trim_start_matches("args=") == word)
        };
        words[0] == "ADD" && has("K8S_POD_NAMESPACE", namespace) && has("K8S_POD_NAME", pod)
    };
    let adds = calls.lines().filter(is_of_pod);
    let netns = adds.filter_map(|l| l.split(' ').find_map(|word| word.strip_prefix("netns=")));
    netns.map(str::to_owned).collect()
}

/// Device and inode of each of these files that exists.
fn ids(node: &Node, files: &str) -> BTreeSet<String> {
    let list = node.sh(&format!("stat -L -c %d:%i {files} 2>/dev/null || true"));
    list.lines().map(str::to_owned).collect()
}

/// The namespaces that the agent has open. The links of mounted ones do not contain `net:[INODE]`.
fn held(node: &Node) -> BTreeSet<String> {
    let own = node.sh("stat -L -c %d: /proc/self/ns/net");
    let mut open = ids(node, &format!("/proc/{}/task/*/fd/*", node.agent_pid()));
    open.retain(|id| id.starts_with(own.trim()));
    open
}

/// The entries of the status page for this pod: none or one.
fn shown(node: &Node, uid: &str) -> Vec<serde_json::Value> {
    let pods = node.status()["ambient"]["pods"].clone();
    let all = pods.as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|pod| pod["uid"] == uid).collect()
}

/// Checks that neither the agent nor ztunnel nor the host has anything of a deleted pod.
#[track_caller]
fn nothing_is_left(node: &Node, uid: &str, ztunnel: &Ztunnel) {
    wait_for("ztunnel forgets it", || {
        (!ztunnel.pods().contains_key(uid)).then_some(())
    });
    wait_for("the host forgets its addresses", || {
        (!node.of_host().contains(uid)).then_some(())
    });
    wait_for("the status page forgets it", || {
        shown(node, uid).is_empty().then_some(())
    });
    wait_for("no namespace is held", || {
        // An open namespace must belong to a sandbox or a process.
        let there = ids(node, "/run/netns/* /proc/[0-9]*/ns/*");
        held(node).is_subset(&there).then_some(())
    });
}

#[test]
fn pods_that_are_deleted_while_they_are_enrolled_leave_nothing() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "deleted");
    label(&mesh, "ambient");
    let (policy, ztunnel) = ambient_mode(node, "");
    ztunnel.snapshots(1);
    // The pod is deleted before the plugin hands it over.
    let gate = Gate::close(node);
    plain(&mesh, "early");
    gate.somebody_waits();
    let early = uid(&mesh, "early");
    mesh.delete("early");
    drop(gate);
    // The pod is deleted while ztunnel delays its answer beyond every timeout.
    ztunnel.pause(Duration::from_millis(2500));
    plain(&mesh, "one");
    wait_for("it is captured", || {
        let netns = added(node, mesh.name, "one").pop()?;
        let net = format!("--net={netns}");
        // The namespace is deleted when the runtime tries again.
        let listed = node.run(&["exec", "nsenter", &net, "nft", "list", "tables"], "");
        let tables = String::from_utf8_lossy(&listed.stdout).into_owned();
        tables.contains("istio-ambient-nat").then_some(())
    });
    let late = uid(&mesh, "one");
    assert_ne!(annotation(&mesh, "one"), "enabled");
    mesh.delete("one");
    ztunnel.pause(Duration::ZERO);
    wait_for("its namespaces are gone", || {
        let all = added(node, mesh.name, "one").join(" ");
        let there = node.sh(&format!("ls -d {all} 2>/dev/null || true"));
        there.is_empty().then_some(())
    });
    nothing_is_left(node, &late, &ztunnel);
    // The next pod with that name is like any other pod.
    plain(&mesh, "one");
    mesh.ready(&["one"]);
    enabled(&mesh, "one");
    let next = uid(&mesh, "one");
    assert!(next != late && ztunnel.pods().contains_key(&next));
    assert!(node.of_host().contains(&next));
    let own = ids(node, &node.netns_of(mesh.name, "one"));
    assert!(own.len() == 1 && own.is_subset(&held(node)), "{own:?}");
    stays_captured(&mesh, "one", 0);
    // The plugin still requests the other pod for half a minute, in case the agent has not received it yet.
    nothing_is_left(node, &early, &ztunnel);
    without_faults(&ztunnel, policy);
}

/// What listens in the pod is killed, as a ztunnel that is killed takes its listeners with it, and is started again.
fn loses_its_listener(mesh: &Namespace, pod: &str) {
    let inside = |script: &str| {
        let args = ["-n", mesh.name, "exec", pod, "--", "sh", "-c", script];
        mesh.node.kubectl(&args)
    };
    let last_is = |word: &str| {
        wait_for(&format!("{pod}: {word}"), || {
            let last = found(mesh, pod).pop();
            (last.as_deref() == Some(word)).then_some(())
        });
    };
    let since = found(mesh, pod).len();
    inside("killall -KILL nc");
    last_is("nothing");
    is_never_plain(mesh, pod, since);
    inside(LISTENS);
    last_is("captured");
    is_never_plain(mesh, pod, since);
}

/// The agent is killed, while a pod sends requests and another one starts.
fn another_agent_follows(mesh: &Namespace, pod: &str, ztunnel: &Ztunnel) {
    let node = mesh.node;
    let netns = node.netns_of(mesh.name, pod);
    let (rules, killed) = (node.handles(&netns), node.agent_pid());
    let since = found(mesh, pod).len();
    let gate = Gate::close(node);
    plain(mesh, "meanwhile");
    gate.somebody_waits();
    node.sh(&format!("kill -KILL {killed}"));
    let without = found(mesh, pod).len();
    drop(gate);
    mesh.ready(&["meanwhile"]);
    enabled(mesh, "meanwhile");
    assert_ne!(node.agent_pid(), killed);
    let with_another = found(mesh, pod).len();
    assert!(with_another >= without + 3, "{without} {with_another}");
    node.rolled_out();
    ztunnel.snapshots(2);
    for of_mesh in [pod, "meanwhile"] {
        let uid = uid(mesh, of_mesh);
        wait_for("ztunnel has it", || {
            ztunnel.pods().contains_key(&uid).then_some(())
        });
    }
    stays_captured(mesh, pod, since);
    stays_captured(mesh, "meanwhile", 0);
    assert_eq!(node.handles(&netns), rules);
}

#[test]
fn pods_stay_captured_while_ztunnel_and_the_agent_are_killed_and_leave_without_ztunnel() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "no-proxy");
    label(&mesh, "ambient");
    let (policy, first) = ambient_mode(node, "");
    plain(&mesh, "one");
    mesh.ready(&["one"]);
    enabled(&mesh, "one");
    let own = uid(&mesh, "one");
    let knows = |ztunnel: &Ztunnel| {
        ztunnel.snapshots(1);
        assert!(ztunnel.pods().contains_key(&own), "{:?}", ztunnel.pods());
    };
    // ztunnel is restarted: the next one connects while the last one drains.
    let second = Ztunnel::connect(&socket(node));
    knows(&second);
    assert_eq!(first.faults(), Vec::<String>::new());
    drop(first);
    stays_captured(&mesh, "one", 0);
    // ztunnel is killed: its connection ends at once, then its listeners in the pod.
    drop(second);
    let metrics = node.metrics();
    metrics.wait("no ztunnel", "ztunnel_connected", |n| n == 0.0);
    stays_captured(&mesh, "one", 0);
    loses_its_listener(&mesh, "one");
    let since = found(&mesh, "one").len();
    let third = Ztunnel::connect(&socket(node));
    knows(&third);
    enabled(&mesh, "one");
    stays_captured(&mesh, "one", since);
    another_agent_follows(&mesh, "one", &third);
    stays_captured(&mesh, "one", since);
    assert_eq!(third.faults(), Vec::<String>::new());
    // The pod leaves while no ztunnel is connected.
    drop(third);
    metrics.wait("no ztunnel", "ztunnel_connected", |n| n == 0.0);
    label(&mesh, "none");
    let netns = node.netns_of(mesh.name, "one");
    let other = uid(&mesh, "meanwhile");
    wait_for("they leave", || {
        let all = [("one", &own), ("meanwhile", &other)];
        let mut all = all.iter();
        let are_left =
            all.all(|(pod, uid)| annotation(&mesh, pod).is_empty() && shown(node, uid).is_empty());
        are_left.then_some(())
    });
    assert!(!node.handles(&netns).contains("istio-ambient"));
    let of_host = node.of_host();
    assert!(!of_host.contains(&own), "{of_host}");
    wait_for("it is in nobody's way", || {
        let last = found(&mesh, "one").pop();
        (last.as_deref() == Some("plain")).then_some(())
    });
    let fourth = Ztunnel::connect(&socket(node));
    fourth.snapshots(1);
    assert!(fourth.pods().is_empty(), "{:?}", fourth.pods());
    without_faults(&fourth, policy);
}
