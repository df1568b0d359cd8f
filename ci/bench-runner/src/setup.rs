//! The compared programs and their calls.

use std::path::Path;

use serde_json::{Value, json};

use crate::run::Call;

/// The configuration of the pod in the plugin's tests: capture everything, inbound and outbound.
const CONFIG: &str = r#"{"proxy_uid": "1337", "proxy_gid": "1337", "inbound_ports_include": "*",
    "inbound_ports_exclude": "15020,15021,15090", "outbound_ports_exclude": "15020",
    "outbound_ip_ranges_include": "*"}"#;

pub(crate) struct Setup {
    weir: String,
    weir_cni: String,
    pub(crate) empty: String,
    pub(crate) replay: String,
    pub(crate) peak: String,
    pub(crate) set: String,
    config: String,
    config_dual: String,
    lock: String,
}

/// The command in the namespace, entered through nsenter as scripts do.
pub(crate) fn entered(netns: &str, command: &[&str]) -> Call {
    let mut words = vec!["nsenter".to_owned(), format!("--net={netns}")];
    words.extend(command.iter().map(|w| (*w).to_owned()));
    Call {
        arguments: words,
        ..Call::default()
    }
}

impl Setup {
    /// Finds the binaries in a directory.
    pub(crate) fn new(dir: &Path, scratch: &crate::run::Scratch) -> Result<Self, String> {
        let find = |name: &str| {
            let path = dir.join(name);
            // Symbolic links to the programs are created in other directories, so the paths must be absolute.
            std::fs::canonicalize(&path)
                .map(|path| path.display().to_string())
                .map_err(|e| format!("{}: {e}; ci/bench builds it", path.display()))
        };
        let dual = CONFIG.replacen('{', r#"{"enable_ipv6": true, "#, 1);
        Ok(Self {
            weir: find("weir")?,
            weir_cni: find("weir-cni")?,
            empty: find("weir-bench-empty")?,
            replay: find("weir-bench-replay")?,
            peak: find("weir-bench-peak")?,
            set: find("weir-bench-set")?,
            config: scratch.write("config.json", CONFIG.as_bytes())?,
            config_dual: scratch.write("config-dual.json", dual.as_bytes())?,
            lock: scratch.path().join("xtables.lock").display().to_string(),
        })
    }

    /// The path of `weir`, which is also the node agent.
    pub(crate) fn weir(&self) -> &str {
        &self.weir
    }

    /// The path of the plugin.
    pub(crate) fn weir_cni(&self) -> &str {
        &self.weir_cni
    }

    pub(crate) fn apply(&self, netns: &str) -> Call {
        let Self { weir, config, .. } = self;
        Call::new(&[
            weir, "apply", "sidecar", "--config", config, "--netns", netns,
        ])
    }

    /// `weir apply` for both families, in legacy tables.
    pub(crate) fn apply_legacy(&self, netns: &str) -> Call {
        let Self {
            weir, config_dual, ..
        } = self;
        let wish = ["apply", "sidecar", "--config", config_dual];
        let place = ["--engine", "xtables", "--netns", netns];
        Call::new(&[&[weir.as_str()], &wish[..], &place[..]].concat())
    }

    /// `weir show` for one engine.
    pub(crate) fn show(&self, netns: &str, engine: &str) -> Call {
        Call::new(&[&self.weir, "show", "--engine", engine, "--netns", netns])
    }

    /// `weir restore` of ipset's text form.
    pub(crate) fn restore_sets(&self, netns: &str, file: &str) -> Call {
        Call::new(&[
            &self.weir, "restore", "--netns", netns, "--format", "ipset", file,
        ])
    }

    /// Uses a separate lock file of the legacy tools, which no other program on the machine takes.
    pub(crate) fn own_lock(&self, mut call: Call) -> Call {
        call.env
            .push(("XTABLES_LOCKFILE".to_owned(), self.lock.clone()));
        call
    }

    /// The two programs of the shell-out.
    pub(crate) fn shell_out(&self, netns: &str, rules: &str) -> Vec<Call> {
        let enter = format!("--net={netns}");
        vec![
            Call::new(&["nsenter", &enter, "nft", "-j", "list", "ruleset"]),
            Call::new(&["nsenter", &enter, "nft", "-f", rules]),
        ]
    }

    /// The rules in the kernel, listed by nft.
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
        let config = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "weir-cni", "native_nftables": true,
            "cni_agent_run_dir": run_dir, "pod_namespace": "istio-system",
            "exclude_namespaces": ["kube-system"],
        });
        call_of_plugin(&self.weir_cni, config, netns, ("shop", pod)).of_pod(&crate::agent::uid(pod))
    }
}

/// An ADD with this configuration, after a plugin that assigned an address.
pub(crate) fn call_of_plugin(
    program: &str,
    mut config: Value,
    netns: &str,
    (namespace, pod): (&str, &str),
) -> Call {
    config["prevResult"] = json!({
        "cniVersion": config["cniVersion"],
        "interfaces": [{"name": "eth0", "sandbox": netns}],
        "ips": [{"address": "10.244.0.5/24", "gateway": "10.244.0.1", "interface": 0, "version": "4"}]
    });
    let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={pod}");
    let env = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", pod),
        ("CNI_NETNS", netns),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
        ("CNI_ARGS", &args),
    ];
    Call {
        arguments: vec![program.to_owned()],
        env: env
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        stdin: config.to_string(),
    }
}
