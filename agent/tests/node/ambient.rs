//! Ambient mode, from the label to the proxy: real namespaces and rules, a fake API server, a ztunnel that only speaks ZDS.

use crate::api_server::{ApiServer, Fault, namespace, pod};
use crate::attacks::Pretender;
use crate::groups::Group;
use crate::repair::Sandbox;
use crate::support::{Agent, BRIDGE, Node, exchange, get};
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;
use weir_bpf::{BPF_TCX_INGRESS, attached};
use weir_ebpf::Bpffs;
use weir_netlink::Netns;
use weir_netlink::route::Routing;
use weir_testing::ztunnel::Ztunnel;
use weir_testing::{BpfFs, lacks};

const MODE: &str = "istio.io/dataplane-mode";
const ANNOTATION: &str = "ambient.istio.io/redirection";
/// As the chart has it.
const SELECTORS: &str = "[{podSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}}, \
    {podSelector: {matchExpressions: [{key: istio.io/dataplane-mode, operator: NotIn, values: [none]}]}, \
     namespaceSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}}]";

/// A node with a host's namespace of its own, and its API server.
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

    fn socket(&self) -> String {
        self.node.path("ztunnel.sock").display().to_string()
    }

    /// An agent; `settings` go before the others.
    pub(crate) fn start(&self, settings: &[(&str, &str)]) -> Agent {
        self.node.write("net.d/10-pods.conflist", BRIDGE);
        let (socket, host) = (self.socket(), self.host.path().display().to_string());
        let env = self.server.env();
        let mut env: Vec<(&str, &str)> =
            env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        env.extend([
            ("AMBIENT_ENABLED", "true"),
            ("AMBIENT_ENABLEMENT_SELECTOR", SELECTORS),
            ("AMBIENT_DNS_CAPTURE", "true"),
            ("AMBIENT_IPV6", "true"),
            ("NATIVE_NFTABLES", "true"),
            ("ZTUNNEL_UDS_ADDRESS", &socket),
            ("WEIR_HOST_NETNS", &host),
            ("EXCLUDE_NAMESPACES", "kube-system"),
        ]);
        env.extend(settings);
        let agent = self.node.start(&env, &[]);
        agent.until("it serves", || get(agent.metrics, "/metrics").is_some());
        agent
    }

    fn ztunnel(&self) -> Ztunnel {
        Ztunnel::connect(&self.node.path("ztunnel.sock"))
    }

    /// A running pod in this sandbox.
    pub(crate) fn put(&self, name: &str, sandbox: &Sandbox) {
        self.server.put(running(name, &sandbox.address));
    }

    pub(crate) fn annotation(&self, name: &str) -> Value {
        self.server.annotations("shop", name)[ANNOTATION].clone()
    }

    /// The addresses that probes are let through to, with the UIDs.
    fn probed(&self) -> String {
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

fn running(name: &str, address: &str) -> Value {
    let mut pod = pod("shop", name, &format!("uid-{name}"));
    pod["spec"]["serviceAccountName"] = "web".into();
    pod["status"] = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
    pod
}

fn id(sandbox: &Sandbox) -> (u64, u64) {
    let id = sandbox.netns().id();
    (id.dev, id.ino)
}

fn is_captured(sandbox: &Sandbox) -> bool {
    let rules = sandbox.rules();
    [
        "istio-ambient-nat",
        "istio-ambient-mangle",
        "istio-ambient-raw",
    ]
    .iter()
    .all(|table| rules.contains(table))
        && sandbox
            .tool("ip", &["rule"])
            .contains("fwmark 0x111/0xfff lookup 100")
}

fn has_no_rules(sandbox: &Sandbox) -> bool {
    !sandbox.rules().contains("istio") && !sandbox.tool("ip", &["rule"]).contains("lookup 100")
}

fn states(agent: &Agent, state: &str) -> u64 {
    agent.metric(&format!("weir_ambient_pods{{state=\"{state}\"}}"))
}

pub(crate) fn why(agent: &Agent, name: &str) -> String {
    let (_, text) = get(agent.metrics, "/status.json").expect("an answer");
    let facts: Value = serde_json::from_str(&text).unwrap();
    let pods = facts["ambient"]["pods"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let pod = pods.into_iter().find(|p| p["name"] == name);
    pod.map(|p| p["why"].to_string()).unwrap_or_default()
}

/// As the plugin posts it.
fn hand_over(node: &Node, name: &str, sandbox: &Sandbox) -> (u16, String) {
    let body = json!({"Netns": sandbox.netns().path(), "PodName": name, "PodNamespace": "shop",
        "IPs": [{"Interface": 0, "Gateway": "", "Address": {"IP": sandbox.address, "Mask": "/////w=="}}]});
    post(node, &body.to_string())
}

fn post(node: &Node, body: &str) -> (u16, String) {
    let stream = UnixStream::connect(node.path("run/pluginevent.sock")).unwrap();
    let length = body.len();
    let head = format!("POST /cmdadd HTTP/1.1\r\nHost: unix\r\nContent-Length: {length}\r\n\r\n");
    exchange(stream, &format!("{head}{body}")).expect("an answer")
}

#[test]
fn a_pod_joins_is_healed_and_leaves() {
    let Some(sandbox) = Sandbox::of("web") else {
        return;
    };
    let scene = Scene::new();
    scene.put("web", &sandbox);
    let mut agent = scene.start(&[]);
    agent.until("captured without a proxy", || is_captured(&sandbox));
    agent.until("pending", || scene.annotation("web") == "pending");
    assert!(
        why(&agent, "web").contains("no ztunnel is connected"),
        "{}",
        why(&agent, "web")
    );
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
    // Another program writes: it is healed at once, and the log has the program's name.
    sandbox.tool("nft", &["flush", "ruleset"]);
    let took = agent.until("healed", || is_captured(&sandbox));
    assert!(took < Duration::from_secs(2), "{took:?}");
    agent.until("told", || {
        agent.metric("weir_ambient_healed_total{cause=\"missing\"}") == 1
    });
    assert!(agent.log().contains("(nft)"), "{}", agent.log());
    // The namespace is not in the mesh any more.
    scene.server.put(labelled("none"));
    agent.until("it has left", || {
        has_no_rules(&sandbox) && scene.annotation("web") == Value::Null
    });
    ztunnel.carries("uid-web", None);
    agent.until("no address is left", || !scene.probed().contains("uid-web"));
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
    // The agent goes for good, and so do the host's rules; those of the pod stay.
    scene.server.put(labelled("ambient"));
    agent.until("again", || scene.probed().contains("uid-web"));
    assert!(agent.terminate().success(), "{}", agent.log());
    assert_eq!(scene.probed(), "", "{}", agent.log());
    assert!(is_captured(&sandbox));
}

/// The same by eBPF; and an agent with the other setting replaces programs by rules, and rules by programs.
#[test]
fn by_ebpf_a_pod_joins_is_healed_is_switched_and_leaves() {
    let Some(mounted) = BpfFs::mount() else {
        return;
    };
    if let Err(e) = attached(1, BPF_TCX_INGRESS)
        && e.raw_os_error() == Some(22)
    {
        return lacks::skip("attach tcx", "6.6", e);
    }
    let Some(sandbox) = Sandbox::of("web") else {
        return;
    };
    let scene = Scene::new();
    scene.put("web", &sandbox);
    let routing = Routing::open_in(sandbox.netns()).unwrap();
    routing.add_veth("eth0", "veth0", &scene.host).unwrap();
    let root = mounted.path().to_str().unwrap();
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let shown = || weir_ebpf::show::read(sandbox.netns(), Some(&bpffs)).unwrap();
    // A kernel with GRE adds gretap0 and erspan0 to every namespace.
    let by_programs = || {
        let mut programs = shown().programs;
        programs.retain(|p| ["lo", "eth0"].contains(&p.interface.as_str()));
        programs.len() == 3 && !sandbox.rules().contains("istio")
    };
    let interval = ("WEIR_VERIFY_INTERVAL", "1");
    let ebpf = [
        ("WEIR_AMBIENT_ENGINE", "ebpf"),
        ("WEIR_BPFFS", root),
        interval,
    ];
    let agent = scene.start(&ebpf);
    agent.until("captured", by_programs);
    let ztunnel = scene.ztunnel();
    ztunnel.carries("uid-web", Some(id(&sandbox)));
    agent.until("enrolled", || {
        scene.annotation("web") == "enabled" && states(&agent, "enrolled") == 1
    });
    // A pin is deleted, and with it the attachment.
    let program = shown()
        .programs
        .into_iter()
        .find(|p| p.interface == "eth0" && p.hook == "tcx egress");
    let pin = program
        .and_then(|p| p.pin)
        .expect("the pin of the program for egress");
    std::fs::remove_file(&pin).unwrap();
    agent.until("healed", by_programs);
    agent.until("told", || {
        agent.metric("weir_ambient_healed_total{cause=\"missing\"}") == 1
    });
    drop(agent);
    // Nothing depends on the process.
    assert!(by_programs());

    let by_rules = || shown().programs.is_empty() && is_captured(&sandbox);
    let agent = scene.start(&[("WEIR_BPFFS", root), interval]);
    agent.until("rules in place of programs", by_rules);
    drop(agent);
    let agent = scene.start(&ebpf);
    agent.until("programs in place of rules", by_programs);

    let ztunnel = scene.ztunnel();
    ztunnel.carries("uid-web", Some(id(&sandbox)));
    scene.server.put(labelled("none"));
    agent.until("it has left", || {
        shown().programs.is_empty() && has_no_rules(&sandbox)
    });
}

#[test]
fn where_the_connections_of_a_pod_land_is_proved_at_enrolment() {
    let Some(sandbox) = Sandbox::of("proved") else {
        return;
    };
    // A way out: what is only on lo sends nothing.
    for command in [
        "link set lo up",
        "link add eth0 type veth peer name outside",
        "link set outside up",
        "link set eth0 up",
        "address add 10.98.0.2/24 dev eth0",
        "route add default via 10.98.0.1",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        sandbox.tool("ip", &words);
    }
    let scene = Scene::new();
    scene.put("proved", &sandbox);
    let agent = scene.start(&[("WEIR_LIVE_PROOF", "true")]);
    let _ztunnel = scene.ztunnel();
    agent.until("proved", || {
        get(agent.metrics, "/metrics").is_some()
            && agent.metric("weir_ambient_proved_total{answer=\"yes\"}") == 1
    });
    agent.until("shown", || {
        let (_, text) = get(agent.metrics, "/status.json").expect("an answer");
        let facts: Value = serde_json::from_str(&text).unwrap();
        facts["ambient"]["pods"][0]["proved"] == "yes"
    });
}

#[test]
fn a_pod_that_the_plugin_hands_over_is_captured_before_the_answer() {
    let Some(sandbox) = Sandbox::of("new") else {
        return;
    };
    let scene = Scene::new();
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    ztunnel.snapshots(1);
    // The API server knows no address yet.
    let mut starting = running("new", &sandbox.address);
    starting["status"] = json!({"phase": "Pending"});
    scene.server.put(starting);
    let (status, body) = hand_over(&scene.node, "new", &sandbox);
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(is_captured(&sandbox));
    assert_eq!(ztunnel.pods()["uid-new"].netns, id(&sandbox));
    assert!(scene.probed().contains(&sandbox.address));
    agent.until("annotated", || scene.annotation("new") == "enabled");
    // The same sandbox again, and another one of the same UID, as after a reboot.
    assert_eq!(hand_over(&scene.node, "new", &sandbox).0, 200);
    let Some(other) = Sandbox::within(Group::of_pod("uid-new-2").unwrap()) else {
        return;
    };
    let mut moved = running("new", &other.address);
    moved["metadata"]["annotations"][ANNOTATION] = "enabled".into();
    scene.server.put(moved);
    assert_eq!(hand_over(&scene.node, "new", &other).0, 200);
    assert!(is_captured(&other));
    ztunnel.carries("uid-new", Some(id(&other)));
    assert_eq!(
        agent.metric("istio_cni_plugin_requests_total{response_code=\"200\"}"),
        3
    );
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn what_the_plugin_may_not_hand_over() {
    let Some(sandbox) = Sandbox::of("odd") else {
        return;
    };
    let scene = Scene::new();
    let mut out = running("odd", &sandbox.address);
    out["metadata"]["labels"][MODE] = "none".into();
    scene.server.put(out);
    let agent = scene.start(&[]);
    agent.until("ready", || agent.is_ready());
    let refused = |answer: (u16, String), code: u16, part: &str| {
        assert!(answer.0 == code && answer.1.contains(part), "{answer:?}");
    };
    refused(
        hand_over(&scene.node, "odd", &sandbox),
        500,
        "no pod of ambient mode",
    );
    refused(
        hand_over(&scene.node, "nobody", &sandbox),
        500,
        "no such pod",
    );
    refused(post(&scene.node, "{"), 400, "cannot be read");
    refused(post(&scene.node, "[]"), 400, "cannot be read");
    scene.put("odd", &sandbox);
    // Without a proxy it is captured, and does not start.
    agent.until("its new label is seen", || {
        let (_, why) = hand_over(&scene.node, "odd", &sandbox);
        why.contains("no ztunnel is connected")
    });
    for (netns, part) in [("/proc/self/ns/net", "host"), ("/nowhere", "not seen")] {
        let body = json!({"Netns": netns, "PodName": "odd", "PodNamespace": "shop", "IPs": null});
        let (status, text) = post(&scene.node, &body.to_string());
        assert_eq!(status, 500, "{netns}: {text}");
        assert!(part == "host" || text.contains(part), "{netns}: {text}");
    }
    assert!(agent.is_ready());
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
    // While no agent runs: one pod is deleted, the rules of the other are lost.
    let gone = running("one", &one.address);
    scene.server.remove(&gone);
    two.tool("nft", &["flush", "ruleset"]);
    agent = scene.start(&[]);
    agent.until("enrolled", || {
        states(&agent, "enrolled") == 1 && is_captured(&two)
    });
    ztunnel.carries("uid-one", None);
    ztunnel.carries("uid-two", Some(id(&two)));
    agent.until("the address is gone", || {
        !scene.probed().contains("uid-one")
    });
    // A new ztunnel takes over; the old one ends.
    let new = scene.ztunnel();
    new.snapshots(1);
    new.carries("uid-two", Some(id(&two)));
    drop(ztunnel);
    two.tool("nft", &["add", "table", "inet", "x"]);
    agent.until("still enrolled", || states(&agent, "enrolled") == 1);
    assert_eq!(new.faults(), Vec::<String>::new());
}

#[test]
fn a_refusal_and_a_silent_api_server_are_told_and_tried_again() {
    let Some(sandbox) = Sandbox::of("web") else {
        return;
    };
    let scene = Scene::new();
    scene.put("web", &sandbox);
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
        .fault(|asked| (asked.method == "PATCH").then_some(Fault::Status(500)));
    ztunnel.refuse("uid-web", None);
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    scene.server.fault(|_| None);
    agent.until("annotated", || scene.annotation("web") == "enabled");
}

/// The policy rules of the host that the agent made, which have its protocol number.
fn eni_rules(scene: &Scene) -> Vec<String> {
    let rules = scene.ip("rule");
    let ours = rules.lines().filter(|rule| rule.contains("proto 119"));
    ours.map(|rule| rule.trim().replace('\t', " ")).collect()
}

impl Scene {
    /// `ip` in the namespace of the host.
    fn ip(&self, arguments: &str) -> String {
        let host = self.host.path().display().to_string();
        let mut ip = Command::new("nsenter");
        ip.args([&format!("--net={host}"), "ip"]);
        let run = ip.args(arguments.split(' ')).output().unwrap();
        assert!(run.status.success(), "{arguments}: {run:?}");
        String::from_utf8(run.stdout).unwrap()
    }

    /// As the VPC plugin of AWS leaves a node with a pod of a security group.
    fn behind_eni(&self, address: &str) {
        self.ip("link add eni1 type veth peer name peer1");
        self.ip("link set eni1 up");
        self.ip(&format!("route add {address} dev eni1 table 101"));
        self.ip("rule add iif eni1 lookup 101 priority 10");
        let off = || std::fs::write("/proc/sys/net/ipv4/tcp_early_demux", "0");
        self.host.run(off).unwrap().unwrap();
    }
}

#[test]
fn probes_reach_a_pod_behind_a_branch_eni_for_as_long_as_it_is_enrolled() {
    let (Some(behind), Some(plain)) = (Sandbox::of("behind"), Sandbox::of("plain")) else {
        return;
    };
    let scene = Scene::new();
    scene.behind_eni(&behind.address);
    scene.put("behind", &behind);
    scene.put("plain", &plain);
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    agent.until("enrolled", || states(&agent, "enrolled") == 2);
    let expected = [
        "9: from all iif eni1 lookup local proto 119".to_owned(),
        format!("512: from all to {} lookup 101 proto 119", behind.address),
    ];
    assert_eq!(eni_rules(&scene), expected);
    scene.server.remove(&running("behind", &behind.address));
    agent.until("its rules are gone", || eni_rules(&scene).is_empty());
    assert_eq!(states(&agent, "enrolled"), 1);
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

#[test]
fn pods_behind_a_branch_eni_are_not_looked_for_where_that_is_off() {
    let Some(sandbox) = Sandbox::of("behind") else {
        return;
    };
    let scene = Scene::new();
    scene.behind_eni(&sandbox.address);
    scene.put("behind", &sandbox);
    let agent = scene.start(&[("AMBIENT_ENABLE_AWS_BRANCH_ENI_PROBE", "false")]);
    let _ztunnel = scene.ztunnel();
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    assert_eq!(eni_rules(&scene), Vec::<String>::new());
}

/// The network namespace belongs to a user namespace of the pod.
#[test]
fn a_pod_with_users_of_its_own_is_enrolled_and_healed() {
    let address = "10.77.0.1";
    let Some(own) = Pretender::of_pod("uid-own", address) else {
        return;
    };
    let scene = Scene::new();
    let mut pod = running("own", address);
    pod["spec"]["hostUsers"] = false.into();
    scene.server.put(pod);
    let agent = scene.start(&[]);
    let ztunnel = scene.ztunnel();
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    let netns = own.netns.id();
    ztunnel.carries("uid-own", Some((netns.dev, netns.ino)));
    let is_captured = || own.rules().contains("istio-ambient-nat");
    assert!(is_captured(), "{}", own.rules());
    assert!(scene.probed().contains(address));
    let mut flush = Command::new("nsenter");
    flush.arg(format!("--net={}", own.netns.path().display()));
    assert!(
        flush
            .args(["nft", "flush", "ruleset"])
            .status()
            .unwrap()
            .success()
    );
    let took = agent.until("healed", is_captured);
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(ztunnel.faults(), Vec::<String>::new());
}

/// As Multus gives them: the API server knows the first one only, and more may come while the pod runs.
#[test]
fn a_pod_with_several_interfaces_is_enrolled_by_the_addresses_that_the_api_server_knows() {
    let Some(sandbox) = Sandbox::of("several") else {
        return;
    };
    let add = |link: &str, address: &str| {
        let peer = format!("{link}p");
        sandbox.tool(
            "ip",
            &["link", "add", link, "type", "veth", "peer", "name", &peer],
        );
        sandbox.tool("ip", &["address", "add", address, "dev", link]);
        sandbox.tool("ip", &["link", "set", link, "up"]);
    };
    add("net1", "192.168.77.1/24");
    let scene = Scene::new();
    scene.put("several", &sandbox);
    let agent = scene.start(&[("WEIR_VERIFY_INTERVAL", "1")]);
    let ztunnel = scene.ztunnel();
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    ztunnel.carries("uid-several", Some(id(&sandbox)));
    let probed = scene.probed();
    assert!(
        probed.contains(&sandbox.address) && !probed.contains("192.168.77.1"),
        "{probed}"
    );
    // One more interface is no drift: no round repairs anything.
    add("net2", "192.168.78.1/24");
    let healed =
        |cause: &str| agent.metric(&format!("weir_ambient_healed_total{{cause=\"{cause}\"}}"));
    let verified = || {
        let (_, text) = get(agent.metrics, "/status.json").expect("an answer");
        let facts: Value = serde_json::from_str(&text).unwrap();
        facts["ambient"]["pods"][0]["verifiedAt"].clone()
    };
    for _ in 0..2 {
        let before = verified();
        agent.until("another round", || verified() != before);
    }
    assert_eq!((healed("missing"), healed("changed")), (0, 0));
    sandbox.tool("nft", &["flush", "ruleset"]);
    agent.until("healed", || is_captured(&sandbox) && healed("missing") == 1);
}

#[test]
fn the_connections_of_ztunnel_are_listed() {
    let Some(sandbox) = Sandbox::of("web") else {
        return;
    };
    let scene = Scene::new();
    scene.put("web", &sandbox);
    let agent = scene.start(&[]);
    let _ztunnel = scene.ztunnel();
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    let listed = || {
        let (_, text) = get(agent.metrics, "/status.json").expect("an answer");
        let facts: Value = serde_json::from_str(&text).unwrap();
        facts["ambient"]["ztunnels"].clone()
    };
    // At least the end of the snapshot and the pod.
    agent.until("listed", || listed()[0]["acked"].as_u64() >= Some(2));
    let peer = &listed()[0];
    assert_eq!(peer["pid"], std::process::id());
    assert_eq!(
        (&peer["version"], &peer["state"]),
        (&json!(1), &json!("ready"))
    );
    let (_, page) = get(agent.metrics, "/").expect("the page");
    assert!(
        page.contains(&format!("process {}", std::process::id())),
        "{page}"
    );
}
