//! The programs that are compared, and how each is called.

use std::path::Path;

use crate::run::Call;

/// What the pod of the plugin's tests wants: everything, in and out.
const CONFIG: &str = r#"{"proxy_uid": "1337", "proxy_gid": "1337", "inbound_ports_include": "*",
    "inbound_ports_exclude": "15020,15021,15090", "outbound_ports_exclude": "15020",
    "outbound_ip_ranges_include": "*"}"#;

pub(crate) struct Setup {
    weir: String,
    weir_cni: String,
    pub(crate) empty: String,
    pub(crate) replay: String,
    config: String,
}

impl Setup {
    /// The binaries of one folder.
    pub(crate) fn new(dir: &Path, scratch: &crate::run::Scratch) -> Result<Self, String> {
        let find = |name: &str| {
            let path = dir.join(name);
            let missing = || format!("{}: no such program; ci/bench builds it", path.display());
            path.exists()
                .then(|| path.display().to_string())
                .ok_or_else(missing)
        };
        Ok(Self {
            weir: find("weir")?,
            weir_cni: find("weir-cni")?,
            empty: find("weir-bench-empty")?,
            replay: find("weir-bench-replay")?,
            config: scratch.write("config.json", CONFIG.as_bytes())?,
        })
    }

    pub(crate) fn apply(&self, netns: &str) -> Call {
        let Self { weir, config, .. } = self;
        Call::new(&[
            weir, "apply", "sidecar", "--config", config, "--netns", netns,
        ])
    }

    /// The two programs that do the same from outside.
    pub(crate) fn shell_out(&self, netns: &str, rules: &str) -> Vec<Call> {
        let enter = format!("--net={netns}");
        vec![
            Call::new(&["nsenter", &enter, "nft", "-j", "list", "ruleset"]),
            Call::new(&["nsenter", &enter, "nft", "-f", rules]),
        ]
    }

    /// What the kernel holds, by an independent witness.
    pub(crate) fn listing(&self, netns: &str) -> Result<String, String> {
        Call::new(&[
            "nsenter",
            &format!("--net={netns}"),
            "nft",
            "list",
            "ruleset",
        ])
        .output()
    }

    /// An ADD of the plugin for a pod of this name.
    pub(crate) fn add(&self, netns: &str, pod: &str, run_dir: &Path) -> Call {
        let stdin = serde_json::json!({
            "cniVersion": "1.1.0", "name": "net", "type": "weir-cni", "native_nftables": true,
            "cni_agent_run_dir": run_dir, "pod_namespace": "istio-system",
            "exclude_namespaces": ["kube-system"],
            "prevResult": {
                "cniVersion": "1.1.0",
                "interfaces": [{"name": "eth0", "sandbox": netns}],
                "ips": [{"address": "10.244.0.5/24", "gateway": "10.244.0.1", "interface": 0}]
            }
        });
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod}");
        let env = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", pod),
            ("CNI_NETNS", netns),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
            ("CNI_ARGS", &args),
        ];
        let env = env
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Call {
            arguments: vec![self.weir_cni.clone()],
            env,
            stdin: stdin.to_string(),
        }
    }
}
