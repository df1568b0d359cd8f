//! Ambient mode from the label to the proxy, with real namespaces and rules, a fake API server, and a ztunnel that only speaks ZDS.

use crate::api_server::{Answer, ApiServer, Asked, namespace, pod};
use crate::repair::{Sandbox, events};
use crate::support::{Agent, BRIDGE, Node, exchange, get, weir};
use crate::upgrade::{daemon_set, own_pod};
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use weir_netlink::Netns;
use weir_testing::ztunnel::Ztunnel;

pub(crate) const MODE: &str = "istio.io/dataplane-mode";
pub(crate) const ANNOTATION: &str = "ambient.istio.io/redirection";
/// The selectors of the chart.
const SELECTORS: &str = "[{podSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}}, \
    {podSelector: {matchExpressions: [{key: istio.io/dataplane-mode, operator: NotIn, values: [none]}]}, \
     namespaceSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}}]";

/// The interval exceeds the deadlines of the tests, so only a notification of the kernel can cause a repair.
pub(crate) const SELDOM: (&str, &str) = ("WEIR_VERIFY_INTERVAL", "3600");

/// A node with a network namespace for the host, and its API server.
pub(crate) struct Scene {
    pub(crate) node: Node,
    pub(crate) server: ApiServer,
    pub(crate) host: Netns,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let server = ApiServer::start();
        server.put(labelled("ambient"));
        Self {
            node: Node::new(),
            server,
            host: Netns::create().unwrap(),
        }
    }

    /// A scene with one running pod. Prints the reason and returns `None` if its sandbox cannot be created.
    pub(crate) fn of(name: &str) -> Option<(Sandbox, Self)> {
        let (sandbox, scene) = (Sandbox::of(name)?, Self::new());
        scene.put(name, &sandbox);
        Some((sandbox, scene))
    }

    pub(crate) fn socket(&self) -> String {
        self.node.path("ztunnel.sock").display().to_string()
    }

    /// The settings of every agent of this scene.
    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let (socket, host) = (self.socket(), self.host.path().display().to_string());
        let own = [
            ("AMBIENT_ENABLED", "true"),
            ("AMBIENT_ENABLEMENT_SELECTOR", SELECTORS),
            ("AMBIENT_DNS_CAPTURE", "true"),
            ("AMBIENT_IPV6", "true"),
            ("NATIVE_NFTABLES", "true"),
            ("ZTUNNEL_UDS_ADDRESS", &socket),
            ("WEIR_HOST_NETNS", &host),
            ("EXCLUDE_NAMESPACES", "kube-system"),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        self.server.env().into_iter().chain(own).collect()
    }

    /// Starts an agent; `settings` precede the settings of the scene.
    pub(crate) fn start(&self, settings: &[(&str, &str)]) -> Agent {
        self.start_by(weir(), settings)
    }

    /// Like [`Scene::start`], with a command that precedes `agent`.
    pub(crate) fn start_by(&self, command: Command, settings: &[(&str, &str)]) -> Agent {
        self.node.write("net.d/10-pods.conflist", BRIDGE);
        let env = self.settings();
        let mut env: Vec<(&str, &str)> =
            env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        env.extend(settings);
        let agent = self.node.start_by(command, &env, &[]);
        agent.until("it serves", || get(agent.metrics, "/metrics").is_some());
        agent
    }

    pub(crate) fn ztunnel(&self) -> Ztunnel {
        Ztunnel::connect(&self.node.path("ztunnel.sock"))
    }

    /// Starts an agent and connects a ztunnel; waits until this number of pods is enrolled.
    pub(crate) fn enrolled(&self, pods: u64, settings: &[(&str, &str)]) -> (Agent, Ztunnel) {
        let (agent, ztunnel) = (self.start(settings), self.ztunnel());
        agent.until("enrolled", || states(&agent, "enrolled") == pods);
        (agent, ztunnel)
    }

    /// Adds a running pod with this sandbox to the API server.
    pub(crate) fn put(&self, name: &str, sandbox: &Sandbox) {
        self.server.put(running(name, &sandbox.address));
    }

    pub(crate) fn annotation(&self, name: &str) -> Value {
        self.server.annotations("shop", name)[ANNOTATION].clone()
    }

    /// The output of a tool in the namespace of the host.
    #[track_caller]
    pub(crate) fn tool(&self, words: &str) -> String {
        let mut run = Command::new("nsenter");
        run.arg(format!("--net={}", self.host.path().display()));
        let run = run
            .args(words.split(' '))
            .output()
            .expect("nsenter is needed");
        assert!(run.status.success(), "{words}: {run:?}");
        String::from_utf8(run.stdout).unwrap()
    }

    /// The rules of the host, with the addresses that probes may reach and the UIDs of their pods.
    pub(crate) fn probed(&self) -> String {
        let host = self.host.path().display().to_string();
        let mut nft = Command::new("nsenter");
        nft.args([&format!("--net={host}"), "nft", "list", "ruleset"]);
        String::from_utf8(nft.output().unwrap().stdout).unwrap()
    }
}

