//! Ambient mode by eBPF programs, and the change back to rules. With programs, probes need no rule at the host.

use crate::ambient::{SELDOM, Scene, has_no_rules, id, is_captured, labelled, states, why};
use crate::ambient_node::arrived;
use crate::repair::Sandbox;
use crate::support::{Agent, PATIENCE};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_ambient::{Config, PodOverrides, Redirect};
use weir_bpf::{
    Anchor, BPF_PROG_TYPE_SCHED_CLS, BPF_TCX_INGRESS, Link, Pinned, Program, attached, open_pin,
};
use weir_cni::compile::Engine;
use weir_cni::redirection::{Desired, Sandbox as Redirected};
use weir_ebpf::{Bpffs, Pod};
use weir_netlink::Netns;
use weir_netlink::route::{Route, Routing};
use weir_testing::{BpfFs, Ends, lacks};

/// Mounts a bpf file system for the test. Returns `None` without the rights, or on a kernel without tcx.
fn mount() -> Option<BpfFs> {
    let mounted = BpfFs::mount()?;
    match attached(1, BPF_TCX_INGRESS) {
        Err(e) if e.raw_os_error() == Some(22) => {
            lacks::skip("attach tcx", "6.6", e);
            None
        }
        _ => Some(mounted),
    }
}

/// A program that accepts every packet: `r0 = 0; exit`.
fn passes() -> Program {
    let code = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    Program::load(BPF_PROG_TYPE_SCHED_CLS, 0, &code, c"GPL").unwrap()
}

/// Also, an agent with the other setting replaces programs by rules, and rules by programs.
#[test]
fn by_ebpf_a_pod_joins_is_healed_is_switched_and_leaves() {
    let Some(mounted) = mount() else { return };
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
    // A kernel with GRE adds gretap0 and erspan0 to every network namespace.
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
    // Deleting the pin also detaches the program.
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
    // A program of another writer accepts every packet before weir's program runs.
    let pass = passes();
    let attach = || {
        let index = Routing::open().unwrap().link("eth0").unwrap().index;
        Link::to_interface(&pass, index, BPF_TCX_INGRESS, Anchor::First).unwrap()
    };
    let link = sandbox.netns().run(attach).unwrap();
    let is_first = || {
        let mut all = shown().programs.into_iter();
        all.find(|p| p.interface == "eth0" && p.hook == "tcx ingress")
            .is_some_and(|p| p.name.starts_with("weir_"))
    };
    agent.until("first again", is_first);
    agent.until("told", || {
        agent.metric("weir_ambient_healed_total{cause=\"missing\"}") == 2
    });
    drop((agent, link));
    // The programs stay attached without the agent.
    assert!(by_programs());

    let by_rules = || shown().programs.is_empty() && is_captured(&sandbox);
    let agent = scene.start(&[("WEIR_BPFFS", root), interval]);
    agent.until("rules in place of programs", by_rules);
    let rules_at_host = || scene.probed().contains("istio-inpod-probes-v4");
    agent.until("rules at the host", rules_at_host);
    drop(agent);
    let agent = scene.start(&ebpf);
    agent.until("programs in place of rules", by_programs);
    agent.until("no rules at the host", || scene.probed().is_empty());

    let ztunnel = scene.ztunnel();
    ztunnel.carries("uid-web", Some(id(&sandbox)));
    scene.server.put(labelled("none"));
    agent.until("it has left", || {
        shown().programs.is_empty() && has_no_rules(&sandbox)
    });
}

