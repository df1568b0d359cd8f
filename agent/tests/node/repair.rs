//! Pods outside the mesh: a process in a network namespace with the pod's address, and the object of the API server.

use crate::api_server::{Answer, ApiServer, Asked, pod};
use crate::groups::Group;
use crate::support::{Agent, BRIDGE, Node};
use crate::unasked::{OFTEN, plain, redirect_by};
use serde_json::{Value, json};
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use weir_netlink::Netns;
use weir_netlink::route::Routing;

/// A namespace with an address on `lo`, and a process in it that is in the control group of a pod.
pub(crate) struct Sandbox {
    netns: Netns,
    process: Child,
    group: Group,
    pub(crate) address: String,
}

impl Sandbox {
    /// Creates the sandbox of the pod with this name, as [`sidecar`] describes it.
    ///
    /// Prints the reason and returns `None` if a namespace or a control group cannot be created.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::within(Group::of_pod(&format!("uid-{name}"))?)
    }

    /// Creates the sandbox in this control group.
    pub(crate) fn within(group: Group) -> Option<Self> {
        // Other tests run at the same time, also in other processes.
        static COUNT: AtomicU16 = AtomicU16::new(1);
        let [high, low] = (std::process::id() as u16).to_be_bytes();
        let [more, n] = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let address = format!("{}.{high}.{low}.{n}", 10 + more);
        Self::at(group, address)
    }

    fn at(group: Group, address: String) -> Option<Self> {
        let netns = weir_testing::namespace()?;
        let net = format!("{address}/32").parse().unwrap();
        let add = || {
            let routing = Routing::open()?;
            let lo = routing.link("lo")?.index;
            routing.set_up(lo)?;
            routing.add_address(lo, net)
        };
        assert!(netns.run(add).unwrap().unwrap());
        let process = process(&netns);
        group.take(process.id());
        Some(Self {
            netns,
            process,
            group,
            address,
        })
    }

    /// Replaces the process by a younger one.
    pub(crate) fn again(mut self) -> Self {
        let process = process(&self.netns);
        self.group.take(process.id());
        let mut old = std::mem::replace(&mut self.process, process);
        let _ = old.kill();
        let _ = old.wait();
        self
    }

    /// Another namespace with the same address, of the pod with this name.
    pub(crate) fn twin(&self, name: &str) -> Option<Self> {
        Self::at(Group::of_pod(&format!("uid-{name}"))?, self.address.clone())
    }

    pub(crate) fn netns(&self) -> &Netns {
        &self.netns
    }

    /// The output of `nft` or another tool in the namespace.
    pub(crate) fn tool(&self, program: &str, arguments: &[&str]) -> String {
        let output = within(self.netns.path().as_path(), program)
            .args(arguments)
            .stdout(Stdio::piped())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The output of `ip` with these words in the namespace.
    pub(crate) fn ip(&self, words: &str) -> String {
        self.tool("ip", &words.split(' ').collect::<Vec<_>>())
    }

    /// Adds a link with this address. Its other end is in the same namespace.
    pub(crate) fn link(&self, name: &str, address: &str) {
        let peer = format!("{name}p");
        self.ip(&format!("link add {name} type veth peer name {peer}"));
        for link in [name, &peer] {
            self.ip(&format!("link set {link} up"));
        }
        self.ip(&format!("address add {address} dev {name}"));
    }

    pub(crate) fn rules(&self) -> String {
        self.tool("nft", &["list", "ruleset"])
    }

    pub(crate) fn is_redirected(&self) -> bool {
        self.rules().contains("redirect to :15001")
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a process and waits until it is in the namespace.
fn process(netns: &Netns) -> Child {
    let mut command = within(netns.path().as_path(), "sh");
    command.args(["-c", "echo; exec sleep 1000"]);
    command.stdout(Stdio::piped());
    let mut child = command.spawn().expect("nsenter is there");
    let mut said = child.stdout.take().expect("a pipe");
    said.read_exact(&mut [0]).expect("a line from within");
    child
}

fn within(netns: &Path, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", netns.display()))
        .arg(program);
    command.stdin(Stdio::null());
    command
}

/// A running pod with a sidecar and this address.
pub(crate) fn sidecar(name: &str, address: &str) -> Value {
    let mut pod = pod("shop", name, &format!("uid-{name}"));
    pod["metadata"]["annotations"] = json!({"sidecar.istio.io/status": "{}"});
    pod["spec"]["containers"] = json!([
        {"name": "app"},
        {"name": "istio-proxy", "args": ["proxy", "sidecar"], "securityContext": {"runAsUser": 1337}}
    ]);
    pod["status"] = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
    pod
}

/// Like [`sidecar`], after `istio-validation` found that nothing is redirected.
pub(crate) fn broken(name: &str, address: &str) -> Value {
    let mut pod = sidecar(name, address);
    pod["status"]["initContainerStatuses"] = json!([{
        "name": "istio-validation", "restartCount": 1, "state": {"waiting": {}},
        "lastState": {"terminated": {"exitCode": 126, "reason": "Error"}}
    }]);
    pod
}

pub(crate) fn start(node: &Node, server: &ApiServer, settings: &[(&str, &str)]) -> Agent {
    node.write("net.d/10-pods.conflist", BRIDGE);
    let env = server.env();
    let mut env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    env.extend([("REPAIR_NODE_NAME", "node1"), ("NATIVE_NFTABLES", "true")]);
    env.extend(settings);
    node.ready(&env)
}

fn repaired(agent: &Agent, action: &str, result: &str) -> u64 {
    agent.metric(&format!(
        "istio_cni_repair_pods_repaired_total{{type=\"{action}\",result=\"{result}\"}}"
    ))
}

fn healed(agent: &Agent, result: &str) -> u64 {
    agent.metric(&format!(
        "weir_repairs_total{{cause=\"state\",result=\"{result}\"}}"
    ))
}

/// The requests that changed something in the API server, or recorded an event.
fn written(server: &ApiServer) -> Vec<Asked> {
    let all = server.asked().into_iter();
    all.filter(|asked| asked.method != "GET").collect()
}

pub(crate) fn events(server: &ApiServer, reason: &str) -> Vec<Asked> {
    let all = written(server).into_iter();
    all.filter(|asked| asked.body["reason"] == reason).collect()
}

pub(crate) const IN_PLACE: (&str, &str) = ("REPAIR_REPAIR_PODS", "true");

#[test]
fn a_pod_without_rules_is_repaired_and_one_whose_rule_goes_too() {
    let (Some(sandbox), Some(other)) = (Sandbox::of("web"), Sandbox::of("plain")) else {
        return;
    };
    let server = ApiServer::start();
    server.put(sidecar("web", &sandbox.address));
    let mut plain = sidecar("plain", &other.address);
    plain["metadata"]["annotations"] = json!({});
    server.put(plain);
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, ("WEIR_VERIFY_INTERVAL", "1")]);
    agent.until("redirected", || healed(&agent, "success") == 1);
    assert!(sandbox.is_redirected());
    agent.until("the event", || {
        events(&server, "RedirectionRepaired").len() == 1
    });
    let event = &events(&server, "RedirectionRepaired")[0];
    assert_eq!(event.path, "/api/v1/namespaces/shop/events");
    assert_eq!(event.body["involvedObject"]["uid"], "uid-web");
    assert_eq!(event.body["source"]["component"], "cni-repair");
    // `weir verify` of an operator finds the same state.
    node.write("pod.json", &sidecar("web", &sandbox.address).to_string());
    let (manifest, netns) = (node.path("pod.json"), sandbox.netns.path());
    let [manifest, netns] = [manifest, netns].map(|path| path.display().to_string());
    let arguments = [
        "verify", "sidecar", "--engine", "nft", "--pod", &manifest, "--netns", &netns,
    ];
    let verified = node.run(&arguments, &[]);
    assert!(verified.status.success(), "{verified:?}");
    // Another program deletes a table.
    let rules = sandbox.rules();
    sandbox.tool("nft", &["delete", "table", "inet", "istio-proxy-nat"]);
    agent.until("redirected again", || healed(&agent, "success") == 2);
    assert_eq!(sandbox.rules(), rules);
    assert_eq!(agent.metric("weir_drift_total{cause=\"missing\"}"), 2);
    agent.until("counted", || {
        let counted = ["expected", "verified"].map(|of| agent.metric(&format!("weir_pods_{of}")));
        counted == [1, 1]
    });
    // A repeated repair causes no further event unless the process that caused it is known. A repair with another cause does.
    assert!(events(&server, "RedirectionRepaired").len() <= 2, "damped");
    let is_of = |event: &Asked| {
        event.body["message"]
            .as_str()
            .is_some_and(|m| m.contains("unexpected"))
    };
    assert!(!events(&server, "RedirectionRepaired").iter().any(is_of));
    let rule = [
        "insert",
        "rule",
        "inet",
        "istio-proxy-nat",
        "istio-output",
        "accept",
    ];
    sandbox.tool("nft", &rule);
    agent.until("the rule is gone", || healed(&agent, "success") == 3);
    agent.until("another event", || {
        events(&server, "RedirectionRepaired").iter().any(is_of)
    });
    assert_eq!(other.rules(), "", "it asks for nothing");
}

