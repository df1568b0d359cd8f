//! Commands that run on the node, as an administrator would run them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A deadline for a busy machine; what the tests wait for takes a second or two.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// The same deadline for kubectl.
///
/// A pod that is deleted seconds after its start may stay until the kubelet examines it again, about 70 s later, although its containers
/// have ended. Two such pods in a row take twice as long.
pub(crate) const TIMEOUT: &str = "--timeout=240s";
const MANIFEST: &str = include_str!("../../deploy/weir.yaml");
const AGENT: [&str; 2] = ["-n", "istio-system"];
/// The node's own network namespace.
pub(crate) const HOST: &str = "/proc/1/ns/net";

/// A running node, with the agent on it.
pub(crate) struct Node {
    script: PathBuf,
}

/// Prints a skip and returns `None` if there is no node.
pub(crate) fn node() -> Option<&'static Node> {
    static NODE: OnceLock<Option<Node>> = OnceLock::new();
    let node = NODE.get_or_init(|| {
        let node = Node {
            script: std::env::var_os("WEIR_NODE")?.into(),
        };
        node.install();
        Some(node)
    });
    if node.is_none() {
        println!("skipped: WEIR_NODE is not set: ci/node test starts a Kubernetes node for these");
    }
    node.as_ref()
}

/// The output of a command that must succeed.
#[track_caller]
fn printed(output: Output, what: &str) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Calls `ask` until it returns a value.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    wait_within(PATIENCE, what, ask)
}

