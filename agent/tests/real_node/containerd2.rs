//! containerd 2 calls STATUS before each report of its own status, and calls DEL a second time without a namespace.

use crate::node::{Node, node, wait_for};
use crate::pods::Namespace;
use std::path::PathBuf;
use weir_core::sandboxes::cri::call::unary;

const SETUP: &str = r#"
mkdir -p /run/two /tmp/two/net.d
cat >/tmp/two/config.toml <<E
version = 3
root = "/var/lib/containerd/two"
state = "/run/two/state"
[grpc]
  address = "/run/two/containerd.sock"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/busybox:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/node/containerd2/usr/lib/cni", "/opt/cni/bin"]
  conf_dir = "/tmp/two/net.d"
E
jq '.cniVersion = "1.1.0" | .plugins[0].bridge = "two0" | .plugins[0].ipam.dataDir = "/run/two/ipam"
    | .plugins[0].ipam.ranges[0][0].subnet = "10.87.0.0/16"' /etc/cni/net.d/10-bridge.conflist >/tmp/two/net.d/10-two.conflist
export PATH=/node/containerd2/usr/bin:$PATH
setsid sh -c 'echo $$ >/run/two/pid; exec containerd --config /tmp/two/config.toml' </dev/null >/tmp/two/log 2>&1 &
"#;
const CTR: &str = "PATH=/node/containerd2/usr/bin:$PATH ctr -a /run/two/containerd.sock -n k8s.io";

/// A second containerd on the node; it ends with this value.
struct Second {
    node: &'static Node,
    socket: PathBuf,
}

impl Second {
    fn start(node: &'static Node) -> Self {
        node.sh(SETUP);
        let init = node.init();
        let socket = format!("/proc/{init}/root/run/two/containerd.sock").into();
        let second = Self { node, socket };
        wait_for("containerd 2 answers", || {
            let found = node.run(&["exec", "sh", "-ec", &format!("{CTR} version")], "");
            found.status.success().then_some(())
        });
        node.sh(&format!("{CTR} images import /node/images/busybox.tar"));
        second
    }

    /// Calls a method of CRI's RuntimeService.
    fn call(&self, method: &str, message: &[u8]) -> Vec<u8> {
        let method = format!("/runtime.v1.RuntimeService/{method}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let answer = runtime.block_on(unary(&self.socket, &method, message));
        let log = || self.node.sh("tail /tmp/two/log");
        answer
            .unwrap_or_else(|e| panic!("{method}: {e}; {}", log()))
            .to_vec()
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let end = "kill -KILL $(cat /run/two/pid); rm -f /run/two/pid";
        self.node.run(&["exec", "sh", "-c", end], "");
    }
}

/// A length-delimited field of protobuf. No field here exceeds 16 KiB.
fn field(number: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    let length = [(bytes.len() & 0x7f) as u8 | 0x80, (bytes.len() >> 7) as u8];
    [&[number << 3 | 2], &length[..], bytes].concat()
}

/// `RunPodSandboxRequest` (CRI v1): metadata, hostname, log directory, Linux options.
fn sandbox(namespace: &str, name: &str, uid: &str) -> Vec<u8> {
    let metadata = [field(1, name), field(2, uid), field(3, namespace)].concat();
    // The second field of NamespaceOption selects the PID namespace: 1 is a separate one for each container.
    let linux = [field(1, "/two"), field(2, field(1, [2 << 3, 1]))].concat();
    let config = [
        field(1, metadata),
        field(2, name),
        field(3, "/tmp/two/logs"),
        field(8, linux),
    ];
    field(1, config.concat())
}

/// The commands for which the plugins of its list were called since the last call of this function.
fn calls(node: &Node) -> String {
    node.sh("cat /run/gate-calls 2>/dev/null || true; rm -f /run/gate-calls")
}

#[test]
fn containerd_2_adds_a_pod_and_deletes_it_twice() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "second");
    // The pod belongs to another node, so the kubelet of this one ignores it.
    mesh.pod("one", "  nodeName: node2\n");
    let uid = mesh.field("one", ".metadata.uid");
    let second = Second::start(node);
    calls(node);

    second.call("Status", &[]);
    let asked = calls(node);
    assert!(asked.contains("STATUS container= netns= args="), "{asked}");

    let answer = second.call("RunPodSandbox", &sandbox("second", "one", &uid));
    let id = String::from_utf8(answer[2..].to_vec()).unwrap();
    let added = calls(node);
    let netns = added.lines().find_map(|l| {
        let call = l.strip_prefix("ADD ")?.split_whitespace().nth(1)?;
        call.strip_prefix("netns=")
    });
    let rules = node.handles(netns.expect("a call"));
    assert!(
        rules.contains("15001") && rules.contains("15006"),
        "{rules}"
    );

    second.call("StopPodSandbox", &field(1, &id));
    let stopped = calls(node);
    let first = format!("DEL container={id} netns=/");
    assert!(stopped.contains(&first), "{stopped}");
    second.call("RemovePodSandbox", &field(1, &id));
    let removed = calls(node);
    let again = format!("DEL container={id} netns= ");
    assert!(removed.contains(&again), "{removed}");
}
