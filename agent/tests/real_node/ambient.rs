//! Ambient mode on a Kubernetes node, with a ztunnel that only speaks ZDS: it runs in the test process, and connects to the agent's socket
//! through the node's file system.

use crate::broken_pods::Policy;
use crate::node::{Node, node, wait_for};
use crate::pods::Namespace;
use std::path::PathBuf;
use weir_testing::ztunnel::Ztunnel;

const MODE: &str = "istio.io/dataplane-mode";

/// Creates a pod without a sidecar that executes a line of shell, and then repeats another, with its output in the log.
pub(crate) fn repeating(mesh: &Namespace, name: &str, (first, line): (&str, &str)) {
    let container = format!(
        "    env: [{{name: NODE, valueFrom: {{fieldRef: {{fieldPath: status.hostIP}}}}}}]
    command:
    - sh
    - -c
    - |
      {first}
      while :; do
        {line}
        sleep 0.1
      done
"
    );
    mesh.create(name, "{}", &container);
}

/// Starts what listens in a pod instead of ztunnel. A process of its own, because one of the test would not be in the next sandbox.
pub(crate) const LISTENS: &str = "nc -ll -p 15001 -e echo captured </dev/null >/dev/null 2>&1 &
      until grep -q ':3A99 ' /proc/net/tcp /proc/net/tcp6 2>/dev/null; do sleep 0.1; done";

/// Creates a pod that sends requests to the kubelet, which answers with an HTTP error. It prints `plain` if that answer arrives,
/// `captured` if the answer is that of ztunnel's port in the pod, and `nothing` otherwise.
pub(crate) fn plain(mesh: &Namespace, name: &str) {
    let ask = r#"said=$(printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 2 "$NODE" 10250 2>/dev/null); case "$said" in *HTTP*) echo plain;; captured) echo captured;; *) echo nothing;; esac"#;
    repeating(mesh, name, (LISTENS, ask));
}

/// The output so far of the containers of a pod, also of those that ended, if the kubelet has not deleted their logs.
pub(crate) fn found(mesh: &Namespace, pod: &str) -> Vec<String> {
    found_of(mesh, pod, &uid(mesh, pod))
}

/// The same, of a pod with this UID.
pub(crate) fn found_of(mesh: &Namespace, pod: &str, uid: &str) -> Vec<String> {
    let files = format!("/var/log/pods/{}_{pod}_{uid}/app/*.log", mesh.name);
    let log = mesh.node.sh(&format!("cat {files} 2>/dev/null || true"));
    // TIME stdout F LINE
    let words = |line: &str| line.splitn(4, ' ').nth(3).map(str::to_owned);
    let lines = log.lines().filter(|line| line.contains(" stdout "));
    lines.filter_map(words).collect()
}

/// Waits until the pod has sent some more requests. Returns the results from this one on.
#[track_caller]
pub(crate) fn asks_on(mesh: &Namespace, pod: &str, since: usize) -> Vec<String> {
    let later = found(mesh, pod).len() + 3;
    let all = wait_for("it asks", || {
        let found = found(mesh, pod);
        (found.len() >= later).then_some(found)
    });
    all.into_iter().skip(since).collect()
}

/// Checks that the pod continues its requests, and that all of them arrive at ztunnel's port.
#[track_caller]
pub(crate) fn stays_captured(mesh: &Namespace, pod: &str, since: usize) {
    let found = asks_on(mesh, pod, since);
    assert!(found.iter().all(|line| line == "captured"), "{found:?}");
}

/// Checks that the pod continues its requests, and that none is sent in plain text, whether it is answered or not.
#[track_caller]
pub(crate) fn is_never_plain(mesh: &Namespace, pod: &str, since: usize) {
    let found = asks_on(mesh, pod, since);
    assert!(!found.iter().any(|line| line == "plain"), "{found:?}");
}

pub(crate) fn annotation(mesh: &Namespace, pod: &str) -> String {
    mesh.field(
        pod,
        ".metadata.annotations.ambient\\.istio\\.io/redirection",
    )
}

#[track_caller]
pub(crate) fn enabled(mesh: &Namespace, pod: &str) {
    wait_for("it is enrolled", || {
        (annotation(mesh, pod) == "enabled").then_some(())
    });
}

pub(crate) fn uid(mesh: &Namespace, pod: &str) -> String {
    mesh.field(pod, ".metadata.uid")
}

pub(crate) fn socket(node: &Node) -> PathBuf {
    let init = node.init();
    format!("/proc/{init}/root/run/ztunnel/ztunnel.sock").into()
}

pub(crate) fn label(mesh: &Namespace, mode: &str) {
    let label = format!("{MODE}={mode}");
    mesh.node
        .kubectl(&["label", "--overwrite", "namespace", mesh.name, &label]);
}

