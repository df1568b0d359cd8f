//! Other programs that call CNI plugins, each in its own way.

use crate::node::{Node, node};
use crate::pods::Namespace;

/// A root file system with busybox, for callers that need one and use no images.
const ROOT: &str = "cd /tmp; mkdir -p rootfs/bin rootfs/proc rootfs/sys rootfs/dev rootfs/etc rootfs/tmp rootfs/run; \
    cp /bin/busybox rootfs/bin/busybox; ln -sf busybox rootfs/bin/sh";

/// Checks that the container printed an address of the pods' network, and that the address is released. Other pods may come and go
/// meanwhile.
#[track_caller]
fn gave_back(node: &Node, printed: &str) {
    let words = printed.split([' ', '/']);
    let address = words.skip_while(|word| *word != "inet").nth(1);
    let Some(address) = address.filter(|a| a.starts_with("10.88.")) else {
        panic!("no address of the network: {printed}");
    };
    let taken = node.sh("ls /run/cni-ipam/pods");
    assert!(!taken.lines().any(|a| a == address), "{address}: {taken}");
}

#[test]
fn ctr_starts_a_container() {
    let Some(node) = node() else { return };
    node.sh(ROOT);
    let run = "ctr run --rm --cni --rootfs /tmp/rootfs of-ctr /bin/sh -c 'busybox ip -4 address show eth0'";
    let printed = node.sh(run);
    gave_back(node, &printed);
}

#[test]
fn podman_starts_a_container() {
    let Some(node) = node() else { return };
    node.sh(ROOT);
    // crun does not support the control groups of every machine, and limits cannot be raised on every machine.
    let conf = r#"[containers]
default_ulimits = ["nofile=1024:1024","nproc=1024:1024"]
[network]
network_backend = "cni"
cni_plugin_dirs = ["/opt/cni/bin"]
network_config_dir = "/etc/cni/net.d"
default_network = "pods"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"#;
    let file = node.run(&["exec", "sh", "-ec", "cat >/tmp/containers.conf"], conf);
    assert!(file.status.success(), "{file:?}");
    let printed = node.sh(
        "CONTAINERS_CONF=/tmp/containers.conf podman --root /tmp/podman/root --runroot /tmp/podman/run --tmpdir /tmp/podman/tmp \
         run --rm --network pods --rootfs /tmp/rootfs /bin/sh -c 'busybox ip -4 address show eth0'",
    );
    gave_back(node, &printed);
}

/// CNI 1.1 has STATUS and GC, and so do newer plugins of the network.
///
/// They allocate addresses of their own, because GC releases every address that is not in its list.
#[test]
fn cnitool_calls_every_verb() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "tool");
    mesh.sidecar("one");
    mesh.ready(&["one"]);
    node.sh("mkdir -p /tmp/net.d
         jq '.cniVersion = \"1.1.0\" | .plugins[0].bridge = \"tool0\" | .plugins[0].ipam.dataDir = \"/run/tool-ipam\"
             | .plugins[0].ipam.ranges[0][0].subnet = \"10.89.0.0/16\" | del(.plugins[] | select(.type == \"gate\"))' \
             /etc/cni/net.d/10-bridge.conflist >/tmp/net.d/10-tool.conflist
         ip netns add tool");
    let call = |verb: &str| {
        let output = node.run(
            &["exec", "sh", "-ec", &format!(
                "CNI_PATH=/node/containerd2/usr/lib/cni:/opt/cni/bin NETCONFPATH=/tmp/net.d CNI_IFNAME=eth0 \
                 CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=tool;K8S_POD_NAME=one' cnitool {verb} pods /run/netns/tool"
            )],
            "",
        );
        assert!(output.status.success(), "{verb}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    call("status");
    let result = call("add");
    assert!(result.contains("\"address\": \"10.89."), "{result}");
    let rules = node.handles("/run/netns/tool");
    assert!(
        rules.contains("15001") && rules.contains("15006"),
        "{rules}"
    );
    call("check");
    node.sh("weir clean --netns /run/netns/tool");
    let broken = node.run(&["exec", "sh", "-ec",
        "CNI_PATH=/node/containerd2/usr/lib/cni:/opt/cni/bin NETCONFPATH=/tmp/net.d CNI_IFNAME=eth0 \
         CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=tool;K8S_POD_NAME=one' cnitool check pods /run/netns/tool"], "");
    assert!(
        !broken.status.success(),
        "a check without rules: {broken:?}"
    );
    call("gc");
    call("del");
    call("del");
    node.sh("ip netns del tool");
}
