//! Ambient mode on a Kubernetes node, with a ztunnel that only speaks ZDS: it runs in the test, and reaches the agent
//! through the node's own files.

use crate::broken_pods::Policy;
use crate::node::{Node, node, wait_for};
use crate::pods::Namespace;
use std::path::PathBuf;
use weir_testing::ztunnel::Ztunnel;

const MODE: &str = "istio.io/dataplane-mode";

/// A pod without a sidecar.
fn plain(mesh: &Namespace, name: &str) {
    let namespace = mesh.name;
    mesh.node.apply(&format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
  - name: app
    image: localhost/busybox:1
    command: [nc, -ll, -p, "8080", -e, echo, application]
"#
    ));
}

fn annotation(mesh: &Namespace, pod: &str) -> String {
    let path = "jsonpath={.metadata.annotations.ambient\\.istio\\.io/redirection}";
    mesh.node
        .kubectl(&["-n", mesh.name, "get", "pod", pod, "-o", path])
}

fn uid(mesh: &Namespace, pod: &str) -> String {
    let path = "jsonpath={.metadata.uid}";
    mesh.node
        .kubectl(&["-n", mesh.name, "get", "pod", pod, "-o", path])
}

fn socket(node: &Node) -> PathBuf {
    let init = node.ok(&["pid"]).trim().to_owned();
    format!("/proc/{init}/root/run/ztunnel/ztunnel.sock").into()
}

fn label(mesh: &Namespace, mode: &str) {
    let label = format!("{MODE}={mode}");
    mesh.node
        .kubectl(&["label", "--overwrite", "namespace", mesh.name, &label]);
}

#[test]
fn pods_are_enrolled_healed_and_leave() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "ambient");
    plain(&mesh, "before");
    mesh.ready(&["before"]);
    let policy = Policy::set(node, r#""AMBIENT_ENABLED":"true""#);
    let ztunnel = Ztunnel::connect(&socket(node));
    ztunnel.snapshots(1);
    // One that runs already, and one that the plugin hands over.
    label(&mesh, "ambient");
    wait_for("it is enrolled", || {
        (annotation(&mesh, "before") == "enabled").then_some(())
    });
    plain(&mesh, "after");
    mesh.ready(&["after"]);
    wait_for("it is enrolled", || {
        (annotation(&mesh, "after") == "enabled").then_some(())
    });
    for pod in ["before", "after"] {
        assert!(ztunnel.pods().contains_key(&uid(&mesh, pod)), "{pod}");
        let netns = node.netns_of(mesh.name, pod);
        assert!(node.handles(&netns).contains("istio-ambient-nat"), "{pod}");
    }
    node.metrics()
        .wait("both", "weir_ambient_pods{state=\"enrolled\"}", |n| {
            n == 2.0
        });
    // The rules are lost.
    let netns = node.netns_of(mesh.name, "after");
    node.flush(&netns);
    wait_for("they are back", || {
        let rules = node.handles(&netns);
        rules.contains("istio-ambient-nat").then_some(())
    });
    // Another agent: nothing changes for them.
    let before = node.handles(&netns);
    node.kubectl(&[
        "-n",
        "istio-system",
        "rollout",
        "restart",
        "daemonset/istio-cni-node",
    ]);
    node.rolled_out();
    ztunnel.snapshots(2);
    node.metrics()
        .wait("both", "weir_ambient_pods{state=\"enrolled\"}", |n| {
            n == 2.0
        });
    assert_eq!(node.handles(&netns), before);
    // One is deleted, the other leaves.
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
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
    drop(policy);
}