pub(crate) fn labelled(mode: &str) -> Value {
    let mut object = namespace("shop");
    object["metadata"]["labels"][MODE] = mode.into();
    object
}

pub(crate) fn running(name: &str, address: &str) -> Value {
    let mut pod = pod("shop", name, &format!("uid-{name}"));
    pod["spec"]["serviceAccountName"] = "web".into();
    pod["status"] = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
    pod
}

pub(crate) fn id(sandbox: &Sandbox) -> (u64, u64) {
    let id = sandbox.netns().id();
    (id.dev, id.ino)
}

pub(crate) fn is_captured(sandbox: &Sandbox) -> bool {
    let rules = sandbox.rules();
    [
        "istio-ambient-nat",
        "istio-ambient-mangle",
        "istio-ambient-raw",
    ]
    .iter()
    .all(|table| rules.contains(table))
        && sandbox.ip("rule").contains("fwmark 0x111/0xfff lookup 100")
}

pub(crate) fn has_no_rules(sandbox: &Sandbox) -> bool {
    !sandbox.rules().contains("istio") && !sandbox.ip("rule").contains("lookup 100")
}

pub(crate) fn states(agent: &Agent, state: &str) -> u64 {
    agent.metric(&format!("weir_ambient_pods{{state=\"{state}\"}}"))
}