/// The API server accepts events but never answers.
#[test]
fn events_that_nobody_takes_hold_up_no_repair() {
    const PODS: usize = 30;
    let sandboxes: Option<Vec<_>> = (0..PODS)
        .map(|n| Sandbox::of(&format!("many-{n}")))
        .collect();
    let Some(sandboxes) = sandboxes else { return };
    let server = ApiServer::start();
    server.fault(|asked| {
        let hangs = Answer::Drip(std::time::Duration::from_secs(60));
        (asked.method == "POST").then_some(hangs)
    });
    for (n, sandbox) in sandboxes.iter().enumerate() {
        server.put(sidecar(&format!("many-{n}"), &sandbox.address));
    }
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE]);
    agent.until("all", || healed(&agent, "success") == PODS as u64);
    // The agent waits ten seconds for one event, and there is one event for each pod.
    let given_up = agent.metric("weir_events_total{result=\"failed\"}");
    assert!(given_up < PODS as u64 / 2, "{given_up}");
    assert!(sandboxes.iter().all(Sandbox::is_redirected));
    agent.until("one is given up", || {
        agent.metric("weir_events_total{result=\"failed\"}") >= 1
    });
    agent.says("no event RedirectionRepaired on pod shop/many-");
    // The agent logs this once, not thirty times.
    assert_eq!(agent.log().matches("no event ").count(), 1);
}