#[track_caller]
pub(crate) fn wait_within<T>(
    patience: Duration,
    what: &str,
    mut ask: impl FnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + patience;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "{what}: not within {patience:?}");
        // One call starts several processes.
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Node {
    /// Runs `ci/node` with arguments.
    pub(crate) fn run(&self, args: &[&str], input: &str) -> Output {
        let mut child = Command::new(&self.script)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }

    #[track_caller]
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        printed(self.run(args, ""), &args.join(" "))
    }

    /// The process ID of the node's first process, on this machine.
    pub(crate) fn init(&self) -> String {
        self.ok(&["pid"]).trim().to_owned()
    }

    /// Runs a line of shell on the node.
    #[track_caller]
    pub(crate) fn sh(&self, script: &str) -> String {
        self.ok(&["exec", "sh", "-ec", script])
    }

    #[track_caller]
    pub(crate) fn kubectl(&self, args: &[&str]) -> String {
        self.ok(&[&["kubectl"], args].concat())
    }

    #[track_caller]
    pub(crate) fn apply(&self, manifest: &str) {
        printed(
            self.run(&["kubectl", "apply", "-f", "-"], manifest),
            manifest,
        );
    }

    /// Installs the container image and the manifest.
    fn install(&self) {
        let image =
            std::env::var("WEIR_NODE_IMAGE").expect("WEIR_NODE_IMAGE, as ci/node test sets it");
        let bytes = std::fs::File::open(&image).unwrap();
        let import = Command::new(&self.script)
            .args(["exec", "sh", "-ec"])
            .arg("cat >/tmp/image.tar; ctr -n k8s.io images import /tmp/image.tar")
            .stdin(bytes)
            .output()
            .unwrap();
        printed(import, &image);
        // The default period of ten seconds is too long for tests.
        let probe = "httpGet: {path: /readyz, port: 8000}";
        assert!(MANIFEST.contains(probe));
        self.apply(&MANIFEST.replace(probe, &format!("{probe}\n          periodSeconds: 1")));
        self.rolled_out();
    }

    /// Waits until pods are ready. Reports a slow node at once and keeps waiting, so that the delay can be analysed even if the test
    /// succeeds.
    #[track_caller]
    pub(crate) fn ready(&self, namespace: &str, pods: &[&str]) {
        let names: Vec<_> = pods.iter().map(|p| format!("pod/{p}")).collect();
        let mut args = vec!["kubectl", "-n", namespace, "wait"];
        args.extend(["--for=condition=Ready", "--timeout=45s"]);
        args.extend(names.iter().map(String::as_str));
        let start = Instant::now();
        loop {
            let waited = self.run(&args, "");
            if waited.status.success() {
                return;
            }
            let seconds = start.elapsed().as_secs();
            let errors = String::from_utf8_lossy(&waited.stderr);
            let told = format!("after {seconds} s: {errors}{}", self.told(namespace));
            assert!(seconds < 240, "{told}");
            // `eprintln!` output is captured unless the test fails.
            let _ = writeln!(std::io::stderr(), "{told}");
        }
    }

    /// The messages of the node's components when pods of a namespace do not start.
    fn told(&self, namespace: &str) -> String {
        let script = format!(
            "exec 2>&1
             kubectl get nodes,pods -A -o wide
             kubectl get nodes -o 'jsonpath={{.items[*].spec.taints}}{{.items[*].status.conditions}}'; echo
             kubectl -n {namespace} describe pods
             for service in scheduler controllers kubelet containerd; do
                 echo \"== $service\"; tail -n 40 /node/state/log/$service
             done
             echo '== agent'; tail -n 40 /var/log/pods/istio-system_istio-cni-node-*/install-cni/*.log
             echo '== calls'; tail -n 20 /run/gate-calls; ls -l /run/gate* /etc/cni/net.d /opt/cni/bin
             echo '== who has the plugin open: a program that is open for writing is not executed (ETXTBSY)'
             ls -l /proc/[0-9]*/task/[0-9]*/fd 2>/dev/null | grep -E '^/proc/|cni/bin/.*istio-cni' | grep -B 1 -- ' -> '
             ps -e -o pid,ppid,stat,etime,wchan:20,args"
        );
        let told = self.run(&["exec", "sh", "-c", &script], "");
        String::from_utf8_lossy(&told.stdout).into_owned()
    }

    /// Lets another agent take the place of the running one, without waiting for it.
    #[track_caller]
    pub(crate) fn restart(&self) {
        let restart = ["rollout", "restart", "daemonset/istio-cni-node"];
        self.kubectl(&[&AGENT[..], &restart].concat());
    }

    #[track_caller]
    pub(crate) fn rolled_out(&self) {
        let status = ["rollout", "status", "daemonset/istio-cni-node", TIMEOUT];
        self.kubectl(&[&AGENT[..], &status].concat());
    }

    /// The agent's process ID on the node.
    #[track_caller]
    pub(crate) fn agent_pid(&self) -> String {
        wait_for("an agent runs", || {
            let found = self.run(&["exec", "pgrep", "-x", "install-cni"], "");
            let pids = String::from_utf8_lossy(&found.stdout).trim().to_owned();
            (!pids.is_empty() && !pids.contains('\n')).then_some(pids)
        })
    }

    /// The logs of all agents of this node, including those that ended.
    pub(crate) fn agent_log(&self) -> String {
        self.sh("cat /var/log/pods/istio-system_istio-cni-node-*/install-cni/*.log || true")
    }

    fn agent_address(&self) -> String {
        let path = "jsonpath={.items[*].status.podIP}";
        let list = ["get", "pods", "-l", "k8s-app=istio-cni-node", "-o", path];
        wait_for("the agent has an address", || {
            let found = self.kubectl(&[&AGENT[..], &list].concat());
            let is_one = !found.is_empty() && !found.contains(' ');
            is_one.then_some(found)
        })
    }

    /// The metrics of the agent, read over the network of the pods.
    pub(crate) fn metrics(&self) -> Metrics<'_> {
        Metrics {
            node: self,
            address: self.agent_address(),
        }
    }

    /// The JSON behind the status page of the agent.
    pub(crate) fn status(&self) -> serde_json::Value {
        wait_for("the status page", || self.metrics().status())
    }

    /// The network namespace of a pod's sandbox, as a path on the node.
    pub(crate) fn netns_of(&self, namespace: &str, pod: &str) -> String {
        let script = format!(
            "ctr -n k8s.io containers list -q \
             'labels.\"io.kubernetes.pod.namespace\"=={namespace},labels.\"io.kubernetes.pod.name\"=={pod},labels.\"io.cri-containerd.kind\"==sandbox'"
        );
        let id = self.sh(&script).trim().to_owned();
        assert!(
            !id.is_empty() && !id.contains('\n'),
            "sandboxes of {namespace}/{pod}: {id:?}"
        );
        let info = self.sh(&format!("ctr -n k8s.io containers info {id}"));
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        let namespaces = info["Spec"]["linux"]["namespaces"].as_array().unwrap();
        let network = namespaces.iter().find(|n| n["type"] == "network").unwrap();
        network["path"].as_str().unwrap().to_owned()
    }

    /// A command of this machine in a namespace of the node: `/var/run/netns/NAME`, or the node's own, [`HOST`].
    pub(crate) fn entering(&self, netns: &str, command: &[&str]) -> Command {
        let init = self.init();
        let path = match netns.rsplit_once("/run/netns/") {
            Some((_, name)) => format!("--net=/proc/{init}/root/run/netns/{name}"),
            None => format!("--net=/proc/{init}/ns/net"),
        };
        let mut nsenter = Command::new("nsenter");
        nsenter.arg(&path).args(command);
        nsenter
    }

    /// The output of such a command, which must succeed.
    #[track_caller]
    pub(crate) fn inside(&self, netns: &str, command: &[&str]) -> String {
        let output = self.entering(netns, command).output();
        printed(output.unwrap(), &format!("{netns}: {command:?}"))
    }

    /// The rules of the host, with the addresses that probes may reach, each with the UID of its pod, by both engines.
    pub(crate) fn of_host(&self) -> String {
        self.handles(HOST) + &self.inside(HOST, &["ipset", "list"])
    }

    /// Removes all rules of a namespace, as another program would.
    pub(crate) fn flush(&self, netns: &str) {
        self.inside(netns, &["nft", "flush", "ruleset"]);
    }

    /// The rules of a namespace with their handles, listed by the real tool of this machine.
    pub(crate) fn handles(&self, netns: &str) -> String {
        let list = ["nft", "--stateless", "--handle", "list", "ruleset"];
        self.inside(netns, &list)
    }
}

