//! Ambient mode at the node while the agent is killed and restarted: pods keep connecting, and nothing leaves the node in plain text.

use crate::ambient::{Scene, states};
use crate::ambient_node::{
    ELSEWHERE, Listener, NODE, PATIENCE, Pod, address, arrived, connect, networks, ztunnel,
};
use crate::api_server::namespace;
use socket2::{Domain, Protocol, Socket, Type};
use std::cell::RefCell;
use std::collections::HashSet;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_netlink::route::{LOOPBACK_IFINDEX, Route, Routing};
use weir_testing::{BpfFs, Ends};

/// From `linux/if_ether.h`: frames of every protocol.
const ETH_P_ALL: u16 = 3;
const TCP: u8 = 6;

/// The network beyond the node, which serves [`ELSEWHERE`], and the frames that arrive there.
pub(crate) struct Uplink {
    outside: Netns,
    frames: Socket,
    server: TcpListener,
    /// The pod's ports of connections that began before capture. They are not captured: on a busy machine their retransmissions can arrive
    /// at any time.
    before: RefCell<HashSet<u16>>,
}

impl Uplink {
    pub(crate) fn of(host: &Netns) -> Self {
        let outside = Netns::create().unwrap();
        let (node, there) = (
            Routing::open_in(host).unwrap(),
            Routing::open_in(&outside).unwrap(),
        );
        node.add_veth("up0", "eth0", &outside).unwrap();
        there.set_up(LOOPBACK_IFINDEX).unwrap();
        let [own, peer] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(IpAddr::from);
        for (routing, name, at) in [(&node, "up0", own), (&there, "eth0", peer)] {
            let index = routing.link(name).unwrap().index;
            let net = ipnet::IpNet::new(at, 24).unwrap();
            routing.add_address(index, net).unwrap();
            routing.set_up(index).unwrap();
        }
        let to: SocketAddr = ELSEWHERE.parse().unwrap();
        let served = there.add_address(LOOPBACK_IFINDEX, to.ip().into());
        served.unwrap();
        let way = Route::unicast(to.ip().into(), Some(peer), None);
        node.add_route(&way).unwrap();
        let back = Route::unicast(networks(), Some(own), None);
        there.add_route(&back).unwrap();
        let protocol = Protocol::from(i32::from(ETH_P_ALL.to_be()));
        let open = || Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap();
        let frames = outside.run(open).unwrap();
        frames
            .set_read_timeout(Some(crate::support::PATIENCE))
            .unwrap();
        let listen = || TcpListener::bind(to).unwrap();
        let server = outside.run(listen).unwrap();
        server.set_nonblocking(true).unwrap();
        Self {
            outside,
            frames,
            server,
            before: RefCell::default(),
        }
    }

    /// Whether a connection of the pod arrives here in plain text.
    pub(crate) fn gets(&self, from: &Pod) -> bool {
        while self.server.accept().is_ok() {}
        let connected = connect(from).is_ok();
        connected && arrived(true, || self.server.accept()).is_some()
    }

    /// Like [`Uplink::gets`], before anything captures.
    fn gets_before(&self, from: &Pod) -> bool {
        while self.server.accept().is_ok() {}
        let socket = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let any = SocketAddr::from(([0, 0, 0, 0], 0));
            socket.bind(&any.into()).unwrap();
            socket
        };
        let socket = from.sandbox.netns().run(socket).unwrap();
        let own = socket.local_addr().unwrap().as_socket().unwrap();
        self.before.borrow_mut().insert(own.port());
        let to: SocketAddr = ELSEWHERE.parse().unwrap();
        let connected = socket.connect_timeout(&to.into(), PATIENCE).is_ok();
        connected && arrived(true, || self.server.accept()).is_some()
    }

    /// The number of TCP segments from the pod since the last call, without those of connections from before capture.
    ///
    /// A datagram, which is never captured, marks the end of these segments.
    fn left(&self, from: &Pod, number: u8) -> usize {
        let own = address(number, 10);
        let send = || UdpSocket::bind((own, 0)).unwrap();
        let fence = from.sandbox.netns().run(send).unwrap();
        let to: SocketAddr = ELSEWHERE.parse().unwrap();
        fence.send_to(b"fence", (to.ip(), 9)).unwrap();
        let port = fence.local_addr().unwrap().port();
        let (mut count, mut buffer) = (0, vec![0; 1 << 17]);
        loop {
            let n = (&self.frames).read(&mut buffer).unwrap();
            let frame = &buffer[..n];
            if frame.get(12..14) != Some(&[0x08, 0x00]) {
                continue;
            }
            let source: [u8; 4] = frame[26..30].try_into().unwrap();
            if IpAddr::from(source) != own {
                continue;
            }
            let from = u16::from_be_bytes(frame[34..36].try_into().unwrap());
            if frame[23] == TCP {
                count += usize::from(!self.before.borrow().contains(&from));
            } else if from == port {
                return count;
            }
        }
    }
}

