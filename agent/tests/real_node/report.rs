//! A report about a node, which the agent's container writes and the API server transfers.

use crate::node::node;
use crate::pods::Namespace;
use std::path::PathBuf;
use std::process::Command;

/// A directory that is deleted with this value.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_container_with_a_read_only_root_reports_its_node_without_secrets() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "reported");
    mesh.sidecar("web");
    mesh.ready(&["web"]);
    let exec = "-n istio-system exec daemonset/istio-cni-node -- weir preflight --bundle -";
    let args: Vec<&str> = ["kubectl"].into_iter().chain(exec.split(' ')).collect();
    let out = node.run(&args, "");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");

    let kubeconfig = node.sh("cat /var/run/istio-cni/istio-cni-kubeconfig");
    let token = kubeconfig
        .lines()
        .find_map(|l| l.trim().strip_prefix("token: "));
    let token = token.expect("a token").trim_matches('"');
    let has = |text: &str| out.stdout.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(
        token.len() > 100 && !has(token) && has("(contents are left out: it contains a token)")
    );

    let dir = Scratch(std::env::temp_dir().join(format!("weir-report-{}", std::process::id())));
    std::fs::create_dir(&dir.0).unwrap();
    let file = dir.0.join("node.tar");
    std::fs::write(&file, &out.stdout).unwrap();
    let script =
        "tar -xf node.tar && cd weir-bundle && sha256sum --check --strict --quiet SHA256SUMS";
    let unpacked = Command::new("sh")
        .args(["-ec", script])
        .current_dir(&dir.0)
        .output()
        .unwrap();
    assert!(unpacked.status.success(), "{unpacked:?}");
    let read = |name: &str| {
        let path = dir.0.join("weir-bundle").join(name);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{name}: {e}\n{said}"))
    };
    let settings = read("agent/settings.txt");
    assert!(
        settings.starts_with("# those of the running agent\n"),
        "{settings}"
    );
    assert!(
        settings.contains("--log_output_level=\"info\"  (flag --log_output_level; used)"),
        "{settings}"
    );
    assert!(read("agent/log.txt").contains("the plugin is installed and in force"));
    assert!(read("agent/status.json").contains("\"web\""));
    assert!(read("rules/pods/reported/web.txt").contains("15006"));
    // The rules of the node's own namespace, in which the container does not run.
    let rules = read("rules/node.txt");
    assert!(
        rules.starts_with("# net:[") && rules.contains("/host/proc/1/ns/net"),
        "{rules}"
    );
    let own = node.sh("readlink /proc/1/ns/net");
    assert!(rules.contains(own.trim()), "{own}{rules}");
    assert!(read("cni/listing.txt").contains(".conflist"));
    let versions = read("node/versions.txt");
    let name = node.sh("grep ^PRETTY_NAME= /etc/os-release");
    assert!(versions.contains(name.trim()), "{name}{versions}");
    assert!(read("preflight.txt").contains("\nsidecar "));
}

#[test]
fn the_runtime_of_the_node_tells_where_it_looks() {
    let Some(node) = node() else { return };
    let ask =
        "weir agent --explain-settings --weir-cri-socket unix:///run/containerd/containerd.sock";
    for root in ["/host", "/"] {
        let printed = node.sh(&format!("{ask} --weir-host-root {root}"));
        for (name, dir) in [
            ("MOUNTED_CNI_NET_DIR", "etc/cni/net.d"),
            ("WEIR_MOUNTED_CNI_BIN_DIR", "opt/cni/bin"),
        ] {
            let path = format!("{}/{dir}", root.trim_end_matches('/'));
            let line = format!("{name}=\"{path}\"  (container runtime; used)\n");
            assert!(printed.contains(&line), "{printed}");
        }
    }
}

#[test]
fn the_runtime_of_the_node_tells_where_a_pod_lives() {
    let Some(node) = node() else { return };
    let mesh = Namespace::new(node, "asked");
    mesh.sidecar("web");
    mesh.ready(&["web"]);
    let verify = |socket: &str| {
        let command = format!("weir verify pod asked/web --live --json --cri-socket {socket}");
        node.run(&["exec", "sh", "-ec", &command], "")
    };
    let out = verify("/run/containerd/containerd.sock");
    let proof = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{proof}{out:?}");
    assert!(
        proof.contains("15001") && proof.contains("15006"),
        "{proof}"
    );
    let out = verify("/run/nobody.sock");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("/run/nobody.sock: cannot connect"), "{said}");
}
