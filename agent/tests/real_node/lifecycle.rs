//! Reboots of the node, and other programs that write the same configuration.

use crate::ambient::{ambient_mode, annotation, label, plain, socket, stays_captured, uid};
use crate::node::{node, wait_for};
use crate::pods::Namespace;
use weir_testing::ztunnel::Ztunnel;

const LIST: &str = "/etc/cni/net.d/10-bridge.conflist";

#[test]
fn after_a_reboot_pods_are_redirected_again() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "reboot");
    mesh.sidecar("one");
    let ambient = Namespace::new(node, "reboot-ambient");
    let (policy, ztunnel) = ambient_mode(node, "");
    label(&ambient, "ambient");
    plain(&ambient, "two");
    mesh.ready(&["one"]);
    ambient.ready(&["two"]);
    stays_captured(&ambient, "two", 0);
    let (old, uid) = (ztunnel.pods(), uid(&ambient, "two"));
    drop(ztunnel);
    let started = || mesh.field("one", ".status.containerStatuses[*].containerID");
    let before = started();
    node.ok(&["reboot"]);
    wait_for("the pod is started anew", || {
        let now = started();
        (now != before && now.split_whitespace().count() == 2).then_some(())
    });
    mesh.ready(&["one"]);
    node.rolled_out();
    mesh.captured("one");
    // Nothing drained the node: the earlier pods have new sandboxes and the same UID.
    let ztunnel = Ztunnel::connect(&socket(node));
    ambient.ready(&["two"]);
    // ztunnel receives this on its new connection. Inode numbers of namespaces are reused, so the new namespace may have that of the old
    // one.
    wait_for("ztunnel has the new namespace", || {
        ztunnel.pods().contains_key(&uid).then_some(())
    });
    assert!(old.contains_key(&uid));
    // Also in the containers before this one.
    stays_captured(&ambient, "two", 0);
    assert_eq!(annotation(&ambient, "two"), "enabled");
    drop(policy);
}

#[test]
fn another_installer_that_writes_in_a_loop_leaves_no_pod_outside() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "fight");
    // The installer of a network writes its list, without the plugin, repeatedly.
    node.sh(&format!(
        "jq 'del(.plugins[] | select(.type == \"istio-cni\"))' {LIST} >/tmp/theirs
         touch /tmp/fight
         setsid sh -c 'while [ -e /tmp/fight ]; do cp /tmp/theirs {LIST}.new; mv {LIST}.new {LIST}; sleep 0.2; done' \
             </dev/null >/dev/null 2>&1 &"
    ));
    let names = ["one", "two", "three", "four"];
    for name in names {
        mesh.sidecar(name);
    }
    mesh.ready(&names);
    let events = || {
        let path = "jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}";
        node.kubectl(&["-n", "istio-system", "get", "events", "-o", path])
    };
    let contested = "InstallationContested: another component keeps changing what is installed";
    wait_for("the cluster is told", || {
        events().contains(contested).then_some(())
    });
    node.sh("rm /tmp/fight");
    wait_for("the configuration is healed", || {
        node.sh(&format!("cat {LIST}"))
            .contains("istio-cni")
            .then_some(())
    });
    assert_eq!(events().matches(contested).count(), 1, "{}", events());
    let metrics = node.metrics();
    metrics.wait("all pods are verified", "weir_pods_verified", |n| {
        metrics.get("weir_pods_expected") == Some(n) && n >= 4.0
    });
    for name in names {
        mesh.captured(name);
    }
}