/// Sets an agent in ambient mode, with more `settings` that begin with a comma, and connects a ztunnel to it.
#[track_caller]
pub(crate) fn ambient_mode(node: &'static Node, settings: &str) -> (Policy, Ztunnel) {
    let policy = Policy::set(node, &format!(r#""AMBIENT_ENABLED":"true"{settings}"#));
    (policy, Ztunnel::connect(&socket(node)))
}

/// Checks that ztunnel understood everything that it got, and ends the policy while it is still connected.
#[track_caller]
pub(crate) fn without_faults(ztunnel: &Ztunnel, policy: Policy) {
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
    drop(policy);
}

#[test]
fn pods_are_enrolled_healed_and_leave() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "ambient");
    plain(&mesh, "before");
    mesh.ready(&["before"]);
    wait_for("it asks", || {
        (!found(&mesh, "before").is_empty()).then_some(())
    });
    assert!(found(&mesh, "before").iter().all(|line| line == "plain"));
    let (policy, ztunnel) = ambient_mode(node, "");
    ztunnel.snapshots(1);
    // One pod already runs, and the plugin hands over another one.
    label(&mesh, "ambient");
    enabled(&mesh, "before");
    plain(&mesh, "after");
    mesh.ready(&["after"]);
    enabled(&mesh, "after");
    for pod in ["before", "after"] {
        assert!(ztunnel.pods().contains_key(&uid(&mesh, pod)), "{pod}");
        let netns = node.netns_of(mesh.name, pod);
        assert!(node.handles(&netns).contains("istio-ambient-nat"), "{pod}");
    }
    node.metrics()
        .wait("both", "weir_ambient_pods{state=\"enrolled\"}", |n| {
            n == 2.0
        });
    stays_captured(&mesh, "after", 0);
    // Both pods lose their rules, one of them repeatedly.
    let netns = node.netns_of(mesh.name, "after");
    let healed = "weir_ambient_healed_total{cause=\"missing\"}";
    let metrics = node.metrics();
    node.flush(&node.netns_of(mesh.name, "before"));
    metrics.wait("one repair", healed, |n| n >= 1.0);
    let are_back = || {
        wait_for("the rules are back", || {
            let rules = node.handles(&netns);
            rules.contains("istio-ambient-nat").then_some(())
        });
    };
    for _ in 0..8 {
        are_back();
        node.flush(&netns);
    }
    metrics.wait("contention", "weir_ambient_contention_total", |n| n >= 1.0);
    are_back();
    assert!(metrics.get(healed) >= Some(8.0));
    for reason in ["RedirectionRepaired", "RedirectionContended"] {
        wait_for(reason, || {
            let events = node.kubectl(&["-n", mesh.name, "get", "events"]);
            events.contains(reason).then_some(())
        });
    }
    // Another agent changes nothing for these pods.
    let before = node.handles(&netns);
    node.restart();
    node.rolled_out();
    ztunnel.snapshots(2);
    node.metrics()
        .wait("both", "weir_ambient_pods{state=\"enrolled\"}", |n| {
            n == 2.0
        });
    assert_eq!(node.handles(&netns), before);
    by_programs_and_back(&mesh, "after", &policy, &ztunnel);
    // One pod is deleted, and the other leaves the mesh.
    let gone = uid(&mesh, "before");
    node.kubectl(&["-n", mesh.name, "delete", "pod", "before"]);
    wait_for("ztunnel forgets it", || {
        (!ztunnel.pods().contains_key(&gone)).then_some(())
    });
    label(&mesh, "none");
    wait_for("it leaves", || {
        let is_left = annotation(&mesh, "after").is_empty() && ztunnel.pods().is_empty();
        is_left.then_some(())
    });
    assert!(!node.handles(&netns).contains("istio-ambient"));
    without_faults(&ztunnel, policy);
}

/// The pod changes from rules to programs and back while it sends requests.
fn by_programs_and_back(mesh: &Namespace, pod: &str, policy: &Policy, ztunnel: &Ztunnel) {
    let node = mesh.node;
    let netns = node.netns_of(mesh.name, pod);
    let since = found(mesh, pod).len();
    let (uid, programs) = (uid(mesh, pod), || {
        node.sh(&format!(
            "/node/weir/weir show --engine bpf --netns {netns}"
        ))
    });
    policy.patch(r#""WEIR_AMBIENT_ENGINE":"ebpf""#);
    wait_for("programs instead of rules", || {
        let is_so = programs().contains("eth0 tcx egress") && node.handles(&netns).is_empty();
        is_so.then_some(())
    });
    // Programs assign connections to transparent sockets, which the listener in the pod has not: ways.rs has such a listener.
    is_never_plain(mesh, pod, since);
    let captured = programs();
    assert!(
        !captured.contains("\n0 outbound connections captured"),
        "{captured}"
    );
    policy.patch(r#""WEIR_AMBIENT_ENGINE":"auto""#);
    wait_for("rules instead of programs", || {
        let is_so =
            !programs().contains("tcx") && node.handles(&netns).contains("istio-ambient-nat");
        is_so.then_some(())
    });
    ztunnel.snapshots(4);
    assert!(ztunnel.pods().contains_key(&uid));
    is_never_plain(mesh, pod, since);
    stays_captured(mesh, pod, found(mesh, pod).len());
}