/// The metrics of one agent, which do not need the API server.
pub(crate) struct Metrics<'a> {
    node: &'a Node,
    address: String,
}

impl Metrics<'_> {
    /// The complete answer to an HTTP request.
    fn ask(&self, path: &str) -> String {
        let question = format!("GET {path} HTTP/1.0\r\n\r\n");
        let connect = ["exec", "busybox", "nc", "-w", "5", &self.address, "15014"];
        let answer = self.node.run(&connect, &question);
        String::from_utf8_lossy(&answer.stdout).into_owned()
    }

    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        let [value] = self.all([name]);
        value
    }

    /// These values, at one moment.
    pub(crate) fn all<const N: usize>(&self, names: [&str; N]) -> [Option<f64>; N] {
        let text = self.ask("/metrics");
        names.map(|name| {
            let mut values = text.lines().filter_map(|l| l.strip_prefix(name));
            let value = values.find_map(|rest| rest.strip_prefix(' '))?;
            value.parse().ok()
        })
    }

    /// The JSON behind the status page, without a wait.
    pub(crate) fn status(&self) -> Option<serde_json::Value> {
        let answer = self.ask("/status.json");
        let (_, body) = answer.split_once("\r\n\r\n")?;
        serde_json::from_str(body).ok()
    }

    #[track_caller]
    pub(crate) fn wait(&self, what: &str, name: &str, is_right: impl Fn(f64) -> bool) {
        wait_for(&format!("{what} ({name})"), || {
            self.get(name).filter(|v| is_right(*v))
        });
    }
}
