//! Ambient mode at the node: the agent captures in the node's namespace, and a stand-in for the proxy receives the connections.

use crate::ambient::{Scene, labelled, why};
use crate::api_server::{namespace, pod};
use crate::repair::Sandbox;
use serde_json::{Value, json};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_netlink::route::{Link, LinkKind, Route, Routing};
use weir_testing::BpfFs;
pub(crate) use weir_testing::sysctl::set;
use weir_testing::sysctl::sysctl;

/// No machine has this address; only the path of packets to it matters.
pub(crate) const ELSEWHERE: &str = "203.0.113.9:80";
/// How long a SYN may take: a new link may drop the first one, which is retransmitted after a second.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// How long the last segment of a handshake may take. Also the time after which a connection counts as another listener's.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// A pod with a veth pair to the node. The pod has the tenth address of its network, and the node the first.
pub(crate) struct Pod {
    pub(crate) sandbox: Sandbox,
    number: u8,
}

impl Pod {
    pub(crate) fn new(name: &str, number: u8, host: &Netns) -> Option<Self> {
        let sandbox = Sandbox::of(name)?;
        let node = Routing::open_in(host).unwrap();
        let link = format!("v{number}");
        node.add_veth(&link, "eth0", sandbox.netns()).unwrap();
        let inner = Routing::open_in(sandbox.netns()).unwrap();
        for (of, name, last) in [(&node, link.as_str(), 1), (&inner, "eth0", 10)] {
            let index = of.link(name).unwrap().index;
            let net = ipnet::IpNet::new(address(number, last), 24).unwrap();
            of.add_address(index, net).unwrap();
            of.set_up(index).unwrap();
        }
        let all = "0.0.0.0/0".parse().unwrap();
        let default = Route::unicast(all, Some(address(number, 1)), None);
        inner.add_route(&default).unwrap();
        Some(Self { sandbox, number })
    }

    pub(crate) fn object(&self, namespace: &str, name: &str) -> Value {
        let ip = address(self.number, 10).to_string();
        let mut object = pod(namespace, name, &format!("uid-{name}"));
        object["status"] = json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]});
        object
    }

    fn rules(&self) -> bool {
        self.sandbox.rules().contains("istio-ambient")
    }
}

/// An address of the pod with this number, unique on this machine.
///
/// An agent searches all processes of the machine for pods. Those of a parallel test run have the same UIDs.
pub(crate) fn address(number: u8, last: u8) -> IpAddr {
    [11, std::process::id() as u8, number, last].into()
}

/// The network that contains the networks of all pods.
pub(crate) fn networks() -> ipnet::IpNet {
    ipnet::IpNet::new(address(0, 0), 16).unwrap()
}

/// The pod of ztunnel; a larger number makes it newer.
pub(crate) fn ztunnel(pod: &Pod, name: &str, is_ready: bool) -> Value {
    let mut object = pod.object("istio-system", name);
    object["metadata"]["labels"] = json!({"app": "ztunnel"});
    object["metadata"]["creationTimestamp"] = format!("2026-01-01T00:00:0{}Z", pod.number).into();
    let status = if is_ready { "True" } else { "False" };
    object["status"]["conditions"] = json!([{"type": "Ready", "status": status}]);
    object
}

/// ztunnel's listener for connections of pods.
pub(crate) struct Listener(Socket);

impl Listener {
    pub(crate) fn of(pod: &Pod) -> Self {
        let listen = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
            socket.set_ip_transparent_v4(true).unwrap();
            let any: SocketAddr = "0.0.0.0:15001".parse().unwrap();
            socket.bind(&any.into()).unwrap();
            socket.listen(16).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        Self(pod.sandbox.netns().run(listen).unwrap())
    }

