//! A node: a run directory, a fake kernel, and a plugin with short time limits.

use std::time::Duration;

use serde_json::{Value, json};
use weir_cni::log::Logger;
use weir_cni::plugin::{Limits, Plugin};

use super::TempDir;
use super::api_server::ApiServer;
use super::backend::FakeBackend;
use super::call::{FakeProcess, Outcome};

pub struct Node {
    pub dir: TempDir,
    pub backend: FakeBackend,
    pub config: Value,
    pub limits: Limits,
}

impl Node {
    pub fn new() -> Self {
        let dir = TempDir::new();
        let config = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "weir-cni",
            "cni_agent_run_dir": dir.path(), "pod_namespace": "istio-system",
            "exclude_namespaces": ["kube-system"], "native_nftables": true,
        });
        let limits = Limits {
            sidecar_attempts: 3,
            ambient_strict_attempts: 4,
            check_attempts: 2,
            pause: Duration::from_millis(1),
            ..Limits::default()
        };
        Self {
            dir,
            backend: FakeBackend::default(),
            config,
            limits,
        }
    }

    pub fn with_server(server: &ApiServer) -> Self {
        let node = Self::new();
        server.write_kubeconfig(&node.dir);
        node
    }

    /// A complete process environment for pod shop/web-0.
    pub fn process(&self, verb: &str) -> FakeProcess {
        FakeProcess::new(verb, &self.config.to_string()).pod("shop", "web-0")
    }

    pub fn run(&self, process: &FakeProcess) -> Outcome {
        let lookup = |name: &str| process.env.get(name).cloned();
        let log = Logger::new(Box::new(std::io::sink()));
        let mut plugin = Plugin {
            backend: &self.backend,
            log: &log,
            lookup: &lookup,
            limits: self.limits,
        };
        let outcome = process.run(&mut plugin);
        log.flush();
        outcome
    }

    pub fn verb(&self, verb: &str) -> Outcome {
        self.run(&self.process(verb))
    }
}
