//! Unusual packets: with options or extension headers, and in fragments.

use crate::ebpf::{answer, applied, builds, web};
use crate::leaks::{frames, parse};
use crate::scene::{OUTSIDE, PATIENCE, POD, PROXY, Scene, Servers, inside};
use crate::{carrier, each, up};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use weir_netlink::Netns;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Header types of IPv6 (RFC 8200).
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;

/// The peculiarity of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    /// IPv4 options, or IPv6 extension headers before that of TCP.
    Options,
    /// Two fragments; the first contains the complete TCP header.
    Fragments,
    /// Two fragments, of which the second is sent first.
    Turned,
}

const FORMS: [Form; 4] = [Form::Plain, Form::Options, Form::Fragments, Form::Turned];

/// The sum of RFC 1071 of the 16-bit words of a packet.
fn sum(words: &[u8]) -> u32 {
    let pair = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
    words.chunks(2).map(pair).sum()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// A SYN that already carries data, or a datagram, with its checksum.
fn transport(protocol: u8, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let data = [b'd'; 100];
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    let (mut bytes, at) = match protocol {
        TCP => {
            let rest = [0, 0, 0, 1, 0, 0, 0, 0, 5 << 4, 2, 0xff, 0xff, 0, 0, 0, 0];
            ([&ports[..], &rest].concat(), 16)
        }
        _ => ([&ports[..], &[0, 108, 0, 0]].concat(), 6),
    };
    bytes.extend(data);
    let pseudo = [octets(from.ip()), octets(to.ip())].concat();
    let mut total = sum(&pseudo) + u32::from(protocol) + bytes.len() as u32 + sum(&bytes);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    bytes[at..at + 2].copy_from_slice(&(!(total as u16)).to_be_bytes());
    bytes
}

/// The IPv4 or IPv6 packet, or its two fragments.
fn packets(form: Form, protocol: u8, from: SocketAddr, to: SocketAddr) -> Vec<Vec<u8>> {
    let bytes = transport(protocol, from, to);
    let whole = [(0_u16, &bytes[..], false)];
    let parts = [(0, &bytes[..64], true), (64, &bytes[64..], false)];
    let turned = [parts[1], parts[0]];
    let parts = match form {
        Form::Plain | Form::Options => &whole[..],
        Form::Fragments => &parts,
        Form::Turned => &turned,
    };
    let addresses = [octets(from.ip()), octets(to.ip())].concat();
    let id = from.port().to_be_bytes();
    let packet = |(offset, part, more): &(u16, &[u8], bool)| {
        if from.is_ipv4() {
            // Seven NOPs, and the end of options.
            let options: &[u8] = match form {
                Form::Options => &[1, 1, 1, 1, 1, 1, 1, 0],
                _ => &[],
            };
            let length = (20 + options.len() + part.len()) as u16;
            let [high, low] = ((offset / 8) | (u16::from(*more) << 13)).to_be_bytes();
            let words = 4 << 4 | (5 + options.len() / 4) as u8;
            let [l, m] = length.to_be_bytes();
            // The kernel fills in the checksum.
            let header = [words, 0, l, m, id[0], id[1], high, low, 64, protocol, 0, 0];
            return [&header[..], &addresses, options, part].concat();
        }
        // Headers with six bytes of padding each, and an experimental routing header whose segments are used up.
        let padded = |next| vec![next, 0, 1, 4, 0, 0, 0, 0];
        let (first, headers) = match form {
            Form::Plain => (protocol, Vec::new()),
            Form::Options => {
                let routing = vec![DESTINATION, 0, 253, 0, 0, 0, 0, 0];
                let all = [padded(ROUTING), routing, padded(protocol)];
                (HOP_BY_HOP, all.concat())
            }
            Form::Fragments | Form::Turned => {
                let [high, low] = (offset | u16::from(*more)).to_be_bytes();
                (FRAGMENT, vec![protocol, 0, high, low, 0, 0, id[0], id[1]])
            }
        };
        let [high, low] = ((headers.len() + part.len()) as u16).to_be_bytes();
        let header = [0x60, 0, 0, 0, high, low, first, 64];
        [&header[..], &addresses, &headers, part].concat()
    };
    parts.iter().map(packet).collect()
}

fn send(netns: &Netns, form: Form, protocol: u8, from: SocketAddr, to: SocketAddr) {
    // With IPPROTO_RAW the sender provides the header, see `raw(7)`.
    let raw = Some(Protocol::from(255));
    let open = || Socket::new(Domain::for_address(to), Type::RAW, raw).unwrap();
    let socket = netns.run(open).unwrap();
    for packet in packets(form, protocol, from, to) {
        let to = SocketAddr::new(to.ip(), 0).into();
        assert_eq!(socket.send_to(&packet, &to).unwrap(), packet.len());
    }
}

/// The protocol after all extension headers, and the bytes after them.
fn upper(mut protocol: u8, mut rest: &[u8]) -> Option<(u8, &[u8])> {
    while [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION].contains(&protocol) {
        let length = match protocol {
            FRAGMENT => 8,
            _ => 8 + usize::from(*rest.get(1)?) * 8,
        };
        (protocol, rest) = (*rest.first()?, rest.get(length..)?);
    }
    Some((protocol, rest))
}

/// The number of TCP frames with this source, and the number of answers to a SYN among them.
fn seen(frames: &Socket, source: IpAddr, port: u16) -> [usize; 2] {
    frames.set_nonblocking(true).unwrap();
    let (mut counts, mut buffer) = ([0; 2], vec![0; 1 << 17]);
    while let Ok(n) = (&*frames).read(&mut buffer) {
        let Some((of, protocol, rest)) = parse(&buffer[..n]) else {
            continue;
        };
        match upper(protocol, rest).filter(|(protocol, _)| of == source && *protocol == TCP) {
            None => continue,
            Some((_, segment)) => {
                counts[0] += 1;
                let is_to = segment.get(2..4) == Some(&port.to_be_bytes()[..]);
                counts[1] += usize::from(is_to && segment.get(13) == Some(&0x12));
            }
        }
    }
    counts
}

/// The fate of a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Becomes {
    /// The peer receives it.
    Passed,
    /// The peer does not receive it, but it is answered.
    Captured,
    Dropped,
}

