//! Pods, and the destinations of their traffic.

use crate::node::{Node, TIMEOUT, node, wait_for};
use std::collections::BTreeSet;

/// An address that no machine has.
const NOWHERE: &str = "10.99.99.99";
/// Every ADD on the node blocks while this file exists.
const GATE: &str = "/run/gate";

/// The command of an application on port 8080.
const APPLICATION: &str = "    command: [nc, -ll, -p, '8080', -e, echo, application]\n";
/// A stand-in for the proxy.
const PROXY: &str = r#"  - name: istio-proxy
    image: localhost/busybox:1
    securityContext: {runAsUser: 1337, runAsGroup: 1337}
    command: [sh, -c, "nc -ll -p 15001 -e echo outbound & exec nc -ll -p 15006 -e echo inbound"]
"#;

/// A namespace of the cluster, which is deleted with its pods when this value is dropped.
pub(crate) struct Namespace {
    pub(crate) node: &'static Node,
    pub(crate) name: &'static str,
}

impl Namespace {
    pub(crate) fn new(node: &'static Node, name: &'static str) -> Self {
        node.apply(&format!(
            "---\n{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"
        ));
        Self { node, name }
    }

    /// Creates a pod with one container. `lines` are what the manifest says of the container, indented by four blanks, and then of the
    /// pod, by two.
    pub(crate) fn create(&self, pod: &str, annotations: &str, lines: &str) {
        let namespace = self.name;
        self.node.apply(&format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: {pod}, namespace: {namespace}, annotations: {annotations}}}
spec:
  terminationGracePeriodSeconds: 0
  automountServiceAccountToken: false
  containers:
  - name: app
    image: localhost/busybox:1
{lines}"
        ));
    }

    /// Creates a pod with an application on port 8080, and more lines as in [`Namespace::create`].
    pub(crate) fn application(&self, pod: &str, more: &str) {
        self.create(pod, "{}", &format!("{APPLICATION}{more}"));
    }

    /// Creates a pod with an application on port 8080 and a stand-in for the proxy, which reports the port on which it was reached.
    pub(crate) fn sidecar(&self, pod: &str) {
        self.pod(pod, "");
    }

    /// Like [`Namespace::sidecar`], with more lines of the specification, each indented by two blanks.
    pub(crate) fn pod(&self, pod: &str, more: &str) {
        let status = "{sidecar.istio.io/status: '{}'}";
        self.create(pod, status, &format!("{APPLICATION}{PROXY}{more}"));
    }

    /// A field of a pod, by its JSONPath; empty if it is not set.
    #[track_caller]
    pub(crate) fn field(&self, pod: &str, path: &str) -> String {
        let path = format!("jsonpath={{{path}}}");
        self.node
            .kubectl(&["-n", self.name, "get", "pod", pod, "-o", &path])
    }

    #[track_caller]
    pub(crate) fn ready(&self, pods: &[&str]) {
        self.node.ready(self.name, pods);
    }

    pub(crate) fn address(&self, pod: &str) -> String {
        self.field(pod, ".status.podIP")
    }

    /// Checks that both directions are captured, and that the proxy's own traffic is not.
    #[track_caller]
    pub(crate) fn captured(&self, pod: &str) {
        let connect = |container| {
            let script = format!("echo | nc -w 2 {NOWHERE} 80 || true");
            let exec = [
                "-n", self.name, "exec", pod, "-c", container, "--", "sh", "-c", &script,
            ];
            self.node.kubectl(&exec)
        };
        assert_eq!(connect("app").trim(), "outbound", "{pod}");
        assert_eq!(connect("istio-proxy").trim(), "", "{pod}");
        let inbound = format!("echo | busybox nc -w 2 {} 8080", self.address(pod));
        assert_eq!(self.node.sh(&inbound).trim(), "inbound", "{pod}");
    }

    #[track_caller]
    pub(crate) fn delete(&self, pod: &str) {
        self.node
            .kubectl(&["-n", self.name, "delete", "pod", pod, TIMEOUT]);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let args = ["kubectl", "delete", "namespace", self.name, "--wait=false"];
        self.node.run(&args, "");
    }
}