#[test]
fn a_broken_pod_is_repaired_in_place_once() {
    let Some(sandbox) = Sandbox::of("web") else {
        return;
    };
    let server = ApiServer::start();
    // The plugin would not redirect this pod: the criteria of repair alone decide.
    let mut pod = broken("web", &sandbox.address);
    pod["status"]["phase"] = "Unknown".into();
    server.put(pod.clone());
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE, ("REPAIR_DELETE_PODS", "true")]);
    agent.until("repaired", || repaired(&agent, "repair", "success") == 1);
    assert!(sandbox.is_redirected());
    // The status stays like this until the container runs again.
    pod["status"]["initContainerStatuses"][0]["restartCount"] = 2.into();
    server.put(pod.clone());
    server.put(sidecar("later", "192.0.2.1"));
    agent.until("seen", || agent.metric("weir_pods_watched") == 2);
    assert_eq!(repaired(&agent, "repair", "success"), 1);
    // Another pod with the same name; the agent did not see the deletion of the first.
    let next = sandbox.twin("next").unwrap();
    pod["metadata"]["uid"] = "uid-next".into();
    server.put(pod);
    agent.until("repaired", || repaired(&agent, "repair", "success") == 2);
    assert!(next.is_redirected());
    assert_eq!(written(&server).len(), 0, "no event, and nothing deleted");
}