/// Another writer than the agent, such as `weir apply` with another engine, adds what captures beside it: this breaks inbound connections.
#[test]
fn by_ebpf_what_captures_beside_the_agent_goes() {
    let Some(mounted) = mount() else { return };
    let Some(sandbox) = Sandbox::of("both") else {
        return;
    };
    let scene = Scene::new();
    scene.put("both", &sandbox);
    let routing = Routing::open_in(sandbox.netns()).unwrap();
    routing.add_veth("eth0", "veth0", &scene.host).unwrap();
    let root = ("WEIR_BPFFS", mounted.path().to_str().unwrap());
    let interval = ("WEIR_VERIFY_INTERVAL", "1");
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let has_programs = || {
        let shown = weir_ebpf::show::read(sandbox.netns(), Some(&bpffs)).unwrap();
        !shown.programs.is_empty()
    };
    // As the agent's settings.
    let config = Config {
        enable_ipv6: true,
        redirect_dns: true,
        ..Config::default()
    };
    let wanted = Redirect::new(config, &PodOverrides::default()).unwrap();
    let agent = scene.start(&[("WEIR_AMBIENT_ENGINE", "ebpf"), root, interval]);
    let ztunnel = scene.ztunnel();
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    let pod = Redirected::of(sandbox.netns().try_clone().unwrap()).unwrap();
    pod.apply(&wanted.compile(Engine::Nft)).unwrap();
    let is_alone = || has_programs() && !sandbox.rules().contains("istio");
    agent.until("programs alone", is_alone);
    agent.until("told", || agent.log().contains("istio-ambient-nat"));
    drop((agent, ztunnel));

    let agent = scene.start(&[root, interval]);
    let _ztunnel = scene.ztunnel();
    agent.until("rules alone", || !has_programs() && is_captured(&sandbox));
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    let pod = Pod::of(sandbox.netns(), &bpffs).unwrap();
    pod.apply(&wanted).unwrap();
    sandbox.tool("nft", &["flush", "ruleset"]);
    agent.until("rules alone again", || {
        !has_programs() && is_captured(&sandbox)
    });
}

/// The periodic comparison would be too late to find it.
#[test]
fn by_ebpf_routing_that_another_program_deletes_comes_back_at_once() {
    let Some(mounted) = mount() else { return };
    let Some(sandbox) = Sandbox::of("by-programs") else {
        return;
    };
    let scene = Scene::new();
    scene.put("by-programs", &sandbox);
    let routing = Routing::open_in(sandbox.netns()).unwrap();
    routing.add_veth("eth0", "veth0", &scene.host).unwrap();
    let root = mounted.path().to_str().unwrap();
    let agent = scene.start(&[
        ("WEIR_AMBIENT_ENGINE", "ebpf"),
        ("WEIR_BPFFS", root),
        SELDOM,
    ]);
    let _ztunnel = scene.ztunnel();
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    let rules = || sandbox.tool("ip", &["rule"]);
    let whole = rules();
    assert!(whole.contains("lookup 100"), "{whole}");
    let routes = || sandbox.tool("ip", &["route", "show", "table", "100"]);
    let all_routes = routes();
    // A repair in progress when the next one becomes due would cover both, hence the wait for the counter.
    let counted = || agent.metric("weir_ambient_healed_total{cause=\"missing\"}");
    sandbox.tool("ip", &["rule", "del", "table", "100"]);
    agent.until("the rule is back", || rules() == whole && counted() == 1);
    sandbox.tool("ip", &["route", "flush", "table", "100"]);
    agent.until("the route is back", || {
        routes() == all_routes && counted() == 2
    });
    // A rule that leads packets past the programs stays, and the agent reports a conflict.
    let ip = |line: &str| sandbox.tool("ip", &line.split(' ').collect::<Vec<_>>());
    ip("address add 10.99.0.1/24 dev eth0");
    ip("route add blackhole default table 50");
    ip("rule add iif lo lookup 50 priority 50");
    agent.until("told", || {
        states(&agent, "conflict") == 1 && why(&agent, "by-programs").contains("lookup 50")
    });
    ip("rule del priority 50");
    agent.until("good again", || states(&agent, "enrolled") == 1);
    assert_eq!(counted(), 2);
}

/// Before it is enrolled and afterwards; the route of IPv6 is there while `lo` has IPv6.
#[test]
fn by_ebpf_a_pod_may_disable_ipv6() {
    let Some(mounted) = mount() else { return };
    let Some(sandbox) = Sandbox::of("without-ipv6") else {
        return;
    };
    if !weir_cni::redirection::has_ipv6() {
        return lacks::skip("disable IPv6", "every", "this kernel has none");
    }
    let scene = Scene::new();
    scene.put("without-ipv6", &sandbox);
    let routing = Routing::open_in(sandbox.netns()).unwrap();
    routing.add_veth("eth0", "veth0", &scene.host).unwrap();
    let disable = |value: u8| {
        for name in ["all", "lo"] {
            let key = format!("net.ipv6.conf.{name}.disable_ipv6={value}");
            sandbox.tool("sysctl", &["-qw", &key]);
        }
    };
    let routes = || sandbox.tool("ip", &["-6", "route", "show", "table", "all"]);
    let rules = || sandbox.tool("ip", &["-6", "rule"]);
    disable(1);
    let agent = scene.start(&[
        ("WEIR_AMBIENT_ENGINE", "ebpf"),
        ("WEIR_BPFFS", mounted.path().to_str().unwrap()),
        ("AMBIENT_IPV6", "true"),
        ("WEIR_VERIFY_INTERVAL", "1"),
    ]);
    let _ztunnel = scene.ztunnel();
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    assert!(rules().contains("lookup 100"), "{}", rules());
    disable(0);
    agent.until("the route", || routes().contains("table 100"));
    disable(1);
    sandbox.tool("ip", &["-6", "rule", "del", "table", "100"]);
    agent.until("the rule is back", || rules().contains("lookup 100"));
    agent.until("enrolled", || states(&agent, "enrolled") == 1);
    assert!(!routes().contains("table 100"), "{}", routes());
}

