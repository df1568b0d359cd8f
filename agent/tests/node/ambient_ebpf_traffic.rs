//! Connections from and to a pod of ambient mode that eBPF programs capture. With programs, probes need no rule at the host.

use crate::ambient::{Scene, id, states, why};
use crate::ambient_ebpf::mount;
use crate::ambient_node::arrived;
use crate::repair::Sandbox;
use crate::support::{Agent, PATIENCE};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_netlink::route::{Route, Routing};
use weir_testing::Ends;

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

pub(crate) fn give(netns: &Netns, link: &str, address: &str) {
    let routing = Routing::open_in(netns).unwrap();
    let index = routing.link(link).unwrap().index;
    routing.set_up(index).unwrap();
    if !address.is_empty() {
        let added = routing.add_address(index, address.parse().unwrap());
        assert!(added.unwrap(), "{address}");
    }
}

pub(crate) fn route(netns: &Netns, to: &str, (gateway, link): (Option<&str>, &str)) {
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
        let why = why(&agent, "web");
        states(&agent, "pending") == 1 && why.contains(nowhere)
    });
    assert!(!net.reaches(&scene.host, None) && !net.reaches(&net.other, None));
}