/// Upstream does not watch these pods.
#[test]
fn pods_that_are_not_selected_are_neither_verified_nor_repaired() {
    let names = ["web", "plain", "other-web", "other-plain"];
    let sandboxes: Option<Vec<_>> = names.iter().map(|name| Sandbox::of(name)).collect();
    let Some(sandboxes) = sandboxes else { return };
    let [web, unasked, other_web, other_unasked] = &sandboxes[..] else {
        panic!("four names");
    };
    let (node, server) = (Node::new(), ApiServer::start());
    redirect_by(&node, unasked, "nft");
    redirect_by(&node, other_unasked, "nft");
    let of_other = |mut pod: Value| {
        pod["metadata"]["labels"] = json!({"team": "other"});
        pod
    };
    server.put(sidecar("web", &web.address));
    server.put(plain("plain", &unasked.address));
    server.put(of_other(sidecar("other-web", &other_web.address)));
    server.put(of_other(plain("other-plain", &other_unasked.address)));
    let selected = ("REPAIR_LABEL_SELECTORS", "team!=other");
    let agent = start(&node, &server, &[IN_PLACE, OFTEN, selected]);
    let removed = || agent.metric("weir_unasked_removed_total");
    agent.until("removed in a round", || removed() == 1);
    redirect_by(&node, unasked, "nft");
    agent.until("removed in another round", || removed() == 2);
    agent.until("counted", || {
        let counted = ["expected", "verified"].map(|of| agent.metric(&format!("weir_pods_{of}")));
        counted == [1, 1]
    });
    assert!(web.is_redirected() && other_unasked.is_redirected());
    assert_eq!(
        (other_web.rules().as_str(), healed(&agent, "success")),
        ("", 1)
    );
    // A label may change.
    server.put(sidecar("other-web", &other_web.address));
    agent.until("repaired", || healed(&agent, "success") == 2);
    server.put(of_other(sidecar("other-web", &other_web.address)));
    agent.until("left", || agent.metric("weir_pods_expected") == 1);
    other_web.tool("nft", &["flush", "ruleset"]);
    redirect_by(&node, unasked, "nft");
    agent.until("removed in a third round", || removed() == 3);
    assert_eq!(other_web.rules(), "");
}

#[test]
fn a_broken_pod_is_deleted() {
    let server = ApiServer::start();
    let pod = broken("web", "192.0.2.7");
    server.put(pod);
    let node = Node::new();
    let settings = [
        ("REPAIR_DELETE_PODS", "true"),
        ("REPAIR_LABEL_PODS", "true"),
    ];
    let agent = start(&node, &server, &settings);
    agent.until("deleted", || repaired(&agent, "delete", "success") == 1);
    agent.until("told", || events(&server, "DeleteBrokenPod").len() == 1);
    let written = written(&server);
    assert_eq!(written.len(), 2, "{written:?}");
    let delete = written.iter().find(|a| a.method == "DELETE").unwrap();
    assert_eq!(delete.path, "/api/v1/namespaces/shop/pods/web");
    let wanted = json!({"uid": "uid-web", "resourceVersion": "101"});
    assert_eq!(delete.body["preconditions"], wanted);
    let event = &events(&server, "DeleteBrokenPod")[0];
    assert_eq!(event.body["type"], "Warning");
}

#[test]
fn a_broken_pod_is_labelled_by_way_of_its_status() {
    let server = ApiServer::start();
    server.put(broken("web", "192.0.2.7"));
    let mut labelled = broken("has-it", "192.0.2.8");
    labelled["metadata"]["labels"] = json!({"broken.example/pod": ""});
    server.put(labelled);
    let mut other = broken("other-app", "192.0.2.9");
    other["metadata"]["labels"] = json!({"app": "other"});
    server.put(other);
    let node = Node::new();
    let settings = [
        ("REPAIR_LABEL_PODS", "true"),
        ("REPAIR_BROKEN_POD_LABEL_KEY", "broken.example/pod"),
        ("REPAIR_BROKEN_POD_LABEL_VALUE", "yes"),
        ("REPAIR_LABEL_SELECTORS", "app!=other"),
    ];
    let agent = start(&node, &server, &settings);
    agent.until("labelled", || {
        ["success", "skip"].map(|result| repaired(&agent, "label", result)) == [1, 1]
    });
    agent.until("told", || events(&server, "LabelBrokenPod").len() == 1);
    let written = written(&server);
    assert_eq!(written.len(), 2, "{written:?}");
    let patch = written.iter().find(|a| a.method == "PATCH").unwrap();
    assert_eq!(patch.path, "/api/v1/namespaces/shop/pods/web/status");
    assert_eq!(
        patch.headers["content-type"],
        "application/merge-patch+json"
    );
    // Another pod may have the same name by now, so the patch names the UID.
    let wanted = json!({"metadata": {"uid": "uid-web", "labels": {"broken.example/pod": "yes"}}});
    assert_eq!(patch.body, wanted);
    assert_eq!(events(&server, "LabelBrokenPod").len(), 1);
}