/// The kernel reports none of these changes, and the periodic comparison would be too late. After each repair a connection proves that the
/// programs capture.
#[test]
fn by_ebpf_programs_that_another_one_detaches_or_replaces_come_back_at_once() {
    let Some(mounted) = mount() else { return };
    let Some(sandbox) = Sandbox::of("held") else {
        return;
    };
    let scene = Scene::new();
    scene.put("held", &sandbox);
    let (netns, host) = (sandbox.netns(), &scene.host);
    let routing = Routing::open_in(netns).unwrap();
    routing.add_veth("eth0", "veth0", host).unwrap();
    give(host, "veth0", "10.98.0.1/24");
    give(netns, "eth0", "10.98.0.2/24");
    route(netns, "0.0.0.0/0", (Some("10.98.0.1"), "eth0"));
    // Otherwise each proof would wait for the answer of the gateway, which may come too late.
    let neighbour = "neighbour add 10.98.0.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent";
    let words: Vec<&str> = neighbour.split(' ').collect();
    sandbox.tool("ip", &words);
    let agent = scene.start(&[
        ("WEIR_AMBIENT_ENGINE", "ebpf"),
        ("WEIR_BPFFS", mounted.path().to_str().unwrap()),
        ("WEIR_LIVE_PROOF", "true"),
        SELDOM,
    ]);
    let _ztunnel = scene.ztunnel();
    let counted = || {
        let of = |name: &str| agent.metric(&format!("weir_ambient_{name}"));
        let proved = ["yes", "unknown", "no"].map(|a| format!("proved_total{{answer=\"{a}\"}}"));
        (
            of("healed_total{cause=\"missing\"}"),
            proved.map(|name| of(&name)),
        )
    };
    agent.until("enrolled and proved", || {
        states(&agent, "enrolled") == 1 && counted() == (0, [1, 0, 0])
    });
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let pin = |place: (&str, &str)| {
        let shown = weir_ebpf::show::read(netns, Some(&bpffs)).unwrap();
        let mut programs = shown.programs.into_iter();
        let found = programs.find(|p| (&*p.interface, &*p.hook) == place);
        found.and_then(|program| program.pin).expect("its pin")
    };
    let link = |place| match open_pin(&pin(place)).unwrap() {
        Pinned::Link(link) => link,
        other => panic!("{other:?}"),
    };
    link(("eth0", "tcx egress")).detach().unwrap();
    agent.until("attached again", || counted() == (1, [2, 0, 0]));
    let ingress = link(("eth0", "tcx ingress"));
    ingress.replace(&passes(), None).unwrap();
    agent.until("its program again", || counted() == (2, [3, 0, 0]));
    drop(ingress);
    std::fs::remove_file(pin(("lo", "tcx ingress"))).unwrap();
    agent.until("pinned again", || counted() == (3, [4, 0, 0]));
    assert!(link(("lo", "tcx ingress")).info().is_ok());
}