/// The pod names become names of control groups, which parallel tests share.
fn killed([web_name, proxy_name]: [&str; 2], settings: &[(&str, &str)]) {
    let scene = Scene::new();
    crate::ambient_node::set(&scene.host, "ipv4/ip_forward", "1");
    let pods = [(web_name, 1), (proxy_name, 2)].map(|(name, n)| Pod::new(name, n, &scene.host));
    let [Some(web), Some(proxy)] = pods else {
        return;
    };
    let uplink = Uplink::of(&scene.host);
    // Without an agent, connections arrive in plain text. A new link drops the first packets.
    let begun = Instant::now();
    while !uplink.gets_before(&web) {
        assert!(begun.elapsed() < crate::support::PATIENCE, "no way out");
    }
    let seen = uplink.before.take();
    assert!(uplink.left(&web, 1) > 0);
    uplink.before.replace(seen);
    scene.server.put(namespace("istio-system"));
    scene.server.put(web.object("shop", web_name));
    scene.server.put(ztunnel(&proxy, proxy_name, true));
    let listener = Listener::of(&proxy);
    let mut agent = scene.start(settings);
    let is_enrolled = |agent: &_| states(agent, "enrolled") == 1;
    agent.until("enrolled", || is_enrolled(&agent));
    let (end, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let more_rounds = || {
        let (begun, before) = (Instant::now(), rounds.load(Ordering::Relaxed));
        while rounds.load(Ordering::Relaxed) < before + 10 {
            assert!(begun.elapsed() < crate::support::PATIENCE, "no traffic");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let lost = std::thread::scope(|scope| {
        let ends = Ends(&end);
        let connects = scope.spawn(|| {
            let mut lost = 0;
            while !end.load(Ordering::Relaxed) {
                lost += usize::from(!listener.gets(&web));
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            lost
        });
        for _ in 0..3 {
            more_rounds();
            agent.signal(nix::sys::signal::Signal::SIGKILL);
            agent.ended();
            more_rounds();
            agent = scene.start(settings);
            agent.until("enrolled again", || is_enrolled(&agent));
        }
        more_rounds();
        drop(ends);
        connects.join().unwrap()
    });
    assert_eq!((lost, uplink.left(&web, 1)), (0, 0), "{}", agent.log());
    // Without the proxy's process no connection succeeds, and nothing leaves the node.
    drop(listener);
    agent.signal(nix::sys::signal::Signal::SIGKILL);
    agent.ended();
    assert!(connect(&web).is_err());
    let agent = scene.start(settings);
    agent.until("enrolled again", || is_enrolled(&agent));
    assert!(connect(&web).is_err());
    assert_eq!(uplink.left(&web, 1), 0, "{}", agent.log());
    drop(uplink.outside);
}

#[test]
fn check_6_rules_at_the_node_capture_while_the_agent_is_killed() {
    killed(["killed-web", "killed-proxy"], &NODE);
}

#[test]
fn check_5_programs_at_the_node_capture_while_the_agent_is_killed() {
    let Some(mounted) = crate::ambient_node::programs_or_skip() else {
        return;
    };
    killed(["killed-pod", "killed-ztunnel"], &by_programs(&mounted));
}

pub(crate) fn by_programs(mounted: &BpfFs) -> [(&str, &str); 3] {
    [
        ("WEIR_AMBIENT_ENGINE", "node-ebpf"),
        ("AMBIENT_IPV6", "false"),
        ("WEIR_BPFFS", mounted.path().to_str().unwrap()),
    ]
}
