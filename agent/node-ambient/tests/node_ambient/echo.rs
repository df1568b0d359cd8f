//! Echo requests pass in both directions: the proxy does not handle them.

use crate::ebpf::{applied, builds};
use crate::scene::{OUTSIDE, PATIENCE, POD, PROXY, Scene, Servers, address, inside, set};
use crate::{carrier, each, up};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use weir_cni::compile::Engine;
use weir_netlink::Netns;
use weir_node_ambient::apply;

/// The longer one exceeds the MTU of a link.
const LENGTHS: [usize; 2] = [8, 4000];

/// Whether the address answers a request from one of the sender's own addresses.
fn echoes(netns: &Netns, from: IpAddr, to: IpAddr, length: usize) -> bool {
    let (domain, protocol, request, reply) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, 8, 0),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, 128, 129),
    };
    let open = || Socket::new(domain, Type::DGRAM, Some(protocol)).unwrap();
    let socket = netns.run(open).unwrap();
    socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
    // The connected socket ignores packets of other senders.
    socket.connect(&SocketAddr::new(to, 0).into()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    // Type, code, checksum, identifier (chosen by the kernel), sequence number.
    let mut message = vec![request, 0, 0, 0, 0, 0, 0, 7];
    message.extend((0..length).map(|n| (n % 251) as u8));
    socket.send(&message).unwrap();
    let mut buffer = vec![0; 1 << 16];
    match (&socket).read(&mut buffer) {
        Ok(n) => {
            assert_eq!((buffer[0], &buffer[6..n]), (reply, &message[6..]));
            true
        }
        Err(_) => false,
    }
}

/// Checks requests between the pod, the node and the outside.
fn check(scene: &Scene, what: &str) {
    for v6 in [false, true] {
        let (pod, outside) = (inside(POD, v6), inside(OUTSIDE, v6));
        let node = address(POD, v6, 1);
        for (netns, from, to) in [
            (&scene.pod, pod, outside),
            (&scene.outside, outside, pod),
            (&scene.pod, pod, node),
            (&scene.node, node, pod),
            (&scene.node, address(OUTSIDE, v6, 1), pod),
        ] {
            for length in LENGTHS {
                let is_answered = echoes(netns, from, to, length);
                assert!(is_answered, "{what}: {from} to {to}, {length} bytes");
            }
        }
    }
}

/// By default no group may open sockets for echo requests, see `icmp(7)`.
fn allow(scene: &Scene) {
    for netns in scene.all() {
        set(netns, "ipv4/ping_group_range", "0 0");
    }
}

#[test]
fn rules_let_echo_requests_pass() {
    each(&["vxlan", "veth"], |scene, engine, name| {
        let servers = Servers::start(scene);
        allow(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        check(scene, "with a proxy");
        let none = scene.config(&[], &carrier(name));
        apply(&none, &scene.node, Some(engine), false).unwrap();
        check(scene, "without a proxy");
        assert_eq!(servers.drain(), []);
    });
}

/// Also after rules had been in force.
// matrix: every
#[test]
fn programs_let_echo_requests_pass() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        allow(&scene);
        let _ = up(&scene, Engine::Nft, "");
        for proxies in [&[(PROXY, 1)][..], &[]] {
            applied(&scene, &mounted, &scene.config(proxies, ""));
            check(&scene, "by programs");
        }
        assert_eq!(servers.drain(), []);
    }
}