#[test]
fn by_ebpf_a_program_that_is_detached_while_no_agent_runs_is_reported_by_the_next_agent() {
    let Some(mounted) = mount() else { return };
    let Some(sandbox) = Sandbox::of("detached") else {
        return;
    };
    let scene = Scene::new();
    scene.put("detached", &sandbox);
    let netns = sandbox.netns();
    let routing = Routing::open_in(netns).unwrap();
    routing.add_veth("eth0", "veth0", &scene.host).unwrap();
    let settings = [
        ("WEIR_AMBIENT_ENGINE", "ebpf"),
        ("WEIR_BPFFS", mounted.path().to_str().unwrap()),
        SELDOM,
    ];
    let enrolled = || {
        let agent = scene.start(&settings);
        agent.until("enrolled", || states(&agent, "enrolled") == 1);
        let healed = agent.metric("weir_ambient_healed_total{cause=\"missing\"}");
        (agent, healed)
    };
    let _ztunnel = scene.ztunnel();
    for _ in 0..2 {
        let (agent, healed) = enrolled();
        assert_eq!(healed, 0, "{}", agent.log());
    }
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let shown = weir_ebpf::show::read(netns, Some(&bpffs)).unwrap();
    let mut programs = shown.programs.into_iter();
    let egress = programs.find(|p| (&*p.interface, &*p.hook) == ("eth0", "tcx egress"));
    let pin = egress.and_then(|program| program.pin).expect("its pin");
    let Pinned::Link(link) = open_pin(&pin).unwrap() else {
        panic!("a link")
    };
    link.detach().unwrap();
    let (agent, healed) = enrolled();
    assert_eq!(healed, 1, "{}", agent.log());
    agent.says("was not captured as it should be");
}

/// A pod that leaves while no agent runs is released by the next one, whatever its setting is and whatever captured the pod.
#[test]
fn an_agent_with_another_setting_releases_a_pod_that_has_left() {
    let Some(mounted) = mount() else { return };
    let Some(sandbox) = Sandbox::of("web") else {
        return;
    };
    let scene = Scene::new();
    scene.put("web", &sandbox);
    let routing = Routing::open_in(sandbox.netns()).unwrap();
    routing.add_veth("eth0", "veth0", &scene.host).unwrap();
    let routing_of_pod = || (routing.rules().unwrap(), routing.routes(100).unwrap());
    let root = mounted.path().to_str().unwrap();
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    let programs = || {
        let shown = weir_ebpf::show::read(sandbox.netns(), Some(&bpffs)).unwrap();
        shown.programs.len()
    };
    let before = routing_of_pod();
    for (captured_by, left_by) in [("auto", "ebpf"), ("ebpf", "auto"), ("ebpf", "node-ebpf")] {
        let start =
            |engine: &str| scene.start(&[("WEIR_AMBIENT_ENGINE", engine), ("WEIR_BPFFS", root)]);
        scene.server.put(labelled("ambient"));
        let mut agent = start(captured_by);
        let ztunnel = scene.ztunnel();
        agent.until("enrolled", || scene.annotation("web") == "enabled");
        let by_programs = captured_by == "ebpf";
        let has_rules = sandbox.rules().contains("istio");
        assert_eq!((programs() > 0, has_rules), (by_programs, !by_programs));
        agent.signal(nix::sys::signal::Signal::SIGKILL);
        agent.ended();
        drop(ztunnel);
        scene.server.put(labelled("none"));
        let agent = start(left_by);
        agent.until("it has left", || scene.annotation("web").is_null());
        agent.until("nothing is left in it", || {
            programs() == 0 && has_no_rules(&sandbox) && routing_of_pod() == before
        });
    }
}

/// Whether `attempt` succeeds before the deadline of a test.
fn soon(attempt: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !attempt() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
    }
    true
}

/// The host, a pod with a listening application, and another machine, with routes between them.
struct Net {
    sandbox: Sandbox,
    other: Netns,
    application: TcpListener,
    to: SocketAddr,
}

const HOST: &str = "192.168.77.1";

fn give(netns: &Netns, link: &str, address: &str) {
    let routing = Routing::open_in(netns).unwrap();
    let index = routing.link(link).unwrap().index;
    routing.set_up(index).unwrap();
    if !address.is_empty() {
        let added = routing.add_address(index, address.parse().unwrap());
        assert!(added.unwrap(), "{address}");
    }
}

fn route(netns: &Netns, to: &str, (gateway, link): (Option<&str>, &str)) {
    let routing = Routing::open_in(netns).unwrap();
    let gateway = gateway.map(|g| g.parse().unwrap());
    let index = routing.link(link).unwrap().index;
    let route = Route::unicast(to.parse().unwrap(), gateway, Some(index));
    routing.add_route(&route).unwrap();
}

