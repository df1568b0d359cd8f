//! The node as the plugin sees it: a directory with the plugin, its configuration and credentials.

use super::api::PodServer;
use super::scratch::Scratch;
use super::{EXCLUDED_INBOUND_PORT, Lab, excluded_cidr};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use weir_netlink::Netns;
use weir_runner::{Attachment, NetworkList, Runner};

const NAMESPACE: &str = "demo";
const POD: &str = "web";
const CONTAINER: &str = "weir-demo";

/// A throwaway node; dropping it removes its directory.
#[derive(Debug)]
pub(super) struct Node {
    scratch: Scratch,
    list: NetworkList,
    runner: Runner,
    _api: PodServer,
}

impl Node {
    /// Creates the directory and starts the substitute of the API server.
    ///
    /// # Errors
    /// A description of what could not be created.
    pub(super) fn create(lab: &Lab) -> Result<Self, String> {
        let fail = |e: io::Error| {
            format!(
                "cannot make {}: {e}; set TMPDIR to a writable directory that does not have it",
                Scratch::path_of_own().display()
            )
        };
        let scratch = Scratch::create().map_err(fail)?;
        let dir = scratch.path();
        std::fs::create_dir(dir.join("bin")).map_err(fail)?;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{POD}");
        let api = PodServer::start(path, pod(lab).to_string())
            .map_err(|e| format!("cannot listen on loopback: {e}; bring lo up"))?;
        std::fs::write(dir.join("istio-cni-kubeconfig"), kubeconfig(&api)).map_err(fail)?;
        let this = std::env::current_exe().map_err(fail)?;
        std::os::unix::fs::symlink(this, dir.join("bin/weir-cni")).map_err(fail)?;
        let conf = conflist(dir).to_string();
        let list = NetworkList::from_list(&conf, "the demonstration's network")
            .map_err(|e| e.to_string())?;
        let runner = Runner::new(vec![dir.join("bin")], dir.join("cache"));
        Ok(Self {
            scratch,
            list,
            runner,
            _api: api,
        })
    }

    /// Runs ADD.
    ///
    /// # Errors
    /// The plugin's error message.
    pub(super) fn add(&self, pod: &Netns) -> Result<Value, String> {
        self.runner
            .add(&self.list, &attachment(pod))
            .map_err(|e| e.to_string())
    }

    /// Runs CHECK.
    ///
    /// # Errors
    /// The plugin's error message.
    pub(super) fn check(&self, pod: &Netns) -> Result<(), String> {
        self.runner
            .check(&self.list, &attachment(pod))
            .map_err(|e| e.to_string())
    }

    /// Runs DEL.
    ///
    /// # Errors
    /// The plugin's error message.
    pub(super) fn del(&self, pod: &Netns) -> Result<(), String> {
        self.runner
            .del(&self.list, &attachment(pod))
            .map_err(|e| e.to_string())
    }

    /// The node's directory.
    #[must_use]
    pub(super) fn dir(&self) -> &Path {
        self.scratch.path()
    }
}

fn attachment(pod: &Netns) -> Attachment {
    Attachment {
        container_id: CONTAINER.to_owned(),
        netns: pod.path().display().to_string(),
        ifname: "eth0".to_owned(),
        args: Attachment::pod_args(NAMESPACE, POD, CONTAINER),
        ..Attachment::default()
    }
}

fn pod(lab: &Lab) -> Value {
    let excluded: Vec<String> = lab
        .families()
        .iter()
        .map(|f| excluded_cidr(lab, *f))
        .collect();
    let excluded = excluded.join(",");
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": NAMESPACE,
            "name": POD,
            "annotations": {
                "sidecar.istio.io/status": "{}",
                "traffic.sidecar.istio.io/excludeInboundPorts": EXCLUDED_INBOUND_PORT.to_string(),
                "traffic.sidecar.istio.io/excludeOutboundIPRanges": excluded,
            },
        },
        "spec": {
            "containers": [
                { "name": "app", "image": "app" },
                {
                    "name": "istio-proxy",
                    "image": "proxy",
                    "args": ["proxy", "sidecar"],
                    "env": [
                        { "name": "ISTIO_META_DNS_CAPTURE", "value": "true" },
                        { "name": "ISTIO_DUAL_STACK", "value": "true" },
                    ],
                    "securityContext": { "runAsUser": 1337, "runAsGroup": 1337 },
                },
            ],
        },
    })
}

fn conflist(dir: &Path) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "weir-demo",
        "plugins": [{
            "type": "weir-cni",
            "cni_agent_run_dir": dir.display().to_string(),
            // The plugin chooses an engine that this kernel has.
            "native_nftables": false,
            "plugin_log_level": "warn",
        }],
    })
}

fn kubeconfig(api: &PodServer) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: local\n  cluster:\n    server: http://{}\n\
         users:\n- name: weir\n  user:\n    token: demo\ncontexts:\n- name: weir\n  context:\n    \
         cluster: local\n    user: weir\ncurrent-context: weir\n",
        api.address()
    )
}
