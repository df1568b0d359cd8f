//! Addresses of an enrolled pod that Kubernetes does not list: link-local ones, and further ones of its interface.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::leaks::{frames, parse};
use crate::scene::{
    OUTSIDE, PATIENCE, POD, PROXY, SECOND, Scene, Servers, address, ask, inside, socket,
};
use crate::up;
use socket2::Socket;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream};
use std::time::{Duration, Instant};
use weir_cni::compile::Engine;
use weir_netlink::Netns;
use weir_netlink::route::Routing;
use weir_testing::BpfFs;

/// Its protocol number.
const TCP: u8 = 6;
/// The last part of the pod's further addresses.
pub(crate) const FURTHER: u8 = 77;

/// Adds further addresses to the pod, to which the node has routes like those to the listed ones.
pub(crate) fn add_addresses(scene: &Scene) {
    let routing = Routing::open_in(&scene.pod).unwrap();
    let held = routing.addresses().unwrap();
    for v6 in [false, true] {
        let listed = held
            .iter()
            .find(|a| a.net.addr() == inside(POD, v6))
            .unwrap();
        let net = ipnet::IpNet::new(address(POD, v6, FURTHER), listed.net.prefix_len()).unwrap();
        routing.add_address(listed.index, net).unwrap();
    }
}

