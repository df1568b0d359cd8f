//! The input of the CNI plugin from container runtimes, Kubernetes and users.

use super::text;
use serde_json::Value;
use weir_cni::compile::{Engine, compile};
use weir_cni::config::NameFiles;
use weir_cni::pod::{Pod, PodFacts, Skip};
use weir_cni::protocol::{About, Call, CniArgs, CniError, Edge, Handler, NetConf, PrevResult, run};
use weir_rules::SidecarConfig;
use weir_runner::NetworkList;

/// Decodes what a real handler decodes, without entering a network namespace.
struct Reader;

impl Handler for Reader {
    fn add(&mut self, call: &Call) -> Result<Value, CniError> {
        self.check(call)?;
        match PrevResult::read(&call.config, &call.version)? {
            Some(result) => result.into_result(&call.version),
            None => weir_cni::protocol::empty(&call.version),
        }
    }

    fn check(&mut self, call: &Call) -> Result<(), CniError> {
        let _ = NetConf::read(call)?;
        let _ = CniArgs::parse(&call.env.args)?;
        if let Some(result) = PrevResult::read(&call.config, &call.version)? {
            let _ = result.addresses()?;
        }
        Ok(())
    }

    fn del(&mut self, call: &Call) -> Result<(), CniError> {
        self.check(call)
    }

    fn gc(&mut self, call: &Call) -> Result<(), CniError> {
        self.check(call)
    }

    fn status(&mut self, call: &Call) -> Result<(), CniError> {
        self.check(call)
    }
}

fn respond(environment: &[(&str, &str)], stdin: &[u8]) {
    let lookup = |name: &str| {
        let found = environment.iter().find(|(n, _)| *n == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let edge = Edge {
        lookup: &lookup,
        stdin: &mut &*stdin,
        stdout: &mut stdout,
        stderr: &mut stderr,
    };
    let about = About {
        name: "weir-fuzz",
        version: "0",
    };
    let status = run(edge, about, &mut Reader);
    // A runtime parses stdout as JSON unless it is empty.
    let is_json = stdout.is_empty() || serde_json::from_slice::<Value>(&stdout).is_ok();
    assert!(
        is_json,
        "stdout is not JSON: {}",
        String::from_utf8_lossy(&stdout)
    );
    assert!(status == 0 || !stdout.is_empty(), "failed without a word");
}

/// A whole CNI call: lines `NAME=VALUE` of the environment, an empty line, stdin.
pub(super) fn call(input: &[u8]) {
    let end = input
        .windows(2)
        .position(|w| w == b"\n\n")
        .unwrap_or(input.len());
    let (head, stdin) = input.split_at(end);
    let head = text(head);
    let variables: Vec<_> = head
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    respond(&variables, stdin);
}

/// The configuration on stdin, with every command.
pub(super) fn config(input: &[u8]) {
    for verb in ["ADD", "CHECK", "DEL", "GC", "STATUS", "VERSION"] {
        let environment = [
            ("CNI_COMMAND", verb),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_NETNS", "/var/run/netns/nobody"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_PATH", "/opt/cni/bin"),
            (
                "CNI_ARGS",
                "K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop;IgnoreUnknown=1",
            ),
        ];
        respond(&environment, input);
    }
}

/// A network configuration, as a list and as a single plugin.
pub(super) fn conflist(input: &[u8]) {
    let input = text(input);
    drop(NetworkList::from_list(&input, "fuzz.conflist"));
    drop(NetworkList::from_single(&input, "fuzz.conf"));
}

/// The manifest of a pod, and the decision whether to skip the pod.
pub(super) fn manifest(input: &[u8]) {
    if let Ok(pod) = Pod::from_manifest(&text(input), "fuzz") {
        drop(Skip::of(&PodFacts::of(&pod)));
    }
}

/// The configuration of a sidecar, compiled to the rules of both engines.
pub(super) fn sidecar(input: &[u8]) {
    let Ok(config) = SidecarConfig::from_json(&text(input), "fuzz") else {
        return;
    };
    if let Ok(intent) = config.intent(&NameFiles::default()) {
        for engine in [Engine::Nft, Engine::Xtables] {
            drop(format!("{:?}", compile(&intent, engine)));
        }
    }
}

/// A kubeconfig. The files that it names do not exist.
pub(super) fn kubeconfig(input: &[u8]) {
    // The process id separates processes that run at the same time.
    let folder = std::env::temp_dir().join(format!("weir-fuzz-{}", std::process::id()));
    let file = folder.join("kubeconfig");
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&file, input));
    if written.is_ok() {
        drop(weir_cni::api::check(&file).map_err(|e| e.to_string()));
    }
    let _ = std::fs::remove_dir_all(&folder);
}
