//! One run of the plugin's protocol with a fake process.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_cni::protocol::{About, CniError, Edge, Handler, run};

/// An environment and a stdin.
#[derive(Clone, Debug, Default)]
pub struct FakeProcess {
    pub env: BTreeMap<String, String>,
    pub stdin: String,
}

/// The output of a run.
#[derive(Debug)]
pub struct Outcome {
    pub status: u8,
    pub stdout: String,
    pub stderr: String,
}

impl FakeProcess {
    /// A complete environment for a command.
    pub fn new(command: &str, stdin: &str) -> Self {
        let env = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", "container-1"),
            ("CNI_NETNS", "/run/netns/does-not-exist"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", ""),
            ("CNI_PATH", "/opt/cni/bin"),
        ];
        let env = env
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Self {
            env,
            stdin: stdin.to_owned(),
        }
    }

    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    pub fn unset(mut self, name: &str) -> Self {
        self.env.remove(name);
        self
    }

    /// `K8S_POD_NAMESPACE` and `K8S_POD_NAME` as a kubelet's runtime passes them.
    pub fn pod(self, namespace: &str, name: &str) -> Self {
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};X=y");
        self.set("CNI_ARGS", &args)
    }

    pub fn run(&self, handler: &mut dyn Handler) -> Outcome {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let edge = Edge {
            lookup: &|name| self.env.get(name).cloned(),
            stdin: &mut self.stdin.as_bytes(),
            stdout: &mut stdout,
            stderr: &mut stderr,
        };
        let status = run(
            edge,
            About {
                name: "weir-cni",
                version: "0.0.0",
            },
            handler,
        );
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Outcome {
            status,
            stdout: text(stdout),
            stderr: text(stderr),
        }
    }
}

impl Outcome {
    /// The result; fails the test when there is none.
    pub fn result(&self) -> Value {
        assert_eq!(self.status, 0, "{self:?}");
        serde_json::from_str(&self.stdout).expect("one JSON object")
    }

    /// The error object; fails the test when there is none.
    pub fn error(&self) -> CniError {
        assert_eq!(self.status, 1, "{self:?}");
        serde_json::from_str(&self.stdout).expect("one error object")
    }

    /// Asserts success and empty stdout.
    pub fn assert_silent(&self) {
        assert_eq!((self.status, self.stdout.as_str()), (0, ""), "{self:?}");
    }
}
