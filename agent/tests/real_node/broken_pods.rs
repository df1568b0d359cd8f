//! Pods that started outside the mesh.

use crate::node::{Node, node, wait_for};
use crate::pods::Namespace;

/// An init container that exits like Istio's validation: with 126 if nothing is redirected.
const VALIDATION: &str = r#"  initContainers:
  - name: istio-validation
    image: localhost/busybox:1
    securityContext: {runAsUser: 1338}
    command:
    - sh
    - -c
    - "nc -ll -p 15001 -e echo outbound & for n in 1 2 3; do [ \"$(echo | nc -w 1 10.99.99.99 80)\" = outbound ] && exit 0; done; exit 126"
"#;

/// A node whose agent has other settings until this value is dropped.
pub(crate) struct Policy(&'static Node);

impl Policy {
    pub(crate) fn set(node: &'static Node, settings: &str) -> Self {
        let policy = Self(node);
        policy.patch(settings);
        policy
    }

    pub(crate) fn patch(&self, settings: &str) {
        let node = self.0;
        let patch = format!("{{\"data\":{{{settings}}}}}");
        let map = [
            "-n",
            "istio-system",
            "patch",
            "configmap",
            "istio-cni-config",
            "-p",
            &patch,
        ];
        node.kubectl(&map);
        node.restart();
        node.rolled_out();
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        self.patch(r#""AMBIENT_ENABLED":"false","NATIVE_NFTABLES":"false","WEIR_AMBIENT_ENGINE":"auto","REPAIR_REPAIR_PODS":"true","REPAIR_DELETE_PODS":"false","REPAIR_LABEL_PODS":"false""#);
    }
}

/// Creates a pod while the plugin is not in the configuration, and waits until its validation has failed.
fn start_outside(mesh: &Namespace, name: &str) {
    let node = mesh.node;
    let list = "/etc/cni/net.d/10-bridge.conflist";
    let agent = node.agent_pid();
    // A running agent would repair the list at once.
    node.sh(&format!(
        "kill -STOP {agent}
         jq 'del(.plugins[] | select(.type == \"istio-cni\"))' {list} >{list}.new; mv {list}.new {list}"
    ));
    mesh.pod(name, VALIDATION);
    wait_for("the validation fails", || {
        let code = ".status.initContainerStatuses[0].lastState.terminated.exitCode";
        (mesh.field(name, code) == "126").then_some(())
    });
    node.sh(&format!("kill -CONT {agent}"));
}

/// Waits for an event with this reason; the agent sends it after it has changed the pod.
fn is_told(mesh: &Namespace, pod: &str, reason: &str) {
    let field = format!("involvedObject.name={pod}");
    let path = "jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}";
    wait_for(reason, || {
        let events = mesh.node.kubectl(&[
            "-n",
            mesh.name,
            "get",
            "events",
            "--field-selector",
            &field,
            "-o",
            path,
        ]);
        events.contains(&format!("{reason}: ")).then_some(())
    });
}

#[test]
fn a_pod_is_repaired_in_place() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "repair");
    start_outside(&mesh, "one");
    mesh.ready(&["one"]);
    mesh.captured("one");
    let code = ".status.initContainerStatuses[0].state.terminated.exitCode";
    assert_eq!(mesh.field("one", code), "0");
}

/// A broken pod on a node whose agent has these settings; `rules` are the permissions that it needs besides reading pods.
fn broken(
    node: &'static Node,
    name: &'static str,
    settings: &str,
    rules: &str,
) -> (Namespace, Policy) {
    let read = r#"{"apiGroups":[""],"resources":["pods"],"verbs":["get","list","watch"]}"#;
    let tell = r#"{"apiGroups":[""],"resources":["events"],"verbs":["create","patch"]}"#;
    let rules = format!("{{\"rules\":[{read},{tell},{rules}]}}");
    let role = ["clusterrole", "istio-cni-repair-role", "--type=merge"];
    node.kubectl(&[&["patch"], &role[..], &["-p", &rules]].concat());
    let settings = format!("\"REPAIR_REPAIR_PODS\":\"false\",{settings}");
    let policy = Policy::set(node, &settings);
    let mesh = Namespace::new(node, name);
    start_outside(&mesh, "one");
    (mesh, policy)
}

#[test]
fn a_pod_is_deleted() {
    let Some(node) = node() else { return };
    let rules = r#"{"apiGroups":[""],"resources":["pods"],"verbs":["delete"]}"#;
    let (mesh, _policy) = broken(node, "delete", r#""REPAIR_DELETE_PODS":"true""#, rules);
    wait_for("the pod is deleted", || {
        let found = node.run(&["kubectl", "-n", "delete", "get", "pod", "one"], "");
        (!found.status.success()).then_some(())
    });
    is_told(&mesh, "one", "DeleteBrokenPod");
}

#[test]
fn a_pod_is_labelled() {
    let Some(node) = node() else { return };
    let rules = r#"{"apiGroups":[""],"resources":["pods/status"],"verbs":["patch","update"]}"#;
    let (mesh, _policy) = broken(node, "label", r#""REPAIR_LABEL_PODS":"true""#, rules);
    wait_for("the pod is labelled", || {
        let label = mesh.field("one", ".metadata.labels.cni\\.istio\\.io/uninitialized");
        (label == "true").then_some(())
    });
    is_told(&mesh, "one", "LabelBrokenPod");
}