/// Network namespaces and addresses that pods use.
fn taken(node: &Node) -> BTreeSet<String> {
    let names = node.sh("ls /run/netns /run/cni-ipam/pods");
    names.split_whitespace().map(str::to_owned).collect()
}

/// Blocks the ADD calls of pods between the network's plugins and the plugin of weir.
pub(crate) struct Gate(&'static Node);

impl Gate {
    pub(crate) fn close(node: &'static Node) -> Self {
        node.sh(&format!("rm -f {GATE}-waits; touch {GATE}"));
        Self(node)
    }

    #[track_caller]
    pub(crate) fn somebody_waits(&self) {
        let seen = format!("{GATE}-waits");
        wait_for("an ADD waits", || {
            let found = self.0.run(&["exec", "test", "-e", &seen], "");
            found.status.success().then_some(())
        });
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.run(&["exec", "rm", "-f", GATE], "");
    }
}

/// A service of the node that is stopped until this value is dropped.
struct Away(&'static Node, &'static str);

impl Away {
    fn kill(node: &'static Node, service: &'static str) -> Self {
        node.ok(&["kill", service]);
        Self(node, service)
    }
}

impl Drop for Away {
    fn drop(&mut self) {
        for what in ["start", "wait"] {
            self.0.run(&[what, self.1], "");
        }
    }
}

#[test]
fn a_pod_is_redirected_and_leaves_nothing_behind() {
    let Some(node) = node() else { return };
    let before = taken(node);
    let mesh = Namespace::new(node, "redirected");
    mesh.sidecar("one");
    mesh.ready(&["one"]);
    mesh.captured("one");
    // Other pods may be deleted in the meantime.
    let ours: BTreeSet<_> = taken(node).difference(&before).cloned().collect();
    assert!(ours.len() >= 2, "a namespace and an address: {ours:?}");
    let line = wait_for("a line of the plugin", || {
        let log = node.agent_log();
        let mut lines = log.lines();
        let found = lines.find(|l| l.contains("pod=redirected/one"));
        found.map(str::to_owned)
    });
    assert!(
        line.contains("redirected by nft in ") && line.contains("verified"),
        "{line}"
    );
    mesh.delete("one");
    wait_for("nothing is left", || {
        taken(node).is_disjoint(&ours).then_some(())
    });
}

#[test]
fn a_pod_without_a_sidecar_is_left_alone() {
    let Some(node) = node() else { return };
    let plain = Namespace::new(node, "plain");
    plain.application("one", "");
    plain.ready(&["one"]);
    let answer = node.sh(&format!(
        "echo | busybox nc -w 2 {} 8080",
        plain.address("one")
    ));
    assert_eq!(answer.trim(), "application");
    assert_eq!(node.handles(&node.netns_of("plain", "one")), "");
}

#[test]
fn a_pod_starts_while_the_api_server_is_away() {
    let Some(node) = node() else { return };
    // Deleted pods of earlier tests would change the count.
    wait_for("no namespace is on its way out", || {
        let phases = "jsonpath={.items[*].status.phase}";
        let phases = node.kubectl(&["get", "namespaces", "-o", phases]);
        (!phases.contains("Terminating")).then_some(())
    });
    let mesh = Namespace::new(node, "no-api");
    let metrics = node.metrics();
    let known = metrics.get("weir_pods_watched").unwrap();
    let gate = Gate::close(node);
    mesh.sidecar("one");
    gate.somebody_waits();
    metrics.wait("the agent knows the pod", "weir_pods_watched", |n| {
        n > known
    });
    let away = Away::kill(node, "apiserver");
    drop(gate);
    let started = wait_for("the plugin adds the pod", || {
        let log = node.agent_log();
        log.lines()
            .find(|l| l.contains("pod=no-api/one"))
            .map(str::to_owned)
    });
    drop(away);
    assert!(started.contains("verified"), "{started}");
    mesh.ready(&["one"]);
    mesh.captured("one");
}