fn becomes(
    scene: &Scene,
    form: Form,
    v6: bool,
    is_outbound: bool,
    port: u16,
    expected: Becomes,
) -> Becomes {
    let places = [(&scene.pod, POD), (&scene.outside, OUTSIDE)];
    let [(from, own), (to, peer)] = match is_outbound {
        true => places,
        false => [places[1], places[0]],
    };
    let (there, here) = (frames(to), frames(from));
    let source = SocketAddr::new(inside(own, v6), port);
    send(from, form, TCP, source, web(peer, v6));
    // Datagrams pass. After two of them have been answered, an earlier packet has had its time.
    for _ in 0..2 {
        assert!(udp(from, source.ip(), to, inside(peer, v6), Form::Plain));
    }
    let (mut passed, mut answers) = (0, 0);
    let end = Instant::now() + PATIENCE;
    loop {
        passed += seen(&there, source.ip(), port)[0];
        answers += seen(&here, inside(peer, v6), port)[1];
        let became = match (passed, answers) {
            (0, 0) => Becomes::Dropped,
            (0, _) => Becomes::Captured,
            (_, _) => Becomes::Passed,
        };
        // Packets that waited for different processors arrive in any order.
        if became == expected || Instant::now() > end {
            return became;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn udp(from: &Netns, own: IpAddr, to: &Netns, peer: IpAddr, form: Form) -> bool {
    let bind = |netns: &Netns, address: IpAddr| {
        let bind = || UdpSocket::bind((address, 0)).unwrap();
        let socket = netns.run(bind).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let (client, server) = (bind(from, own), bind(to, peer));
    let [source, destination] = [&client, &server].map(|socket| socket.local_addr().unwrap());
    send(from, form, UDP, source, destination);
    let mut buffer = [0; 256];
    let received = server.recv_from(&mut buffer);
    if received.is_err() {
        return false;
    }
    assert_eq!(received.unwrap(), (100, source));
    server.send_to(b"answer", source).unwrap();
    client.recv(&mut buffer).is_ok()
}

/// Checks every form, family and direction; no port is used twice.
fn check(scene: &Scene, ports: u16, expected: impl Fn(Form) -> Becomes) {
    let mut wrong = Vec::new();
    let mut port = ports;
    for form in FORMS {
        for v6 in [false, true] {
            for is_outbound in [true, false] {
                port += 1;
                let wanted = expected(form);
                let became = becomes(scene, form, v6, is_outbound, port, wanted);
                if became != wanted {
                    wrong.push((form, v6, is_outbound, became));
                }
            }
            let (pod, outside) = (inside(POD, v6), inside(OUTSIDE, v6));
            let sent = udp(&scene.pod, pod, &scene.outside, outside, form);
            let got = udp(&scene.outside, outside, &scene.pod, pod, form);
            assert!(sent && got, "{form:?}, IPv6: {v6}, {sent} {got}");
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn rules_capture_tcp_of_every_form_and_no_datagrams() {
    each(&["vxlan", "veth"], |scene, engine, name| {
        let _servers = Servers::start(scene);
        check(scene, 2000, |_| Becomes::Passed);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        check(scene, 3000, |_| Becomes::Captured);
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
    });
}

/// TCP fragments are dropped.
// matrix: every
#[test]
fn programs_capture_tcp_of_every_form_but_fragments_and_no_datagrams() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        check(&scene, 2000, |_| Becomes::Passed);
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        check(&scene, 3000, |form| match form {
            Form::Plain | Form::Options => Becomes::Captured,
            Form::Fragments | Form::Turned => Becomes::Dropped,
        });
        applied(&scene, &mounted, &scene.config(&[], ""));
        check(&scene, 4000, |_| Becomes::Dropped);
    }
}
