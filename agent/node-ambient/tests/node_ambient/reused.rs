//! Conntrack entries that are older than the connection: another packet created them, or the port is used again.

use crate::ebpf::{applied, builds, web};
use crate::leaks::{frames, parse};
use crate::scene::{OUTSIDE, PATIENCE, POD, PROXY, Scene, Servers, ask, inside, socket};
use crate::{carrier, each, up};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io::ErrorKind::{AddrInUse, AddrNotAvailable};
use std::io::{Error, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use weir_netlink::Netns;
use weir_netlink::route::{AddressFamily, PolicyRule, Routing, RuleAction};

/// The source port of every connection.
const PORT: u16 = 1234;

/// Connects from this port, which may have been used before. A child that another test starts has a copy of that socket until it executes
/// its program: until then the port is in use.
fn connect(
    netns: &Netns,
    from: SocketAddr,
    to: SocketAddr,
    patience: Duration,
) -> std::io::Result<TcpStream> {
    let connect = || {
        let socket = socket(to, false);
        socket.bind(&from.into())?;
        socket.connect_timeout(&to.into(), patience)?;
        Ok(TcpStream::from(socket))
    };
    let end = Instant::now() + PATIENCE;
    loop {
        let done = netns.run(connect).unwrap();
        let in_use = |e: &Error| matches!(e.kind(), AddrNotAvailable | AddrInUse);
        if !done.as_ref().is_err_and(in_use) || Instant::now() > end {
            return done;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The client's namespace and address, and its destination: from the pod, and from outside.
fn ways(
    scene: &Scene,
) -> impl Iterator<Item = (&Netns, &Netns, SocketAddr, SocketAddr, &'static str)> {
    [false, true].into_iter().flat_map(move |v6| {
        let from = |place| SocketAddr::new(inside(place, v6), PORT);
        let outbound = (
            &scene.pod,
            &scene.outside,
            from(POD),
            web(OUTSIDE, v6),
            "outbound|outside|x",
        );
        let inbound = (
            &scene.outside,
            &scene.pod,
            from(OUTSIDE),
            web(POD, v6),
            "inbound|pod|x",
        );
        [outbound, inbound]
    })
}

/// In the namespace of the proxy, packets for it are silently dropped.
fn lose(scene: &Scene, is_lost: bool) {
    let routing = Routing::open_in(&scene.proxy).unwrap();
    for family in [AddressFamily::V4, AddressFamily::V6] {
        let rule = PolicyRule {
            fwmask: Some(0xfff),
            action: RuleAction::BlackHole,
            ..PolicyRule::mark(family, 0x400, 0).at(1)
        };
        match is_lost {
            true => assert!(routing.add_rule(&rule).unwrap()),
            false => drop(routing.del_rule(&rule).unwrap()),
        }
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// The checksum of RFC 1071.
fn checksum(words: &[u8]) -> [u8; 2] {
    let pair = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    let mut sum: u32 = words.chunks(2).map(pair).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

/// Sends "host unreachable" from the client, about a segment that it would have received from the server.
fn send_error(netns: &Netns, client: SocketAddr, server: SocketAddr) {
    let ports = [server.port().to_be_bytes(), client.port().to_be_bytes()].concat();
    let segment = [
        &ports[..],
        &[0, 0, 0, 1, 0, 0, 0, 0, 5 << 4, 16, 0xff, 0xff, 0, 0, 0, 0],
    ]
    .concat();
    let addresses = [octets(server.ip()), octets(client.ip())].concat();
    let (domain, protocol, kind, quoted) = match client.ip() {
        IpAddr::V4(_) => {
            let mut header = [&[0x45, 0, 0, 40, 0, 7, 0, 0, 64, 6, 0, 0][..], &addresses].concat();
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum);
            (Domain::IPV4, Protocol::ICMPV4, [3, 1], header)
        }
        IpAddr::V6(_) => {
            let header = [&[0x60, 0, 0, 0, 0, 20, 6, 64][..], &addresses].concat();
            (Domain::IPV6, Protocol::ICMPV6, [1, 3], header)
        }
    };
    let mut message = [&kind[..], &[0; 6], &quoted, &segment].concat();
    // For IPv6 the kernel computes the checksum.
    if client.is_ipv4() {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum);
    }
    let open = || Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
    let raw = netns.run(open).unwrap();
    raw.bind(&SocketAddr::new(client.ip(), 0).into()).unwrap();
    let to = SocketAddr::new(server.ip(), 0).into();
    assert_eq!(raw.send_to(&message, &to).unwrap(), message.len());
}

/// Waits until an error message of this host has arrived.
fn wait_for_error(frames: &Socket, from: IpAddr) {
    frames.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = Instant::now() + PATIENCE;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = (&*frames).read(&mut buffer).expect("the error comes");
        if let Some((source, protocol @ (1 | 58), rest)) = parse(&buffer[..n])
            && source == from
            && rest.first() == Some(if protocol == 1 { &3 } else { &1 })
        {
            return;
        }
        assert!(Instant::now() < end, "the error comes");
    }
}

/// Any host can send an error about a connection that it makes afterwards. The error passes, but the connection does not.
// matrix: every
#[test]
fn an_error_lets_no_connection_past_the_proxy() {
    each(&["vxlan", "veth"], |scene, engine, name| {
        let servers = Servers::start(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        for (client, server, from, to, expected) in ways(scene) {
            lose(scene, true);
            connect(client, from, to, Duration::from_millis(100)).unwrap_err();
            let frames = frames(server);
            send_error(client, from, to);
            wait_for_error(&frames, from.ip());
            lose(scene, false);
            let mut stream = connect(client, from, to, PATIENCE).unwrap();
            assert_eq!(ask(&mut stream, "x").unwrap(), expected, "{from} to {to}");
        }
        drop(servers);
    });
}

/// An error about a packet from the pod to an excluded port does not mark that connection as excluded: a client that connects from this
/// port is captured.
// matrix: every
#[test]
fn an_error_makes_no_excluded_port_known_to_programs() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        let more = format!(r#", "exclude": {{"outbound_ports": [{PORT}]}}"#);
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], &more));
        for v6 in [false, true] {
            let (from, to) = (SocketAddr::new(inside(OUTSIDE, v6), PORT), web(POD, v6));
            // More than one, in case the first is still in transit.
            for _ in 0..3 {
                send_error(&scene.outside, from, to);
            }
            let mut stream = connect(&scene.outside, from, to, PATIENCE).unwrap();
            assert_eq!(ask(&mut stream, "x").unwrap(), "inbound|pod|x", "{from}");
        }
        drop(servers);
    }
}

/// A listener like the proxy's that resets the first connection when it receives data, and answers later ones.
fn reset_first(netns: &Netns, v6: bool, port: u16) {
    let at = SocketAddr::new(
        if v6 {
            IpAddr::from([0_u16; 8])
        } else {
            [0; 4].into()
        },
        port,
    );
    let listen = || {
        let listener = socket(at, true);
        listener.bind(&at.into()).unwrap();
        listener.listen(8).unwrap();
        listener.set_read_timeout(None).unwrap();
        listener
    };
    let listener = netns.run(listen).unwrap();
    thread::spawn(move || {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept() else {
                return;
            };
            let mut stream = TcpStream::from(stream);
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let _ = stream.read(&mut [0; 8]);
            match number {
                0 => SockRef::from(&stream)
                    .set_linger(Some(Duration::ZERO))
                    .unwrap(),
                _ => _ = stream.write_all(b"second"),
            }
        }
    });
}

/// The port is used again while conntrack still has the entry of the reset connection.
// matrix: every
#[test]
fn a_port_is_used_again_after_a_reset_by_the_proxy() {
    each(&["vxlan", "veth"], |scene, engine, name| {
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        for v6 in [false, true] {
            for port in [15001, 15006] {
                reset_first(&scene.proxy, v6, port);
            }
        }
        for (client, _, from, to, _) in ways(scene) {
            let mut first = connect(client, from, to, PATIENCE).unwrap();
            ask(&mut first, "x").unwrap_err();
            drop(first);
            let again = connect(client, from, to, PATIENCE);
            let mut again = again.unwrap_or_else(|e| panic!("{engine}: {from} to {to}: {e}"));
            assert_eq!(ask(&mut again, "x").unwrap(), "second");
        }
    });
}