impl Net {
    fn new(scene: &Scene, name: &str) -> Option<Self> {
        let (sandbox, host) = (Sandbox::of(name)?, &scene.host);
        let other = weir_testing::namespace()?;
        for (netns, link, ends) in [
            (sandbox.netns(), "veth0", ["", "192.168.77.1/24"]),
            (&other, "veth1", ["192.168.78.2/24", "192.168.78.1/24"]),
        ] {
            let routing = Routing::open_in(netns).unwrap();
            routing.add_veth("eth0", link, host).unwrap();
            give(netns, "eth0", ends[0]);
            give(host, link, ends[1]);
        }
        let address = format!("{}/32", sandbox.address);
        route(host, &address, (None, "veth0"));
        route(sandbox.netns(), "192.168.77.0/24", (None, "eth0"));
        route(sandbox.netns(), "192.168.78.0/24", (Some(HOST), "eth0"));
        route(&other, &address, (Some("192.168.78.1"), "eth0"));
        let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
        host.run(forward).unwrap().unwrap();
        let to = SocketAddr::new(sandbox.address.parse().unwrap(), 8080);
        let listen = || TcpListener::bind(to);
        let application = sandbox.netns().run(listen).unwrap().unwrap();
        application.set_nonblocking(true).unwrap();
        scene.put(name, &sandbox);
        Some(Self {
            sandbox,
            other,
            application,
            to,
        })
    }

    /// Like [`Net::reaches`], repeated until a deadline: a new link drops packets for a moment, and a busy machine is slow.
    #[track_caller]
    fn is_reached(&self, from: &Netns, source: Option<&str>) -> bool {
        soon(|| self.reaches(from, source))
    }

    /// Whether the application receives a connection. Nothing listens on ztunnel's port, so a captured connection fails.
    #[track_caller]
    fn reaches(&self, from: &Netns, source: Option<&str>) -> bool {
        let connect = || {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
            if let Some(source) = source {
                let source: IpAddr = source.parse().unwrap();
                socket.bind(&SocketAddr::new(source, 0).into())?;
            }
            socket.connect_timeout(&self.to.into(), Duration::from_millis(500))?;
            Ok::<TcpStream, std::io::Error>(socket.into())
        };
        match from.run(connect).unwrap() {
            Ok(connected) => {
                let accepted = arrived(true, || self.application.accept());
                let (_, peer) = accepted.expect("the application has it");
                assert_eq!(peer, connected.local_addr().unwrap());
                true
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::TimedOut, "{e}");
                false
            }
        }
    }
}

/// The netfilter objects of a namespace. On a kernel without netfilter the tools fail and print nothing.
fn netfilter(netns: &Netns) -> String {
    let look = || {
        let tables = ["ip_tables_names", "ip6_tables_names"].map(|name| {
            let read = std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
            read.unwrap_or_default()
        });
        let listed = [("nft", "list ruleset"), ("ipset", "save")].map(|(tool, words)| {
            let mut tool = std::process::Command::new(tool);
            let run = tool.args(words.split(' ')).output();
            run.map(|run| String::from_utf8_lossy(&run.stdout).into_owned())
                .unwrap_or_default()
        });
        tables.concat() + &listed.concat()
    };
    netns.run(look).unwrap()
}

// matrix: variants no-netfilter
#[test]
fn by_ebpf_the_host_reaches_the_pod_and_nothing_of_netfilter_is_anywhere() {
    let Some(mounted) = mount() else { return };
    let scene = Scene::new();
    let Some(net) = Net::new(&scene, "web") else {
        return;
    };
    let host = &scene.host;
    assert!(net.is_reached(&net.other, None) && net.is_reached(host, None));
    let settings = [
        ("WEIR_AMBIENT_ENGINE", "ebpf"),
        ("WEIR_BPFFS", mounted.path().to_str().unwrap()),
        ("WEIR_VERIFY_INTERVAL", "1"),
    ];
    let agent = scene.start(&settings);
    let ztunnel = scene.ztunnel();
    ztunnel.carries("uid-web", Some(id(&net.sandbox)));
    agent.until("enrolled", || {
        scene.annotation("web") == "enabled" && states(&agent, "enrolled") == 1
    });
    assert!(net.is_reached(host, None), "a probe");
    assert!(!net.reaches(&net.other, None), "captured");
    // The host gets an address that another machine has later.
    give(host, "veth0", "192.168.77.9/24");
    let new = Some("192.168.77.9");
    assert!(net.is_reached(host, new), "a new address");
    let routing = Routing::open_in(host).unwrap();
    let veth0 = routing.link("veth0").unwrap().index;
    let new = "192.168.77.9/24".parse().unwrap();
    assert!(routing.del_address(veth0, new).unwrap());
    give(&net.other, "eth0", "192.168.77.9/32");
    route(host, "192.168.77.9/32", (None, "veth1"));
    route(net.sandbox.netns(), "192.168.77.9/32", (Some(HOST), "eth0"));
    assert!(!net.reaches(&net.other, Some("192.168.77.9")), "moved away");
    for netns in [host, net.sandbox.netns()] {
        assert_eq!(netfilter(netns), "");
    }

    // Traffic stays captured without the agent, and the next agent finds everything in sync.
    drop((agent, ztunnel));
    assert!(net.is_reached(host, None) && !net.reaches(&net.other, None));
    let agent = scene.start(&settings);
    let _ztunnel = scene.ztunnel();
    agent.until("enrolled again", || states(&agent, "enrolled") == 1);
    assert!(net.is_reached(host, None) && !net.reaches(&net.other, None));
    assert_eq!(
        agent.metric("weir_ambient_healed_total{cause=\"missing\"}"),
        0
    );
}