/// The object changes each time one of its containers ends.
#[test]
fn a_broken_pod_that_is_being_deleted_is_left_alone() {
    let server = ApiServer::start();
    let mut pod = broken("web", "192.0.2.7");
    server.put(pod.clone());
    let node = Node::new();
    let agent = start(&node, &server, &[("REPAIR_DELETE_PODS", "true")]);
    let deleted = || repaired(&agent, "delete", "success");
    agent.until("deleted", || deleted() == 1);
    pod["metadata"]["deletionTimestamp"] = "2026-11-22T00:00:00Z".into();
    for count in 2..5 {
        pod["status"]["initContainerStatuses"][0]["restartCount"] = count.into();
        server.put(pod.clone());
    }
    // A pod that breaks later is deleted later.
    server.put(broken("later", "192.0.2.8"));
    agent.until("the other one", || deleted() == 2);
    let written = written(&server);
    let of_web = |asked: &&Asked| asked.method == "DELETE" && asked.path.ends_with("/web");
    assert_eq!(written.iter().filter(of_web).count(), 1, "{written:?}");
}

/// API priority and fairness: the API server is busy, which is not a refusal.
#[test]
fn an_api_server_that_is_busy_is_asked_again_within_the_same_attempt() {
    let server = ApiServer::start();
    let seen = std::sync::Mutex::new(std::collections::BTreeSet::new());
    server.fault(move |asked| {
        let is_first = seen.lock().unwrap().insert(asked.path.clone());
        let busy = "HTTP/1.1 429 X\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy";
        (asked.method != "GET" && is_first).then(|| Answer::Raw(busy.into()))
    });
    server.put(broken("web", "192.0.2.7"));
    let node = Node::new();
    let agent = start(&node, &server, &[("REPAIR_DELETE_PODS", "true")]);
    agent.until("deleted", || repaired(&agent, "delete", "success") == 1);
    agent.until("told", || {
        agent.metric("weir_events_total{result=\"sent\"}") == 1
    });
    assert_eq!(repaired(&agent, "delete", "fail"), 0);
    assert_eq!(agent.metric("weir_events_total{result=\"failed\"}"), 0);
    // The refused request and the accepted one.
    assert_eq!(events(&server, "DeleteBrokenPod").len(), 2);
}

#[test]
fn an_api_server_that_refuses_is_asked_five_times_and_again_when_the_pod_changes() {
    // A busy one without a time to wait is none of Kubernetes.
    [409, 429, 503].into_iter().for_each(asked_five_times);
}

fn asked_five_times(code: u16) {
    let server = ApiServer::start();
    server.fault(move |asked| (asked.method == "DELETE").then_some(Answer::Status(code)));
    let pod = broken("web", "192.0.2.7");
    server.put(pod.clone());
    let node = Node::new();
    let agent = start(&node, &server, &[("REPAIR_DELETE_PODS", "true")]);
    let failed = || repaired(&agent, "delete", "fail");
    agent.until("given up", || agent.log().contains("given up"));
    // The agent updates the metric after it has logged the line.
    agent.until("counted", || failed() == 5);
    let log = agent.log();
    assert!(!log.contains("Status {"), "only the server's words: {log}");
    let deletes = |asked: &&Asked| asked.method == "DELETE";
    assert_eq!(server.asked().iter().filter(deletes).count(), 5, "{code}");
    server.fault(|_| None);
    server.put(pod);
    agent.until("deleted", || repaired(&agent, "delete", "success") == 1);
    assert_eq!(failed(), 5);
}

#[test]
fn what_is_not_the_pods_own_is_left_alone() {
    let Some(sandbox) = Sandbox::of("half") else {
        return;
    };
    let server = ApiServer::start();
    // The namespace has one of the pod's two addresses.
    let mut half = sidecar("half", &sandbox.address);
    half["status"]["podIPs"] = json!([{"ip": sandbox.address}, {"ip": "2001:db8::7"}]);
    server.put(half);
    let mut host = broken("host", "127.0.0.1");
    host["spec"]["hostNetwork"] = true.into();
    server.put(host);
    let node = Node::new();
    let agent = start(&node, &server, &[IN_PLACE]);
    agent.until("refused", || repaired(&agent, "repair", "fail") == 5);
    agent.says("node's own network namespace");
    agent.until("looked for", || healed(&agent, "fail") == 1);
    agent.says("has the addresses");
    assert_eq!(sandbox.rules(), "");
    assert_eq!(agent.metric("weir_pods_verified"), 0);
}