/// The address that the kernel gives a link some time after it is up.
fn link_local(netns: &Netns) -> IpAddr {
    let routing = Routing::open_in(netns).unwrap();
    let end = Instant::now() + PATIENCE;
    loop {
        let held = routing.addresses().unwrap();
        let mut all = held.iter().map(|a| a.net.addr());
        let found = all.find(|a| matches!(a, IpAddr::V6(v6) if v6.is_unicast_link_local()));
        match found {
            Some(found) => return found,
            None => assert!(Instant::now() < end, "the link has no address"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Port 8080 at this address, with the interface of `from` as its scope.
fn at(from: &Netns, to: IpAddr) -> SocketAddr {
    let index = || Routing::open().unwrap().link("eth0").unwrap().index;
    match to {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, 8080, 0, from.run(index).unwrap()).into()
        }
        _ => SocketAddr::new(to, 8080),
    }
}

/// Long enough for one retransmission of the first segment.
pub(crate) const SHORT: Duration = Duration::from_millis(1200);

pub(crate) fn connect_from(
    netns: &Netns,
    from: IpAddr,
    to: SocketAddr,
    limit: Duration,
) -> std::io::Result<TcpStream> {
    let scope = match to {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let from = match from {
        IpAddr::V6(v6) => SocketAddrV6::new(v6, 0, 0, scope).into(),
        IpAddr::V4(_) => SocketAddr::new(from, 0),
    };
    let connect = || {
        let socket = socket(to, false);
        socket.bind(&from.into())?;
        socket.connect_timeout(&to.into(), limit)?;
        Ok(TcpStream::from(socket))
    };
    netns.run(connect).unwrap()
}

/// The fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Became {
    /// The peer received a segment.
    is_seen: bool,
    is_made: bool,
}

/// Whether these frames contain a segment from this address.
pub(crate) fn has_come(frames: &Socket, from: IpAddr) -> bool {
    frames.set_nonblocking(true).unwrap();
    let (mut has_come, mut buffer) = (false, vec![0; 1 << 17]);
    while let Ok(n) = (&*frames).read(&mut buffer) {
        let found = parse(&buffer[..n]);
        has_come |= found.is_some_and(|(source, protocol, _)| (source, protocol) == (from, TCP));
    }
    has_come
}

fn tried(from: (&Netns, IpAddr), to: (&Netns, IpAddr), limit: Duration) -> Became {
    let frames = frames(to.0);
    let is_made = connect_from(from.0, from.1, at(from.0, to.1), limit).is_ok();
    Became {
        is_seen: has_come(&frames, from.1),
        is_made,
    }
}

/// Connections between the pod's unlisted addresses and a peer, in both directions.
fn connections(scene: &Scene, peer: u8, limit: Duration) -> Vec<(IpAddr, [Became; 2])> {
    let (netns, is_neighbour) = match peer {
        SECOND => (&scene.second, true),
        _ => (&scene.outside, false),
    };
    let further = [false, true].map(|v6| (address(POD, v6, FURTHER), inside(peer, v6)));
    let own = is_neighbour.then(|| (link_local(&scene.pod), link_local(netns)));
    let pairs = further.into_iter().chain(own);
    let both = pairs.map(|(own, peer)| {
        let (pod, peer) = ((&scene.pod, own), (netns, peer));
        (own, [tried(pod, peer, limit), tried(peer, pod, limit)])
    });
    both.collect()
}

/// Before the pod is enrolled, it and its peers reach each other. Afterwards they do not, but the node still reaches the pod.
fn check(scene: &Scene, peers: &[u8], capture: impl FnOnce() -> bool) {
    add_addresses(scene);
    let all_are = |is: bool| {
        let expected = Became {
            is_seen: is,
            is_made: is,
        };
        for peer in peers {
            let limit = if is { PATIENCE } else { SHORT };
            let found = connections(scene, *peer, limit);
            let is_expected = found.iter().all(|(_, both)| *both == [expected; 2]);
            assert!(is_expected, "{found:#?}");
        }
    };
    all_are(true);
    if !capture() {
        return;
    }
    all_are(false);
    for v6 in [false, true] {
        let further = SocketAddr::new(address(POD, v6, FURTHER), 8080);
        assert_eq!(answer(&scene.node, further), "pod|x");
        assert_eq!(answer(&scene.outside, web(POD, v6)), "inbound|pod|x");
        let mut stream =
            connect_from(&scene.pod, inside(POD, v6), web(OUTSIDE, v6), PATIENCE).unwrap();
        assert_eq!(ask(&mut stream, "x").unwrap(), "outbound|outside|x");
    }
}

fn by_rules(scene: Scene, peers: &[u8]) {
    let servers = Servers::start(&scene);
    servers.echo(&scene.second, "neighbour");
    check(&scene, peers, || up(&scene, Engine::Nft, ""));
}

// matrix: every
#[test]
fn rules_let_no_unlisted_address_past_the_proxy() {
    if let Some(scene) = Scene::build() {
        by_rules(scene, &[OUTSIDE]);
    }
}

// matrix: every
#[test]
fn rules_let_no_unlisted_address_past_the_proxy_at_a_bridge() {
    if let Some(scene) = Scene::bridged() {
        by_rules(scene, &[OUTSIDE, SECOND]);
    }
}

/// The number of packets that the programs dropped for this reason.
fn dropped(scene: &Scene, mounted: &BpfFs) -> u64 {
    let counters = weir_ebpf::node::Node::of(&scene.node, &bpffs(mounted)).counters();
    let mut counters = counters.unwrap().into_iter();
    let name = "dropped: the pod's address";
    counters.find(|(of, _)| of.starts_with(name)).unwrap().1
}

fn by_programs(scene: &Scene, mounted: &BpfFs, peers: &[u8]) {
    let servers = Servers::start(scene);
    servers.echo(&scene.second, "neighbour");
    check(scene, peers, || {
        applied(scene, mounted, &scene.config(&[(PROXY, 1)], ""));
        assert_eq!(dropped(scene, mounted), 0);
        true
    });
    assert_ne!(dropped(scene, mounted), 0);
}

// matrix: every
#[test]
fn programs_let_no_unlisted_address_past_the_proxy() {
    for (scene, mounted) in builds() {
        by_programs(&scene, &mounted, &[OUTSIDE]);
    }
}

// matrix: every
#[test]
fn programs_let_no_unlisted_address_past_the_proxy_at_a_bridge() {
    let has_links = || weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok();
    for mounted in BpfFs::each(has_links) {
        if let Some(scene) = Scene::bridged() {
            by_programs(&scene, &mounted, &[OUTSIDE, SECOND]);
        }
    }
}