/// The agent is killed and restarted while connections to and from the pod begin: all of them are captured, and probes pass.
#[test]
fn by_ebpf_all_is_captured_while_the_agent_is_killed() {
    let Some(mounted) = mount() else { return };
    let scene = Scene::new();
    let Some(net) = Net::new(&scene, "killed-inside") else {
        return;
    };
    let host = &scene.host;
    let to = SocketAddr::from(([192, 168, 78, 2], 8080));
    let served = net.other.run(|| TcpListener::bind(to)).unwrap().unwrap();
    served.set_nonblocking(true).unwrap();
    let gets_out = || {
        let connect = || TcpStream::connect_timeout(&to, Duration::from_millis(500));
        let connected = net.sandbox.netns().run(connect).unwrap();
        arrived(connected.is_ok(), || served.accept()).is_some()
    };
    assert!(net.is_reached(&net.other, None) && net.is_reached(host, None) && soon(gets_out));
    let settings = [
        ("WEIR_AMBIENT_ENGINE", "ebpf"),
        ("WEIR_BPFFS", mounted.path().to_str().unwrap()),
        ("WEIR_VERIFY_INTERVAL", "1"),
    ];
    let mut agent = scene.start(&settings);
    let _ztunnel = scene.ztunnel();
    let is_enrolled = |agent: &Agent| states(agent, "enrolled") == 1;
    agent.until("enrolled", || is_enrolled(&agent));
    let (end, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let more_rounds = || {
        let (begun, before) = (Instant::now(), rounds.load(Ordering::Relaxed));
        while rounds.load(Ordering::Relaxed) < before + 2 {
            assert!(begun.elapsed() < PATIENCE, "no traffic");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    std::thread::scope(|scope| {
        let ends = Ends(&end);
        let connects = scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                assert!(!gets_out() && !net.reaches(&net.other, None));
                assert!(net.is_reached(host, None), "no probe passes");
                rounds.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..3 {
            more_rounds();
            agent.signal(nix::sys::signal::Signal::SIGKILL);
            agent.ended();
            more_rounds();
            agent = scene.start(&settings);
            agent.until("enrolled again", || is_enrolled(&agent));
        }
        more_rounds();
        drop(ends);
        connects.join().unwrap();
    });
    let healed = agent.metric("weir_ambient_healed_total{cause=\"missing\"}");
    assert_eq!(healed, 0, "{}", agent.log());
}

/// In this case even connections from the host are captured, and the state of the pod gives the reason.
#[test]
fn where_the_namespace_of_the_host_is_not_found_the_pod_is_captured_and_pending() {
    let Some(mounted) = mount() else { return };
    let scene = Scene::new();
    let Some(net) = Net::new(&scene, "web") else {
        return;
    };
    let nowhere = "/nonexistent/ns/net";
    let agent = scene.start(&[
        ("WEIR_AMBIENT_ENGINE", "ebpf"),
        ("WEIR_BPFFS", mounted.path().to_str().unwrap()),
        ("WEIR_HOST_NETNS", nowhere),
    ]);
    let ztunnel = scene.ztunnel();
    ztunnel.carries("uid-web", Some(id(&net.sandbox)));
    agent.until("pending", || {
        let why = crate::ambient::why(&agent, "web");
        states(&agent, "pending") == 1 && why.contains(nowhere)
    });
    assert!(!net.reaches(&scene.host, None) && !net.reaches(&net.other, None));
}
