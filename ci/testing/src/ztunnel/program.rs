//! Runs ztunnel's program without a cluster, and asks it what a test asks of the stand-in.

use super::{Ztunnel, listens, stand_in};
use crate::{Process, TempDir, namespace};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_netlink::route::{LOOPBACK_IFINDEX, Routing};

/// How long a test waits for an event: ztunnel connects again after up to 15 s.
const LONG: Duration = Duration::from_secs(30);
const ADMIN_PORT: u16 = 15000;
const READINESS_PORT: u16 = 15021;

/// A ztunnel as tests see it.
pub trait Peer {
    /// The pods that it carries: `NAMESPACE/NAME` and the service account, by UID.
    fn carried(&self) -> BTreeMap<String, (String, String)>;

    /// Whether it carries the pod, and in this namespace.
    fn is_in(&self, uid: &str, netns: &File) -> bool;

    /// Whether nothing of it is in this namespace.
    fn is_out_of(&self, netns: &File) -> bool;

    /// Whether a snapshot is complete and the connection is open.
    fn is_ready(&self) -> bool;

    /// The exit status if it has ended; a stand-in has 1.
    fn exited(&self) -> Option<i32>;

    /// For messages.
    fn log(&self) -> String {
        String::new()
    }
}

/// Waits until the condition holds for a ztunnel.
#[track_caller]
pub fn until(peer: &dyn Peer, what: &str, holds: impl Fn(&dyn Peer) -> bool) {
    let begun = Instant::now();
    while !holds(peer) {
        let (late, carried) = (begun.elapsed() > LONG, peer.carried());
        assert!(!late, "{what}: {carried:?}\n{}", peer.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Peer for Ztunnel {
    fn carried(&self) -> BTreeMap<String, (String, String)> {
        let pods = self.pods().into_iter();
        pods.map(|(uid, pod)| (uid, (pod.name, pod.service_account)))
            .collect()
    }

    fn is_in(&self, uid: &str, netns: &File) -> bool {
        let meta = netns.metadata().unwrap();
        let pod = self.pods().remove(uid);
        pod.is_some_and(|pod| pod.netns == (meta.dev(), meta.ino()))
    }

    fn is_out_of(&self, netns: &File) -> bool {
        !self.pods().keys().any(|uid| self.is_in(uid, netns))
    }

    fn is_ready(&self) -> bool {
        let state = self.state();
        state.connected && state.complete
    }

    fn exited(&self) -> Option<i32> {
        let state = self.state();
        (state.ended && !state.connected).then_some(1)
    }
}

/// The programs to test with: one that stands for ztunnel, and the real one if `ZTUNNEL` names it. `test` is the name of the test that
/// calls [`super::stands_for_ztunnel`].
pub fn programs(dir: &TempDir, test: &str) -> Vec<PathBuf> {
    let real = std::env::var_os("ZTUNNEL").map(PathBuf::from);
    if real.is_none() {
        println!(
            "skipped: ZTUNNEL names no program of ztunnel: this was tried against programs that stand for it ONLY"
        );
    }
    let stand_in = stand_in::script(dir, test);
    [Some(stand_in), real].into_iter().flatten().collect()
}

/// A process of ztunnel's program in a network namespace of its own; killed on drop.
pub struct Program {
    process: Mutex<Process>,
    pid: u32,
    netns: Netns,
    dir: TempDir,
}

impl Program {
    /// Starts it without a control plane; it connects to this socket. `None`, with the reason printed, if this user may not create a
    /// namespace.
    #[must_use]
    pub fn start(program: &Path, socket: &Path) -> Option<Self> {
        let (netns, dir) = (namespace()?, TempDir::new());
        let routing = Routing::open_in(&netns).unwrap();
        routing.set_up(LOOPBACK_IFINDEX).unwrap();
        let log = File::create(dir.file("log")).unwrap();
        let mut command = Command::new(program);
        command
            .args(["proxy", "ztunnel"])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("RUST_LOG", "info")
            .env("NODE_NAME", "node1")
            .env("CLUSTER_ID", "cluster1")
            .env("PROXY_MODE", "shared")
            // Empty: there is no control plane, and it connects at once.
            .env("XDS_ADDRESS", "")
            // No certificate is needed to carry a pod.
            .env("CA_ADDRESS", "https://127.0.0.1:15012")
            .env("INPOD_UDS", socket)
            .env("ZTUNNEL_WORKER_THREADS", "1")
            // It reads ./var/run/secrets and ./etc/istio/config.
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = netns.run(|| command.spawn()).unwrap();
        let child = child.unwrap_or_else(|e| panic!("{}: {e}", program.display()));
        Some(Self {
            pid: child.id(),
            process: Mutex::new(Process(child)),
            netns,
            dir,
        })
    }

    /// The status and the body of a page of it; `None` while it does not answer.
    fn page(&self, port: u16, path: &str) -> Option<(u16, String)> {
        let connect = || TcpStream::connect(("127.0.0.1", port));
        let mut stream = self.netns.run(connect).unwrap().ok()?;
        stream.set_read_timeout(Some(LONG)).unwrap();
        // The answer to HTTP/1.0 is not chunked and ends with the connection.
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, body.to_owned()))
    }

    /// `workloadState` of its configuration dump: the state of each pod, by UID.
    fn workloads(&self) -> BTreeMap<String, Value> {
        let Some((200, body)) = self.page(ADMIN_PORT, "/config_dump") else {
            return BTreeMap::new();
        };
        let dump: Value = serde_json::from_str(&body).unwrap_or_else(|e| panic!("{e}: {body}"));
        let all = dump["workloadState"].as_object().cloned();
        let all = all.unwrap_or_else(|| panic!("no workloadState: {body}"));
        all.into_iter().collect()
    }
}

impl Peer for Program {
    fn carried(&self) -> BTreeMap<String, (String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let carried = |(uid, of): (String, Value)| {
            let info = &of["info"];
            let name = format!("{}/{}", text(&info["namespace"]), text(&info["name"]));
            let is_up = of["state"] == "Up";
            is_up.then(|| (uid, (name, text(&info["serviceAccount"]))))
        };
        self.workloads().into_iter().filter_map(carried).collect()
    }

    fn is_in(&self, uid: &str, netns: &File) -> bool {
        let has_all = listens::of_process(self.pid, netns).is_superset(&listens::all());
        has_all && self.carried().contains_key(uid)
    }

    fn is_out_of(&self, netns: &File) -> bool {
        listens::of_process(self.pid, netns).is_empty()
    }

    fn is_ready(&self) -> bool {
        let page = self.page(READINESS_PORT, "/healthz/ready");
        page.is_some_and(|(status, _)| status == 200)
    }

    fn exited(&self) -> Option<i32> {
        let mut process = self.process.lock().unwrap();
        process
            .0
            .try_wait()
            .unwrap()
            .map(|status| status.code().unwrap_or(-1))
    }

    fn log(&self) -> String {
        self.dir.read("log")
    }
}
