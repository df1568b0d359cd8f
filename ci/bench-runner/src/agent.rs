//! `weir agent` with an API server in this process.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::setup::Setup;
use weir_testing::api_server::{Answer, ApiServer, Asked};
use weir_testing::pods;

/// The pods of the node, half of them without sidecar; the limit of a kubelet is usually lower.
pub(crate) const PODS: usize = 250;
/// The pods of the whole cluster, for a client that lists all of them, and its namespaces.
pub(crate) const CLUSTER: usize = 15_000;
const NAMESPACES: usize = 500;

/// A running `weir agent`; it is killed on drop.
pub(crate) struct Agent {
    child: Child,
    metrics: u16,
}

impl Agent {
    pub(crate) fn start(setup: &Setup, root: &Path, server: &ApiServer) -> Result<Self, String> {
        Self::start_with(setup, root, server, &[])
    }

    /// Starts the agent with additional settings.
    pub(crate) fn start_with(
        setup: &Setup,
        root: &Path,
        server: &ApiServer,
        settings: &[(&str, &str)],
    ) -> Result<Self, String> {
        let write = |name: &str, text: &str| {
            std::fs::write(root.join(name), text).map_err(|e| format!("{name}: {e}"))
        };
        write("account/token", "the-token")?;
        write("account/ca.crt", &server.ca_pem())?;
        let list = json!({"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "bridge"}]});
        write("net.d/10-n.conflist", &list.to_string())?;
        write("source/istio-cni", "the plugin")?;
        let ports = [(); 2].map(|()| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("an address").port()
        });
        let log = std::fs::File::create(root.join("log")).map_err(|e| e.to_string())?;
        let mut command = Command::new(setup.weir());
        for (name, dir) in [
            ("MOUNTED_CNI_NET_DIR", "net.d"),
            ("WEIR_MOUNTED_CNI_BIN_DIR", "bin"),
            ("WEIR_CNI_BIN_SOURCE_DIR", "source"),
            ("WEIR_SERVICE_ACCOUNT_DIR", "account"),
            ("CNI_AGENT_RUN_DIR", "run"),
        ] {
            command.env(name, root.join(dir));
        }
        let child = command
            .arg("agent")
            .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            .env("KUBERNETES_SERVICE_PORT", server.port.to_string())
            .env("POD_NAMESPACE", "istio-system")
            .env("NODE_NAME", "node1")
            .env("WEIR_HEALTH_PORT", ports[0].to_string())
            .env("MONITORING_PORT", ports[1].to_string())
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|e| e.to_string())?)
            .stderr(log)
            .spawn()
            .map_err(|e| e.to_string())?;
        let metrics = ports[1];
        Ok(Self { child, metrics })
    }

    /// Waits until the agent watches all pods and has installed the plugin. Returns its resident memory in KiB and its
    /// processor time in microseconds.
    pub(crate) fn wait(&self) -> Result<(f64, f64), String> {
        self.wait_for(&format!("weir_pods_watched {PODS}\n"))?;
        self.wait_for("istio_cni_install_ready 1\n")?;
        Ok((rss(self.pid())?, cpu(self.pid())?))
    }

    /// Waits until the agent's metrics contain this line.
    pub(crate) fn wait_for(&self, line: &str) -> Result<(), String> {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.metrics().is_some_and(|text| text.contains(line)) {
            if Instant::now() > end {
                return Err(format!("the agent does not come to say {:?}", line.trim()));
            }
            // The agent's answer is part of what is measured: at 10 ms it was a quarter of it.
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn metrics(&self) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).ok()?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        Some(text)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the resident memory of a process in KiB.
pub(crate) fn rss(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    let rss = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    rss.and_then(|l| l.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| format!("{path}: no VmRSS"))
}

/// Returns the processor time of all threads of a process, in microseconds.
pub(crate) fn cpu(pid: u32) -> Result<f64, String> {
    // The first field of schedstat is the thread's time on a processor, in nanoseconds.
    let tasks = format!("/proc/{pid}/task");
    let mut cpu = 0.0;
    for task in std::fs::read_dir(&tasks).map_err(|e| format!("{tasks}: {e}"))? {
        let path = task.map_err(|e| e.to_string())?.path().join("schedstat");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let first = text.split_whitespace().next();
        cpu += first
            .and_then(|n| n.parse::<f64>().ok())
            .unwrap_or_default()
            / 1e3;
    }
    Ok(cpu)
}

/// Creates the directories that an agent reads and writes, and additional ones.
pub(crate) fn directories(root: &Path, more: &[&str]) -> Result<(), String> {
    for dir in ["net.d", "bin", "source", "account", "run"]
        .iter()
        .chain(more)
    {
        std::fs::create_dir_all(root.join(dir)).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Answers with lists in one page, watches without events, and single pods.
pub(crate) fn answer(asked: &Asked) -> Answer {
    let parts: Vec<&str> = asked.path.split('/').collect();
    match parts[..] {
        _ if asked.streams() => Answer::Status(422),
        _ if asked.is_watch() => Answer::Hang,
        ["", "api", "v1", "pods"] => {
            let of = |kind: &'static str| (0..PODS / 2).map(move |n| pod(&format!("{kind}-{n}")));
            let elsewhere = match asked.get("fieldSelector") {
                "spec.nodeName=node1" => 0,
                _ => CLUSTER - PODS,
            };
            let others = (0..elsewhere).map(|n| pod(&format!("other-{n}")));
            let all = of("web").chain(of("plain")).chain(others);
            list("PodList", all.collect())
        }
        ["", "api", "v1", "namespaces"] => {
            list("NamespaceList", (0..NAMESPACES).map(namespace).collect())
        }
        ["", "api", "v1", "namespaces", _, "pods", name] => {
            Answer::Body(200, pod(name).to_string())
        }
        _ => Answer::Status(404),
    }
}

pub(crate) fn list(kind: &str, items: Vec<Value>) -> Answer {
    let list = json!({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "7"},
                      "items": items});
    Answer::Body(200, list.to_string())
}

fn namespace(n: usize) -> Value {
    let name = match n {
        0 => "shop".to_owned(),
        _ => format!("team-{n}"),
    };
    let labels = json!({"kubernetes.io/metadata.name": name, "istio-injection": "enabled"});
    pods::namespace(&name, labels)
}

/// The address of a pod with a sidecar.
pub(crate) fn address(n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 250, 0, 1).to_bits() + n as u32)
}

/// The UID of a pod: FNV-1a of its name.
pub(crate) fn uid(name: &str) -> String {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    format!("5c7f9b1e-0000-4000-8000-{:012x}", hash >> 16)
}

/// A pod of about 10 KiB, a usual size, most of which weir does not need.
fn pod(name: &str) -> Value {
    let mut pod = pods::sidecar("shop", name);
    if let Some(n) = name.strip_prefix("web-").and_then(|n| n.parse().ok()) {
        let ip = address(n).to_string();
        pod["status"] = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
    }
    pod["metadata"]["resourceVersion"] = "5".into();
    pod["metadata"]["uid"] = uid(name).into();
    pod["spec"]["nodeName"] = "node1".into();
    if name.starts_with("plain") {
        pod["spec"]["containers"]
            .as_array_mut()
            .expect("a list")
            .pop();
    }
    let fields: serde_json::Map<String, Value> = (0..300)
        .map(|n| (format!("f:field-{n}"), json!({"f:name": {}})))
        .collect();
    pod["metadata"]["managedFields"] = json!([{"manager": "kubelet", "fieldsV1": fields}]);
    pod
}