    /// Whether a connection of the pod arrives here with both addresses unchanged.
    pub(crate) fn gets(&self, from: &Pod) -> bool {
        // Discards connections that arrived earlier.
        while self.0.accept().is_ok() {}
        let connected = connect(from);
        let Some((stream, peer)) = arrived(connected.is_ok(), || self.0.accept()) else {
            return false;
        };
        let to = stream.local_addr().unwrap().as_socket().unwrap();
        assert_eq!(to, ELSEWHERE.parse().unwrap());
        assert_eq!(peer.as_socket().unwrap().ip(), address(from.number, 10));
        connected.is_ok()
    }
}

/// A node with two pods, each with a name and a number. The second is that of ztunnel, which listens there and is ready.
pub(crate) fn with_ztunnel(
    pod: (&str, u8),
    proxy: (&str, u8),
) -> Option<(Scene, Pod, Pod, Listener)> {
    let scene = Scene::new();
    set(&scene.host, "ipv4/ip_forward", "1");
    let pods = [pod, proxy].map(|(name, number)| Pod::new(name, number, &scene.host));
    let [Some(pod), Some(of_proxy)] = pods else {
        return None;
    };
    scene.server.put(namespace("istio-system"));
    scene.server.put(ztunnel(&of_proxy, proxy.0, true));
    let listener = Listener::of(&of_proxy);
    Some((scene, pod, of_proxy, listener))
}

pub(crate) fn connect(from: &Pod) -> std::io::Result<TcpStream> {
    let to = ELSEWHERE.parse().unwrap();
    let connect = || TcpStream::connect_timeout(&to, PATIENCE);
    from.sandbox.netns().run(connect).unwrap()
}

/// The next connection of a non-blocking listener, or `None` if none arrives in time.
///
/// The listener has a connection only after the client's last segment of the handshake. On a busy machine this is later than the success of
/// connect().
pub(crate) fn arrived<T>(connected: bool, accept: impl Fn() -> std::io::Result<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        match accept() {
            Ok(it) => return Some(it),
            Err(_) if connected && begun.elapsed() < HANDSHAKE => std::thread::yield_now(),
            Err(_) => return None,
        }
    }
}

/// The number of the node's policy rules with weir's protocol number, and the number of its routes in the three tables.
fn at_node(host: &Netns) -> (usize, usize) {
    let routing = Routing::open_in(host).unwrap();
    let rules = routing.rules().unwrap();
    let routes = [100, 101, 102].map(|table| routing.routes(table).unwrap().len());
    (
        rules
            .iter()
            .filter(|rule| rule.priority.is_some_and(|p| (100..=103).contains(&p)))
            .count(),
        routes.iter().sum(),
    )
}

pub(crate) const NODE: [(&str, &str); 2] =
    [("WEIR_AMBIENT_ENGINE", "node"), ("AMBIENT_IPV6", "false")];

/// A bpf file system for the test. Prints a skip if programs cannot be attached.
pub(crate) fn programs_or_skip() -> Option<BpfFs> {
    if let Err(e) = weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS) {
        println!("not compared with programs: {e}");
        return None;
    }
    BpfFs::mount()
}