pub(crate) fn why(agent: &Agent, name: &str) -> String {
    let facts = agent.facts();
    let pods = facts["ambient"]["pods"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let pod = pods.into_iter().find(|p| p["name"] == name);
    pod.map(|p| p["why"].to_string()).unwrap_or_default()
}

/// Hands a pod over as the plugin does.
pub(crate) fn hand_over(node: &Node, name: &str, sandbox: &Sandbox) -> (u16, String) {
    let address = json!({"IP": sandbox.address, "Mask": "/////w=="});
    let ips = json!([{"Interface": 0, "Gateway": "", "Address": address}]);
    post(node, &event(name, sandbox.netns().path(), &ips))
}

/// The request of the plugin for a pod of the namespace `shop`.
pub(crate) fn event(name: &str, netns: impl AsRef<Path>, ips: &Value) -> String {
    let netns = netns.as_ref();
    json!({"Netns": netns, "PodName": name, "PodNamespace": "shop", "IPs": ips}).to_string()
}

/// Waits until the agent accepts requests of the plugin.
pub(crate) fn until_it_listens(agent: &Agent, node: &Node) {
    let socket = node.path("run/pluginevent.sock");
    agent.until("it listens", || UnixStream::connect(&socket).is_ok());
}

pub(crate) fn post(node: &Node, body: &str) -> (u16, String) {
    post_to(node, "/cmdadd", body)
}

pub(crate) fn post_to(node: &Node, path: &str, body: &str) -> (u16, String) {
    let stream = UnixStream::connect(node.path("run/pluginevent.sock")).unwrap();
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: unix\r\nContent-Length: {length}\r\n\r\n");
    exchange(stream, &format!("{head}{body}")).expect("an answer")
}

// matrix: every; variants no-xtables no-ipset no-ipv6
#[test]
fn a_pod_joins_is_healed_and_leaves() {
    let Some((sandbox, scene)) = Scene::of("web") else {
        return;
    };
    let mut agent = scene.start(&[SELDOM]);
    agent.until("captured without a proxy", || is_captured(&sandbox));
    agent.until("pending", || scene.annotation("web") == "pending");
    agent.until("told why", || {
        why(&agent, "web").contains("no ztunnel is connected")
    });
    let ztunnel = scene.ztunnel();
    ztunnel.carries("uid-web", Some(id(&sandbox)));
    agent.until("enrolled", || {
        scene.annotation("web") == "enabled" && states(&agent, "enrolled") == 1
    });
    agent.until("ready", || agent.is_ready());
    let probed = scene.probed();
    assert!(
        probed.contains(&format!("{} comment \"uid-web\"", sandbox.address)),
        "{probed}"
    );
    assert_eq!(agent.metric("ztunnel_connected"), 1);
    assert!(agent.metric("nodeagent_reconcile_events_total{type=\"add\"}") >= 2);
    // After a change by another program the agent restores the rules at once, and the log contains that program's name, unless another
    // event causes the comparison at the same moment.
    let mut healed = 0;
    while !agent.log().contains("(nft)") {
        healed += 1;
        assert!(healed <= 5, "{}", agent.log());
        sandbox.tool("nft", &["flush", "ruleset"]);
        agent.until("healed", || is_captured(&sandbox));
        agent.until("told", || {
            agent.metric("weir_ambient_healed_total{cause=\"missing\"}") == healed
        });
    }
    // The namespace leaves the mesh.
    scene.server.put(labelled("none"));
    agent.until("it has left", || {
        has_no_rules(&sandbox) && scene.annotation("web") == Value::Null
    });
    ztunnel.carries("uid-web", None);
    agent.until("no address is left", || !scene.probed().contains("uid-web"));
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
    // When the agent ends for good, it removes the host's rules; those of the pod stay.
    scene.server.put(labelled("ambient"));
    agent.until("again", || scene.probed().contains("uid-web"));
    assert!(agent.terminate().success(), "{}", agent.log());
    assert_eq!(scene.probed(), "", "{}", agent.log());
    assert!(is_captured(&sandbox));
}

// matrix: every
#[test]
fn routing_that_another_program_deletes_comes_back_at_once() {
    let Some((sandbox, scene)) = Scene::of("routed") else {
        return;
    };
    let (agent, _ztunnel) = scene.enrolled(1, &[SELDOM]);
    let listed = |family: &str, what: &str| match what {
        "rule" => sandbox.ip(&format!("{family} rule")),
        _ => sandbox.ip(&format!("{family} route show table 100")),
    };
    let has = |family: &str, what: &str| {
        let expected = match what {
            "rule" => "fwmark 0x111/0xfff lookup 100",
            _ => "local default dev lo",
        };
        listed(family, what).contains(expected)
    };
    let mut healed = 0;
    for family in ["-4", "-6"] {
        for (what, delete) in [
            ("rule", "rule del priority 32764"),
            ("route", "route flush table 100"),
            // The kernel deletes the routes of such a link without a notification for each.
            ("route", "link set lo down"),
        ] {
            // The other family's routes come back after the first family's.
            agent.until(&format!("{family} {what}"), || has(family, what));
            sandbox.ip(&format!("{family} {delete}"));
            if delete.starts_with("link") {
                sandbox.ip("link set lo up");
            }
            healed += 1;
            agent.until(&format!("{family} {delete} is healed"), || {
                has(family, what)
                    && agent.metric("weir_ambient_healed_total{cause=\"missing\"}") >= healed
            });
        }
    }
}

#[test]
fn a_pod_whose_annotation_is_not_written_is_not_shown_as_enrolled() {
    let names = ["refused", "stripped", "fine"];
    let sandboxes = names.map(Sandbox::of);
    let [Some(refused), Some(stripped), Some(fine)] = &sandboxes else {
        return;
    };
    let scene = Scene::new();
    let mut object = running("stripped", &stripped.address);
    object["kind"] = "Pod".into();
    scene.server.fault(move |asked| {
        let of = |name: &str| asked.method == "PATCH" && asked.path.contains(name);
        // In one pod the agent lacks the permission; in the other a webhook drops the annotation.
        match (of("/refused/"), of("/stripped/")) {
            (true, _) => Some(Answer::Status(403)),
            (_, true) => Some(Answer::Chunk(object.to_string().into_bytes())),
            _ => None,
        }
    });
    for (name, sandbox) in [("refused", refused), ("stripped", stripped), ("fine", fine)] {
        scene.put(name, sandbox);
    }
    let agent = scene.start(&[("WEIR_VERIFY_INTERVAL", "1")]);
    let ztunnel = scene.ztunnel();
    agent.until("shown", || {
        let states = ["enrolled", "pending"].map(|state| states(&agent, state));
        states == [1, 2]
            && why(&agent, "refused").contains("annotation ambient.istio.io/redirection cannot")
            && why(&agent, "stripped").contains("admission webhook")
    });
    for sandbox in [refused, stripped] {
        assert!(is_captured(sandbox));
        assert!(scene.probed().contains(&sandbox.address));
    }
    // The agent repeats the request whatever the answer was.
    let tried = || {
        let asked = scene.server.asked();
        let is_it = |a: &&Asked| a.method == "PATCH" && a.path.contains("/stripped/");
        asked.iter().filter(is_it).count()
    };
    agent.until("tried again", || tried() > 2);
    scene.server.fault(|_| None);
    agent.until("enrolled", || {
        states(&agent, "enrolled") == 3 && why(&agent, "stripped") == "null"
    });
    for name in names {
        assert_eq!(scene.annotation(name), "enabled", "{name}");
    }
    // The API server refuses the removal, too.
    scene.server.fault(|asked| {
        let is_it = asked.method == "PATCH" && asked.path.contains("/refused/");
        is_it.then_some(Answer::Status(403))
    });
    let mut out = running("refused", &refused.address);
    out["metadata"]["labels"][MODE] = "none".into();
    out["metadata"]["annotations"][ANNOTATION] = "enabled".into();
    scene.server.put(out);
    agent.until("shown", || {
        states(&agent, "leaving") == 1 && why(&agent, "refused").contains("cannot be written")
    });
    scene.server.fault(|_| None);
    agent.until("left", || states(&agent, "leaving") == 0);
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn the_agent_and_ztunnel_come_and_go() {
    let (Some(one), Some(two)) = (Sandbox::of("one"), Sandbox::of("two")) else {
        return;
    };
    let scene = Scene::new();
    scene.put("one", &one);
    scene.put("two", &two);
    let mut agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    let enrolled = |agent: &Agent| states(agent, "enrolled") == 2;
    agent.until("enrolled", || enrolled(&agent));
    agent.signal(nix::sys::signal::Signal::SIGKILL);
    drop(agent);
    assert_eq!(ztunnel.pods().len(), 2, "they stay");
    // While no agent runs, one pod is deleted and the other one loses its rules.
    let gone = running("one", &one.address);
    scene.server.remove(&gone);
    two.tool("nft", &["flush", "ruleset"]);
    agent = scene.start(&[]);
    agent.until("enrolled", || {
        states(&agent, "enrolled") == 1 && is_captured(&two)
    });
    let healed = agent.metric("weir_ambient_healed_total{cause=\"missing\"}");
    assert_eq!(healed, 1, "{}", agent.log());
    ztunnel.carries("uid-one", None);
    ztunnel.carries("uid-two", Some(id(&two)));
    agent.until("the address is gone", || {
        !scene.probed().contains("uid-one")
    });
    // A new ztunnel takes over, and the old one ends.
    let new = scene.ztunnel();
    new.snapshots(1);
    new.carries("uid-two", Some(id(&two)));
    drop(ztunnel);
    two.tool("nft", &["add", "table", "inet", "x"]);
    agent.until("still enrolled", || states(&agent, "enrolled") == 1);
    assert_eq!(new.faults(), Vec::<String>::new());
}

/// Without the annotation, other nodes would send to these pods in plain text.
#[test]
fn pods_stay_annotated_while_ztunnel_or_the_agent_is_replaced() {
    let names = ["one", "two", "three"];
    let pods = names.map(|name| Some((name, Sandbox::of(name)?)));
    let scene = Scene::new();
    scene.server.put(own_pod());
    scene.server.put(daemon_set());
    scene.server.grant("token-of-its-own");
    for pod in &pods {
        let Some((name, sandbox)) = pod else { return };
        scene.put(name, sandbox);
    }
    let mut agent = scene.start(&[("POD_NAME", "istio-cni-node-abcde")]);
    let ztunnel = scene.ztunnel();
    let are = |agent: &Agent, state: &str| states(agent, state) == 3;
    let annotated = || names.iter().all(|name| scene.annotation(name) == "enabled");
    agent.until("enrolled", || are(&agent, "enrolled") && annotated());
    agent.until("ready", || agent.is_ready());
    let patches = || {
        let mut asked = scene.server.asked();
        asked.retain(|asked| asked.method == "PATCH" && asked.path.contains("/pods/"));
        asked.len()
    };
    let before = patches();
    drop(ztunnel);
    agent.until("pending", || are(&agent, "pending"));
    let _next = scene.ztunnel();
    agent.until("enrolled again", || are(&agent, "enrolled"));
    assert_eq!(patches(), before, "{}", agent.log());
    assert!(agent.terminate().success(), "{}", agent.log());
    assert_eq!(patches(), before, "{}", agent.log());
    assert!(scene.probed().contains("uid-one"), "the next one follows");
}

/// The agent reports a conflict. It keeps the pod in ztunnel, because without ztunnel the pod would have no network at all.
#[test]
fn a_pod_in_which_another_program_takes_packets_first_stays_enrolled() {
    let Some((sandbox, scene)) = Scene::of("passed-by") else {
        return;
    };
    let chain = "{ type filter hook output priority -310 ; }";
    sandbox.tool("nft", &["add", "table", "inet", "t"]);
    sandbox.tool("nft", &["add", "chain", "inet", "t", "c", chain]);
    sandbox.tool("nft", &["add", "rule", "inet", "t", "c", "notrack"]);
    let mut agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    ztunnel.carries("uid-passed-by", Some(id(&sandbox)));
    let is_told = |agent: &Agent, what: &str| {
        let is_annotated = scene.annotation("passed-by") == "enabled";
        is_annotated && states(agent, "conflict") == 1 && why(agent, "passed-by").contains(what)
    };
    let notrack = "table inet t chain c: notrack";
    agent.until("told", || is_told(&agent, notrack));
    assert_eq!(states(&agent, "enrolled"), 0);
    let event = "RedirectionConflict";
    agent.until("the event", || events(&scene.server, event).len() == 1);
    agent.until("logged", || agent.log().contains(notrack));
    // The next agent finds the conflict when it compares the rules.
    agent.signal(nix::sys::signal::Signal::SIGKILL);
    agent.ended();
    agent = scene.start(&[]);
    agent.until("told again", || is_told(&agent, notrack));
    ztunnel.carries("uid-passed-by", Some(id(&sandbox)));
    // A repair does not hide the conflict.
    sandbox.tool("nft", &["delete", "table", "inet", "istio-ambient-nat"]);
    agent.until("repaired", || is_captured(&sandbox));
    agent.until("told still", || is_told(&agent, notrack));
    sandbox.tool("nft", &["delete", "table", "inet", "t"]);
    agent.until("as it should be", || states(&agent, "enrolled") == 1);
    sandbox.link("d0", "10.99.0.1/24");
    sandbox.ip("route add blackhole default table 50");
    // A policy rule as the sbr plugin adds it.
    sandbox.ip("rule add from 10.99.0.1 lookup 50 priority 50");
    agent.until("told of routing", || is_told(&agent, "lookup 50"));
    sandbox.ip("rule del priority 50");
    agent.until("good again", || states(&agent, "enrolled") == 1);
    let healed = agent.metric("weir_ambient_healed_total{cause=\"missing\"}");
    assert_eq!(healed, 1, "what is foreign is not repaired");
    assert!(agent.terminate().success(), "{}", agent.log());
}

/// An earlier agent had enrolled the pod, and its sandbox no longer exists.
#[test]
fn a_pod_of_which_nothing_runs_leaves_the_mesh() {
    let Some((_other, scene)) = Scene::of("other") else {
        return;
    };
    scene.server.put(labelled("none"));
    let mut ended = running("ended", "10.99.0.7");
    ended["metadata"]["annotations"][ANNOTATION] = "enabled".into();
    scene.server.put(ended);
    let agent = scene.start(&[]);
    agent.until("left", || scene.annotation("ended") == Value::Null);
}

/// If they were removed before the next agent has examined the pod, its probes would fail and the kubelet would restart it.
#[test]
fn addresses_of_pods_that_an_earlier_agent_enrolled_stay_until_they_are_looked_at() {
    let all = ["claimed", "blank", "deleted"].map(|name| (name, Sandbox::of(name)));
    let [
        ("claimed", Some(claimed)),
        ("blank", Some(blank)),
        (_, Some(deleted)),
    ] = &all
    else {
        return;
    };
    let scene = Scene::new();
    for (name, sandbox) in [("claimed", claimed), ("blank", blank), ("deleted", deleted)] {
        scene.put(name, sandbox);
    }
    let (mut agent, _ztunnel) = scene.enrolled(3, &[]);
    agent.signal(nix::sys::signal::Signal::SIGKILL);
    drop(agent);
    // Another pod claims the address of the first, and the API server has no address of the second.
    scene.server.remove(&running("deleted", &deleted.address));
    let thief = running("thief", &claimed.address);
    scene.server.put(thief.clone());
    let mut without = running("blank", &blank.address);
    without["metadata"]["annotations"][ANNOTATION] = "enabled".into();
    without["status"] = json!({"phase": "Running"});
    scene.server.put(without);
    agent = scene.start(&[("WEIR_VERIFY_INTERVAL", "1")]);
    agent.until("tidied", || !scene.probed().contains("uid-deleted"));
    let probed = scene.probed();
    assert!(
        probed.contains("uid-claimed") && probed.contains("uid-blank"),
        "{probed}"
    );
    // One pod leaves the mesh before the agent has examined it.
    let mut out = running("blank", &blank.address);
    out["metadata"]["annotations"][ANNOTATION] = "enabled".into();
    out["metadata"]["labels"][MODE] = "none".into();
    scene.server.put(out);
    agent.until("it has left", || !scene.probed().contains("uid-blank"));
    assert!(scene.probed().contains("uid-claimed"));
    scene.server.remove(&thief);
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    assert!(scene.probed().contains("uid-claimed"));
}

#[test]
fn a_refusal_and_a_silent_api_server_are_told_and_tried_again() {
    let Some((sandbox, scene)) = Scene::of("web") else {
        return;
    };
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    ztunnel.refuse("uid-web", Some("cannot listen on 15001"));
    agent.until("refused", || {
        why(&agent, "web").contains("cannot listen on 15001")
    });
    assert!(
        is_captured(&sandbox),
        "it sends nothing in plain text meanwhile"
    );
    scene
        .server
        .fault(|asked| (asked.method == "PATCH").then_some(Answer::Status(500)));
    ztunnel.refuse("uid-web", None);
    agent.until("not annotated", || {
        why(&agent, "web").contains("cannot be written")
    });
    scene.server.fault(|_| None);
    agent.until("annotated", || scene.annotation("web") == "enabled");
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
}

#[test]
fn the_connections_of_ztunnel_are_listed() {
    let Some((_sandbox, scene)) = Scene::of("web") else {
        return;
    };
    let (agent, _ztunnel) = scene.enrolled(1, &[]);
    let listed = || {
        let facts = agent.facts();
        facts["ambient"]["ztunnels"].clone()
    };
    // ztunnel has acknowledged at least the end of the snapshot and the pod.
    agent.until("listed", || listed()[0]["acked"].as_u64() >= Some(2));
    let peer = &listed()[0];
    assert_eq!(peer["pid"], std::process::id());
    assert_eq!(
        (&peer["version"], &peer["state"]),
        (&json!(1), &json!("ready"))
    );
    let (_, page) = agent.page("/");
    assert!(
        page.contains(&format!("process {}", std::process::id())),
        "{page}"
    );
}
