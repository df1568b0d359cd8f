//! Directories that stand for a node, and the agent that runs on them.

use socket2::{Domain, Socket, Type};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_core::settings::resolve;
use weir_install::Desired;
use weir_netlink::Netns;

/// Long enough for a machine that runs a hundred other processes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The network namespace of the node, in which agents remove leftovers: not that of the machine.
///
/// Returns `None` if this user may not create one; then the agent cannot remove anything either.
fn host_netns() -> Option<String> {
    static HOST: OnceLock<Option<Netns>> = OnceLock::new();
    let host = HOST.get_or_init(|| Netns::create().ok()).as_ref()?;
    Some(host.path().display().to_string())
}

/// `/etc/cni/net.d` and the other directories of a node, below one directory that is deleted with this value.
pub(crate) struct Node {
    pub(crate) root: PathBuf,
}

impl Node {
    /// A node with a plugin to install and a service account, without any CNI configuration.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("weir-node-{}-{n}", std::process::id()));
        // A killed process with the same number may have left the directory.
        let _ = std::fs::remove_dir_all(&root);
        for dir in ["net.d", "bin", "source", "account"] {
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        let node = Self { root };
        node.write("source/istio-cni", "the plugin, first version");
        node.write("account/token", "token-1");
        node.write("account/ca.crt", "a certificate\n");
        std::fs::set_permissions(
            node.path("source/istio-cni"),
            PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Like [`Node::write`], but nobody sees a part of the text.
    pub(crate) fn replace(&self, name: &str, text: &str) {
        self.write("beside", text);
        std::fs::rename(self.path("beside"), self.path(name)).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(crate) fn mode(&self, name: &str) -> u32 {
        std::fs::metadata(self.path(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    }

    /// The names in a directory, sorted.
    pub(crate) fn names(&self, dir: &str) -> Vec<String> {
        names(&self.path(dir))
    }

    /// The settings that make these directories the node's.
    pub(crate) fn env(&self) -> BTreeMap<String, String> {
        let path = |name: &str| self.path(name).display().to_string();
        let env = [
            ("MOUNTED_CNI_NET_DIR", path("net.d")),
            ("WEIR_MOUNTED_CNI_BIN_DIR", path("bin")),
            ("WEIR_CNI_BIN_SOURCE_DIR", path("source")),
            ("WEIR_SERVICE_ACCOUNT_DIR", path("account")),
            ("CNI_AGENT_RUN_DIR", path("run")),
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1".into()),
            ("KUBERNETES_SERVICE_PORT", "443".into()),
            ("POD_NAMESPACE", "istio-system".into()),
        ];
        let host = host_netns().map(|path| ("WEIR_HOST_NETNS", path));
        let env = env.into_iter().chain(host);
        env.map(|(k, v)| (k.to_owned(), v)).collect()
    }

    /// Starts an agent with further settings, and does not wait for it.
    pub(crate) fn start(&self, env: &[(&str, &str)], args: &[&str]) -> Agent {
        self.start_by(weir(), env, args)
    }

    /// Like [`Node::start`], with a command that precedes `agent`: another program may start `weir`.
    pub(crate) fn start_by(&self, command: Command, env: &[(&str, &str)], args: &[&str]) -> Agent {
        let mut all = self.env();
        all.extend(env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        self.start_with(command, &all, args)
    }

    /// Starts an agent with this environment and free ports, and no other settings.
    pub(crate) fn start_with(
        &self,
        command: Command,
        env: &BTreeMap<String, String>,
        args: &[&str],
    ) -> Agent {
        self.start_to(self.log().into(), command, env, args)
    }

    /// The file of the agents' log.
    fn log(&self) -> File {
        let mut options = std::fs::OpenOptions::new();
        let options = options.create(true).append(true);
        options.open(self.path("agent.log")).unwrap()
    }

    /// With this stdout, which the log goes to.
    pub(crate) fn start_to(
        &self,
        stdout: Stdio,
        mut command: Command,
        env: &BTreeMap<String, String>,
        args: &[&str],
    ) -> Agent {
        let (health, metrics) = (free_port(), free_port());
        command.arg("agent").args(args);
        command.env("WEIR_HEALTH_PORT", health.to_string());
        command.env("MONITORING_PORT", metrics.to_string());
        command.envs(env).stdin(Stdio::null());
        command.stdout(stdout).stderr(self.log());
        let child = command.spawn().unwrap();
        Agent {
            child,
            health,
            metrics,
            log: self.path("agent.log"),
        }
    }

    /// Starts an agent and waits until it is ready.
    pub(crate) fn ready(&self, env: &[(&str, &str)]) -> Agent {
        let mut agent = self.start(env, &[]);
        agent.wait_ready();
        agent
    }

    /// Runs `weir` with the settings of this node until it exits.
    pub(crate) fn run(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        weir()
            .args(args)
            .envs(self.env())
            .envs(env.iter().copied())
            .output()
            .unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// `weir` without the environment of the test.
pub(crate) fn weir() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.env_clear();
    command
}

pub(crate) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A free port outside the range of ephemeral ports, which no other test of this process gets.
///
/// The probe socket does not listen, and the agent's socket may share its port: a process that another test starts has a copy of the probe
/// socket until it executes its program.
fn free_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let offset = (std::process::id().wrapping_mul(97).wrapping_add(n)) % 12_000;
        let port = u16::try_from(20_000 + offset).unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_reuse_address(true).unwrap();
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        if socket.bind(&at.into()).is_ok() {
            return port;
        }
    }
}

/// A running agent, which is killed with this value.
pub(crate) struct Agent {
    child: Child,
    pub(crate) health: u16,
    pub(crate) metrics: u16,
    log: PathBuf,
}

impl Agent {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn is_ready(&self) -> bool {
        get(self.health, "/readyz").is_some_and(|(status, _)| status == 200)
    }

    pub(crate) fn wait_ready(&mut self) {
        let end = Instant::now() + PATIENCE;
        while !self.is_ready() {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the agent ended with {status}:\n{}", self.log());
            }
            assert!(Instant::now() < end, "not ready:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Polls until a condition holds; returns how long it took.
    pub(crate) fn until(&self, what: &str, holds: impl Fn() -> bool) -> Duration {
        let start = Instant::now();
        while !holds() {
            assert!(
                start.elapsed() < PATIENCE,
                "{what} never came to be:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        start.elapsed()
    }

    /// Waits until the log contains these words. The agent writes the log a little later than it does what it tells.
    pub(crate) fn says(&self, words: &str) {
        self.until(words, || self.log().contains(words));
    }

    /// The answer of the server for metrics and the status page.
    pub(crate) fn page(&self, path: &str) -> (u16, String) {
        self.answer(self.metrics, path)
    }

    /// The answer of the server for probes.
    pub(crate) fn probe(&self, path: &str) -> (u16, String) {
        self.answer(self.health, path)
    }

    /// The agent disconnects slow clients, and on a busy machine this client may be slow.
    fn answer(&self, port: u16, path: &str) -> (u16, String) {
        let end = Instant::now() + PATIENCE;
        loop {
            match get(port, path) {
                Some(answer) => return answer,
                None => assert!(Instant::now() < end, "no {path}:\n{}", self.log()),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The content of `/status.json`.
    pub(crate) fn facts(&self) -> serde_json::Value {
        let (status, text) = self.page("/status.json");
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    /// A number in `/metrics`; 0 if the metric is absent.
    pub(crate) fn metric(&self, line: &str) -> u64 {
        let (_, text) = self.page("/metrics");
        let found = text
            .lines()
            .find_map(|l| l.strip_prefix(line)?.strip_prefix(' ')?.parse().ok());
        found.unwrap_or(0)
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Waits until the agent exits.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends SIGTERM and waits for the clean-up.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        self.ended()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `curl http://127.0.0.1:PORT/PATH`; `None` if there is no answer.
pub(crate) fn get(port: u16, path: &str) -> Option<(u16, String)> {
    let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    exchange(stream, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

/// Sends a request verbatim; returns status and body of the answer.
pub(crate) fn exchange(mut stream: impl Read + Write, request: &str) -> Option<(u16, String)> {
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let body = answer.split_once("\r\n\r\n")?.1.to_owned();
    Some((status, body))
}

/// The desired state of these settings, without a process.
pub(crate) fn desired(env: &BTreeMap<String, String>, plugin_log_level: &str) -> Desired {
    let lookup = |name: &str| env.get(name).map(std::ffi::OsString::from);
    Desired::of(&resolve(&BTreeMap::new(), &lookup), plugin_log_level).unwrap()
}

/// The golden data of the installer. Prints a skip and returns `None` if they are not available.
pub(crate) fn golden() -> Option<PathBuf> {
    let Some(root) = std::env::var_os("WEIR_GOLDEN") else {
        println!("skipped: WEIR_GOLDEN does not name the directory of the golden cases");
        return None;
    };
    Some(PathBuf::from(root).join("install"))
}

/// A CNI configuration as another component would install it.
pub(crate) const BRIDGE: &str = r#"{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {"type": "bridge", "bridge": "cni0", "rate": 12345678901234567890.10},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
"#;