#[test]
fn pods_are_captured_at_the_node_healed_switched_and_left() {
    let scene = Scene::new();
    set(&scene.host, "ipv4/ip_forward", "1");
    set(&scene.host, "ipv4/conf/all/rp_filter", "1");
    let pods = [("web", 1), ("old", 2), ("new", 3)];
    let pods = pods.map(|(name, number)| Pod::new(name, number, &scene.host));
    let [Some(web), Some(old), Some(new)] = pods else {
        return;
    };
    scene.server.put(namespace("istio-system"));
    scene.server.put(web.object("shop", "web"));
    scene.server.put(ztunnel(&old, "old", false));

    let shared = scene.node.path("config.json");
    let dir = scene.node.root.display().to_string();
    let settings = [NODE[0], NODE[1], ("WEIR_AMBIENT_CONFIG_DIR", &dir)];
    let says = |text: &str| std::fs::read_to_string(&shared).is_ok_and(|all| all == text);

    // While no proxy is ready, no connection leaves.
    let agent = scene.start(&settings);
    agent.until("said", || {
        says(r#"{"ztunnelReady":false,"redirectMode":"iptables"}"#)
    });
    agent.until("pending", || scene.annotation("web") == "pending");
    // States are published a little later.
    agent.until("the reason", || {
        why(&agent, "web").contains("no proxy of this node is ready")
    });
    assert_eq!(at_node(&scene.host).0, 5, "{}", agent.log());
    assert!(connect(&web).is_err());

    // A proxy becomes ready.
    let old_listener = Listener::of(&old);
    scene.server.put(ztunnel(&old, "old", true));
    agent.until("enrolled", || scene.annotation("web") == "enabled");
    assert!(old_listener.gets(&web), "{}", agent.log());
    agent.until("said", || {
        says(r#"{"ztunnelReady":true,"redirectMode":"iptables"}"#)
    });
    agent.until("ready", || agent.is_ready());

    // Another program deletes a policy rule.
    let routing = Routing::open_in(&scene.host).unwrap();
    let rules = routing.rules().unwrap();
    let ours = rules
        .iter()
        .find(|rule| rule.priority == Some(101))
        .unwrap();
    assert!(routing.del_rule(ours).unwrap());
    agent.until("healed", || routing.rules().unwrap().len() == rules.len());
    agent.until("told", || agent.log().contains("are now: ip rule add"));

    // kube-proxy changes to IPVS: the rules cannot capture connections to services, which is reported until it goes.
    let link = Link::new("kube-ipvs0", LinkKind::plain("bridge"));
    routing.add_link(&link, None).unwrap();
    let index = routing.link("kube-ipvs0").unwrap().index;
    let service: IpAddr = [10, 96, 0, 10].into();
    routing.add_address(index, service.into()).unwrap();
    agent.until("reported", || {
        agent.log().contains("services of IPVS at link kube-ipvs0")
    });

    // The next proxy becomes ready, and the old one is deleted.
    let new_listener = Listener::of(&new);
    scene.server.put(ztunnel(&new, "new", true));
    agent.until("handed over", || new_listener.gets(&web));
    scene.server.remove(&ztunnel(&old, "old", true));
    assert!(new_listener.gets(&web) && !old_listener.gets(&web));
    // The agent changed the proxy anyway, but reports that the pod is not fully captured.
    agent.until("failed", || why(&agent, "web").contains("kube-ipvs0"));
    let in_force = || {
        agent
            .log()
            .matches("that capture pods are in force")
            .count()
    };
    let before = in_force();
    routing.delete_link(index).unwrap();
    agent.until("in force", || in_force() > before);
    agent.until("enrolled", || why(&agent, "web") == "null");

    // Traffic stays captured without the agent. The next agent captures in the pod, and restores the node.
    drop(agent);
    assert!(new_listener.gets(&web));
    let agent = scene.start(&[("AMBIENT_IPV6", "false")]);
    agent.until("rules in the pod", || web.rules());
    agent.until("the node is clean", || at_node(&scene.host) == (0, 0));
    assert!(!new_listener.gets(&web));
    drop(agent);
    let mut agent = scene.start(&NODE);
    agent.until("back at the node", || {
        !web.rules() && new_listener.gets(&web)
    });
    agent.until("rules for probes are gone", || {
        !scene.probed().contains("istio-ambient-nat")
    });

    // By programs at the node, then by rules at the node again.
    if let Some(mounted) = programs_or_skip() {
        drop(agent);
        let bpffs = mounted.path().display().to_string();
        let by_programs = [
            ("WEIR_AMBIENT_ENGINE", "node-ebpf"),
            ("AMBIENT_DNS_CAPTURE", "true"),
            ("AMBIENT_IPV6", "false"),
            ("WEIR_BPFFS", &bpffs),
            ("WEIR_AMBIENT_CONFIG_DIR", &dir),
        ];
        let programs =
            || std::fs::read_dir(mounted.path().join("weir/v2")).map_or(0, Iterator::count);
        let by = scene.start(&by_programs);
        by.until("programs", || {
            at_node(&scene.host) == (0, 0) && programs() == 2
        });
        by.until("captured", || new_listener.gets(&web));
        by.until("said", || {
            says(r#"{"ztunnelReady":true,"redirectMode":"ebpf"}"#)
        });
        let folder = mounted
            .path()
            .join("weir/v2")
            .join(scene.host.id().ino.to_string());
        let links = || {
            let names = std::fs::read_dir(&folder).unwrap().flatten();
            let names = names.map(|entry| entry.file_name().into_string().unwrap());
            names.filter(|name| name.contains("gress_")).count()
        };
        assert_eq!(links(), 3);
        // ztunnel has no listener for connections to pods: such packets are dropped, and the agent reports it.
        let to = SocketAddr::new(address(web.number, 10), 80);
        let comes = || TcpStream::connect_timeout(&to, PATIENCE);
        by.until("reported", || {
            assert!(old.sandbox.netns().run(comes).unwrap().is_err());
            by.metric("weir_ambient_packets_total{reason=\"no_inbound_listener\"}") > 0
        });
        by.says("ambient_packet");
        let log = by.log();
        let line = log.lines().find(|line| line.contains("ambient_packet"));
        let line = line.unwrap_or_else(|| panic!("{log}"));
        let from = address(old.number, 10);
        for words in [
            format!("a packet of pod shop/web, {from}:"),
            format!("to {to} was dropped: no listener on port 15006"),
        ] {
            assert!(line.contains(&words), "{words}: {line}");
        }
        drop(by);
        assert!(new_listener.gets(&web), "nothing depends on the process");
        agent = scene.start(&[NODE[0], NODE[1], ("WEIR_BPFFS", &bpffs)]);
        agent.until("rules again", || {
            at_node(&scene.host).0 > 0 && programs() == 0
        });
        agent.until("captured", || new_listener.gets(&web));

        // By programs in the pod, then at the node again: neither programs nor their routing stay in the pod.
        let in_pod = Routing::open_in(web.sandbox.netns()).unwrap();
        let routing_of_pod = || (in_pod.rules().unwrap(), in_pod.routes(100).unwrap());
        let before = routing_of_pod();
        drop(agent);
        let by = [
            ("WEIR_AMBIENT_ENGINE", "ebpf"),
            NODE[1],
            ("WEIR_BPFFS", &bpffs),
        ];
        let by = scene.start(&by);
        by.until("programs in the pod", || {
            programs() > 0 && routing_of_pod() != before
        });
        by.until("the node is clean", || at_node(&scene.host) == (0, 0));
        drop(by);
        agent = scene.start(&[NODE[0], NODE[1], ("WEIR_BPFFS", &bpffs)]);
        agent.until("the pod is as it was", || {
            programs() == 0 && routing_of_pod() == before
        });
        agent.until("captured", || new_listener.gets(&web));
    }

    // The agent refuses a pod without a link to the node, and the other pods are not affected.
    let Some(alone) = Sandbox::of("alone") else {
        return;
    };
    scene.put("alone", &alone);
    agent.until("refused", || why(&agent, "alone").contains("is of kind"));
    assert!(new_listener.gets(&web));

    // Another program deletes all rules, and with them the recorded values of sysctls.
    nft(&scene.host, "flush ruleset");
    agent.until("healed", || {
        scene.probed().contains("istio-ambient-node") && new_listener.gets(&web)
    });

    // The pod leaves the mesh.
    scene.server.put(labelled("none"));
    agent.until("left", || scene.annotation("web") == Value::Null);
    assert!(!new_listener.gets(&web));
    // After its DaemonSet is deleted, the agent removes everything when it ends.
    assert!(at_node(&scene.host).0 > 0);
    assert!(agent.terminate().success(), "{}", agent.log());
    assert_eq!(at_node(&scene.host), (0, 0), "{}", agent.log());
    assert_eq!(sysctl(&scene.host, "ipv4/conf/all/rp_filter"), "1");
}

/// Later agents do not recognize these objects: an upgraded agent with ambient mode off must remove them, or `weir uninstall`.
#[test]
fn what_an_agent_in_ambient_mode_left_goes_when_that_is_off() {
    let scene = Scene::new();
    set(&scene.host, "ipv4/ip_forward", "1");
    set(&scene.host, "ipv4/conf/all/rp_filter", "1");
    let Some(pod) = Pod::new("kept", 77, &scene.host) else {
        return;
    };
    scene.server.put(namespace("istio-system"));
    scene.server.put(pod.object("shop", "kept"));
    let mounted = programs_or_skip();
    let bpffs = mounted.as_ref().map(|m| m.path().display().to_string());
    let programs = || {
        let dir = mounted.as_ref().map(|m| m.path().join("weir/v2"));
        let entries = dir.and_then(|dir| std::fs::read_dir(dir).ok());
        entries.map_or(0, Iterator::count)
    };
    let mut common = vec![("AMBIENT_IPV6", "false")];
    common.extend(bpffs.as_deref().map(|path| ("WEIR_BPFFS", path)));
    let with = |more: &[(&'static str, &'static str)]| [&common[..], more].concat();
    // These functions read every kind of object: tables, sets, policy rules, routes, programs.
    let is_clean = || {
        let probed = scene.probed();
        at_node(&scene.host) == (0, 0) && programs() == 0 && !probed.contains("istio")
    };
    let uninstall = |arguments: &[&str]| {
        let mut env = scene.settings();
        env.extend(
            common
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned())),
        );
        let env: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let out = scene.node.run(&[&["uninstall"], arguments].concat(), &env);
        (out.status.code(), String::from_utf8(out.stdout).unwrap())
    };
    let mut ways = vec!["node", "netfilter"];
    if mounted.is_some() {
        ways.push("node-ebpf");
    }
    for way in ways {
        let leave = || {
            let before = scene.start(&with(&[("WEIR_AMBIENT_ENGINE", way)]));
            before.until("there", || {
                !is_clean() && scene.annotation("kept") != Value::Null
            });
            // The policy rule for a pod behind a branch ENI that an agent added.
            let rule = "rule add to 10.9.0.7 lookup 101 priority 512 proto 119";
            ip(&scene.host, rule);
        };
        leave();
        let (code, text) = uninstall(&["--verify", "--json"]);
        assert_eq!(code, Some(1), "{way}: {text}");
        let host = scene.host.path().display().to_string();
        assert!(
            text.contains(&host) && text.contains("branch ENIs"),
            "{way}: {text}"
        );
        let of_way = match way {
            "node" => "rules and routing of redirection at the node",
            "netfilter" => "rules for probes",
            _ => "programs of redirection at the node",
        };
        assert!(text.contains(of_way), "{way}: {text}");
        assert!(!is_clean(), "--verify only looks");

        let mut agent = scene.start(&with(&[("AMBIENT_ENABLED", "false")]));
        let enis = || Routing::open_in(&scene.host).unwrap().rules().unwrap();
        let has_eni = || enis().iter().any(|rule| rule.priority == Some(512));
        agent.until("clean", || is_clean() && !has_eni());
        agent.until("told", || {
            agent
                .log()
                .contains("removed what an agent before had at the node")
        });
        agent.wait_ready();
        assert_eq!(sysctl(&scene.host, "ipv4/conf/all/rp_filter"), "1", "{way}");
        drop(agent);

        leave();
        let (code, text) = uninstall(&[]);
        assert!(is_clean() && !has_eni(), "{way}: {text}");
        // The program file may stay.
        assert_eq!(code, Some(0), "{way}: {text}");
    }
}

fn nft(netns: &Netns, arguments: &str) {
    let mut run = std::process::Command::new("nft");
    let run = run.args(arguments.split(' '));
    let run = netns.run(|| run.output()).unwrap().unwrap();
    assert!(run.status.success(), "{run:?}");
}

fn ip(netns: &Netns, arguments: &str) {
    let mut run = std::process::Command::new("nsenter");
    run.arg(format!("--net={}", netns.path().display()))
        .arg("ip");
    let run = run.args(arguments.split(' ')).output().unwrap();
    assert!(run.status.success(), "{arguments}: {run:?}");
}

/// The link of one pod has as many foreign programs as the kernel allows: the other pods are enrolled and follow the proxy.
#[test]
fn a_link_that_takes_no_program_holds_back_its_own_pod_only() {
    let Some(mounted) = programs_or_skip() else {
        return;
    };
    let scene = Scene::new();
    set(&scene.host, "ipv4/ip_forward", "1");
    let pods = [("held", 81), ("full", 82), ("old-one", 83), ("new-one", 84)];
    let pods = pods.map(|(name, number)| Pod::new(name, number, &scene.host));
    let [Some(web), Some(full), Some(old), Some(new)] = pods else {
        return;
    };
    let routing = Routing::open_in(&scene.host).unwrap();
    let index = routing.link("v82").unwrap().index;
    let mut pass = weir_ebpf::asm::Assembler::new();
    pass.mov(weir_ebpf::asm::Reg::R0, -1);
    pass.exit();
    let code = pass.finish().unwrap();
    let attach = |_: &u8| {
        let program = code.load("another", &[]).unwrap();
        let (hook, first) = (weir_bpf::BPF_TCX_INGRESS, weir_bpf::Anchor::First);
        weir_bpf::Link::to_interface(&program, index, hook, first).ok()
    };
    let fill = || [0; 100].iter().map_while(attach).collect::<Vec<_>>();
    let links = scene.host.run(fill).unwrap();

    scene.server.put(namespace("istio-system"));
    scene.server.put(web.object("shop", "held"));
    scene.server.put(full.object("shop", "full"));
    scene.server.put(ztunnel(&old, "old-one", true));
    let (old_listener, new_listener) = (Listener::of(&old), Listener::of(&new));
    let bpffs = mounted.path().display().to_string();
    let agent = scene.start(&[
        ("WEIR_AMBIENT_ENGINE", "node-ebpf"),
        ("AMBIENT_IPV6", "false"),
        ("WEIR_BPFFS", &bpffs),
    ]);
    agent.until("enrolled", || scene.annotation("held") == "enabled");
    agent.until("refused", || {
        why(&agent, "full").contains("at ingress of v82")
    });
    assert!(old_listener.gets(&web), "{}", agent.log());
    scene.server.put(ztunnel(&new, "new-one", true));
    agent.until("handed over", || new_listener.gets(&web));
    assert!(why(&agent, "full").contains("at ingress of v82"));

    links.iter().for_each(|link| link.detach().unwrap());
    agent.until("enrolled", || scene.annotation("full") == "enabled");
    assert!(new_listener.gets(&full), "{}", agent.log());

    // If a foreign program is attached before those of weir, the agent moves its own to the front without a periodic comparison.
    let foreign = scene.host.run(|| attach(&0).unwrap()).unwrap();
    let other = foreign.info().unwrap().id;
    let list = || weir_bpf::attached(index, weir_bpf::BPF_TCX_INGRESS).unwrap();
    agent.until("first again", || {
        let list = scene.host.run(list).unwrap();
        list.len() == 2 && list[1].link == other
    });
    assert!(new_listener.gets(&full), "{}", agent.log());
}
