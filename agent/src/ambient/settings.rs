//! The settings of ambient mode.

use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_ambient::Config;
use weir_cni::plugin::Enablement;
use weir_cni::protocol::LabelSelector;
use weir_core::sandboxes::host;
use weir_core::settings::{Resolved, SettingError};
use weir_ebpf::events::Verdict;
use weir_ebpf::{BPFFS, Bpffs};
use weir_install::selectors;
use weir_node_ambient::WithoutProxy;

/// How pods are redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Netfilter rules in the pod's network namespace.
    Rules,
    /// eBPF programs in the pod's network namespace.
    Programs,
    /// Rules and routes in the node's network namespace.
    Node,
    /// eBPF programs in the node's network namespace.
    NodePrograms,
}

/// The settings `AMBIENT_*` and related ones, validated.
#[derive(Debug, Clone)]
pub(crate) struct AmbientSettings {
    /// The selectors of pods in the mesh.
    pub(crate) enablement: Enablement,
    /// Those of the selectors that apply in any namespace, regardless of its labels.
    pub(crate) in_any_namespace: Enablement,
    /// Namespaces whose pods are not in the mesh.
    pub(crate) exclude_namespaces: Vec<String>,
    /// The namespace of ztunnel.
    pub(crate) system_namespace: String,
    /// The namespace of this agent.
    pub(crate) own_namespace: String,
    /// The configuration of the rules, common to all pods.
    pub(crate) rules: Config,
    /// Rules are written to nf_tables, regardless of what the network namespace uses.
    pub(crate) native_nftables: bool,
    /// Probes to pods behind an AWS branch ENI are let through.
    pub(crate) branch_enis: bool,
    /// How and where pods are redirected.
    pub(crate) way: Way,
    /// The treatment of pods captured at the node while no proxy is ready.
    pub(crate) without_proxy: WithoutProxy,
    /// Marks, routing tables, priorities and tunnel at the node.
    pub(crate) node: weir_node_ambient::Config,
    /// Pods may exclude traffic from capture by an annotation.
    pub(crate) pod_exclude: bool,
    /// The directory where `config.json` is written for other programs.
    pub(crate) config_dir: PathBuf,
    /// The mount point of the bpf file system for pins, if set.
    bpffs: Option<PathBuf>,
    /// The packet events that eBPF programs report; `None`: none.
    pub(crate) packets: Option<&'static [Verdict]>,
    /// The path of ztunnel's socket.
    pub(crate) ztunnel: PathBuf,
    /// Interval between rounds over all pods.
    pub(crate) interval: Duration,
    /// Enrolled pods are tested with a connection.
    pub(crate) live_proof: bool,
    /// The host's `/proc`, and the path of its network namespace if it is not that of this process.
    pub(crate) host: (PathBuf, Option<PathBuf>),
}

/// Returns the path where programs are pinned; the default if no setting names it.
pub(super) fn bpffs_of(said: Option<PathBuf>) -> PathBuf {
    said.unwrap_or_else(|| host::seen(Path::new(BPFFS), Bpffs::may_be_at))
}

impl AmbientSettings {
    /// Returns the path where programs are pinned.
    pub(crate) fn bpffs(&self) -> PathBuf {
        bpffs_of(self.bpffs.clone())
    }

    /// Reads and validates the settings; `None`: ambient mode is off.
    ///
    /// # Errors
    /// The first invalid setting.
    pub(crate) fn of(r: &Resolved) -> Result<Option<Self>, SettingError> {
        let rules = Config::of_settings(|name| r.text(name), |name| r.bool(name));
        let rules = rules.map_err(|(name, why)| r.refused(name, why))?;
        let name = "AMBIENT_ENABLEMENT_SELECTOR";
        let mut pairs = selectors(r.text(name)).map_err(|e| r.refused(name, e))?;
        let enablement = Enablement::compile(&pairs).map_err(|e| r.refused(name, e))?;
        pairs.retain(|pair| pair.namespace_selector == LabelSelector::default());
        let in_any_namespace = Enablement::compile(&pairs).map_err(|e| r.refused(name, e))?;
        let name = "WEIR_AMBIENT_ENGINE";
        let way = match r.text(name) {
            "" | "auto" | "netfilter" => Way::Rules,
            "ebpf" => Way::Programs,
            "node" => Way::Node,
            "node-ebpf" => Way::NodePrograms,
            _ => {
                let why = "it is none of auto, netfilter, ebpf, node and node-ebpf";
                return Err(r.refused(name, why));
            }
        };
        let name = "WEIR_AMBIENT_WITHOUT_PROXY";
        let without_proxy = match r.text(name) {
            "" | "closed" => WithoutProxy::Closed,
            "open" => WithoutProxy::Open,
            _ => return Err(r.refused(name, "it is neither closed nor open")),
        };
        let name = "WEIR_EBPF_EVENTS";
        let packets: Option<&[Verdict]> = match r.text(name) {
            "" | "drops" => Some(&[Verdict::Dropped]),
            "all" => Some(&Verdict::ALL),
            "off" => None,
            _ => return Err(r.refused(name, "it is none of drops, all and off")),
        };
        let node = numbers(r)?;
        if !r.bool("AMBIENT_ENABLED") {
            return Ok(None);
        }
        Ok(Some(Self {
            enablement,
            in_any_namespace,
            exclude_namespaces: r.list("EXCLUDE_NAMESPACES"),
            system_namespace: r.text("SYSTEM_NAMESPACE").to_owned(),
            own_namespace: r.text("POD_NAMESPACE").to_owned(),
            rules,
            native_nftables: r.bool("NATIVE_NFTABLES"),
            branch_enis: r.bool("AMBIENT_ENABLE_AWS_BRANCH_ENI_PROBE"),
            way,
            without_proxy,
            node,
            pod_exclude: r.bool("WEIR_AMBIENT_POD_EXCLUDE"),
            config_dir: r.text("WEIR_AMBIENT_CONFIG_DIR").into(),
            packets,
            bpffs: Some(r.text("WEIR_BPFFS"))
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            ztunnel: r.path("ZTUNNEL_UDS_ADDRESS")?,
            interval: r.seconds("WEIR_VERIFY_INTERVAL")?,
            live_proof: r.bool("WEIR_LIVE_PROOF"),
            host: host::netns_of(r),
        }))
    }
}

/// Parses `WEIR_AMBIENT_NODE_CONFIG`. The other keys of that configuration follow from the cluster and from other settings.
fn numbers(r: &Resolved) -> Result<weir_node_ambient::Config, SettingError> {
    let name = "WEIR_AMBIENT_NODE_CONFIG";
    let text = r.text(name);
    if text.is_empty() {
        return Ok(weir_node_ambient::Config::default());
    }
    let config = weir_node_ambient::Config::from_json(text, name);
    let config = config.map_err(|e| r.refused(name, e.to_string()))?;
    let known = config.proxies.is_empty() && config.pods.is_empty() && !config.dns_capture;
    if !known || config.without_proxy != WithoutProxy::default() {
        let why = "it may have the keys tunnel, tunnel_port, host_addresses, exclude, marks and routing only: the others follow from the cluster and from other settings";
        return Err(r.refused(name, why));
    }
    Ok(config)
}
