//! What ambient mode was told to do.

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

/// What redirects pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Rules of netfilter in the pod's namespace.
    Rules,
    /// Programs of eBPF in the pod's namespace.
    Programs,
    /// Rules and routes in the node's namespace.
    Node,
    /// The same by programs of eBPF.
    NodePrograms,
}

/// The settings `AMBIENT_*` and those that belong to them, checked.
#[derive(Debug, Clone)]
pub(crate) struct AmbientSettings {
    /// Which pods are in the mesh.
    pub(crate) enablement: Enablement,
    /// Which ones are whatever labels their namespaces have.
    pub(crate) in_any_namespace: Enablement,
    /// Namespaces whose pods are not.
    pub(crate) exclude_namespaces: Vec<String>,
    /// Where ztunnel lives.
    pub(crate) system_namespace: String,
    /// Where this agent lives.
    pub(crate) own_namespace: String,
    /// What the rules of every pod have.
    pub(crate) rules: Config,
    /// Rules are made for nf_tables, whatever the namespace uses.
    pub(crate) native_nftables: bool,
    /// Probes to pods behind a branch ENI of AWS are let through.
    pub(crate) branch_enis: bool,
    /// What redirects pods, and where.
    pub(crate) way: Way,
    /// What becomes of pods that are captured at the node while no proxy is ready.
    pub(crate) without_proxy: WithoutProxy,
    /// Marks, tables, priorities and carrier at the node.
    pub(crate) node: weir_node_ambient::Config,
    /// Pods say by an annotation what is not to be captured of them.
    pub(crate) pod_exclude: bool,
    /// Where `config.json` is written for other programs.
    pub(crate) config_dir: PathBuf,
    /// Where the bpf file system for pins is mounted.
    bpffs: Option<PathBuf>,
    /// What programs of eBPF report of packets; `None`: nothing.
    pub(crate) packets: Option<&'static [Verdict]>,
    /// Socket of ztunnel.
    pub(crate) ztunnel: PathBuf,
    /// How often every pod is looked at.
    pub(crate) interval: Duration,
    /// Enrolled pods are proved to be redirected by a connection.
    pub(crate) live_proof: bool,
    /// Where processes of the host are seen, and its network namespace, if it is not this process's own.
    pub(crate) host: (PathBuf, Option<PathBuf>),
}

/// Where programs are pinned unless a setting names the place.
pub(super) fn bpffs_of(said: Option<PathBuf>) -> PathBuf {
    said.unwrap_or_else(|| host::seen(Path::new(BPFFS), |path| Bpffs::at(path).is_ok()))
}

impl AmbientSettings {
    /// Where programs are pinned.
    pub(crate) fn bpffs(&self) -> PathBuf {
        bpffs_of(self.bpffs.clone())
    }

    /// Reads and checks them; `None`: ambient mode is off.
    ///
    /// # Errors
    /// The first that cannot be used.
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

/// `WEIR_AMBIENT_NODE_CONFIG`: the rest of it comes from the cluster and from other settings.
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
