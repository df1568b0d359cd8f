//! Two pods in ambient mode, and the frames on the wire between them.
//!
//! A stand-in for ztunnel in each pod forwards one conversation: from port 15001 to port 15008 of the other pod, and from there to the
//! application, with the address of the client. Between the two stand-ins all bits are inverted instead of encrypted.
// matrix: smoke; variants 6.12-rt

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use socket2::{Domain, Protocol, Socket, Type};
use weir_cni::compile::Engine;
use weir_demo::{
    Lab, PROXY_INBOUND_PORT, PROXY_OUTBOUND_PORT, PROXY_TUNNEL_PORT, Place, ZTUNNEL_MARK,
    original_destination,
};
use weir_netlink::Netns;
use weir_netlink::route::AddressFamily;
use weir_testing::sockets;

use crate::ambient::{redirect, wanted};
use crate::ebpf;
use crate::support::lab;

pub(super) const LIMIT: Duration = Duration::from_secs(30);
const QUESTION: [u8; 24] = *b"a question in plain text";
const ANSWER: [u8; 24] = *b"the answer in plain text";
const APPLICATION_PORT: u16 = 8080;
/// `ETH_P_ALL`
const ALL: u16 = 3;

/// All frames on the links of a namespace.
struct Wire(Socket);

impl Wire {
    fn open(netns: &Netns) -> Self {
        let protocol = Protocol::from(i32::from(ALL.to_be()));
        let open = || Socket::new(Domain::PACKET, Type::RAW, Some(protocol));
        let socket = netns.run(open).expect("entered").expect("a packet socket");
        socket.set_nonblocking(true).expect("set");
        Self(socket)
    }

    /// Whether a frame contained one of these texts. Frames of `lo`, whose addresses are zero, do not count.
    fn has_carried(&self, texts: &[[u8; 24]]) -> bool {
        let (mut frame, mut frames, mut found) = ([0; 2048], 0, false);
        loop {
            match (&self.0).read(&mut frame) {
                Ok(length) if frame[..12] != [0; 12] => {
                    frames += 1;
                    let mut parts = frame[..length].windows(24);
                    found |= parts.any(|part| texts.iter().any(|text| part == text));
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => panic!("the wire: {e}"),
            }
        }
        assert!(frames > 6, "only {frames} frames were seen on the wire");
        found
    }
}

/// A bound socket of an application, or of ztunnel: marked and transparent.
fn socket(netns: &Netns, at: SocketAddr, is_ztunnel: bool) -> Socket {
    let open = || {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_read_timeout(Some(LIMIT))?;
        socket.set_write_timeout(Some(LIMIT))?;
        if at.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if is_ztunnel {
            socket.set_mark(ZTUNNEL_MARK)?;
            match at.is_ipv6() {
                true => socket.set_ip_transparent_v6(true)?,
                false => socket.set_ip_transparent_v4(true)?,
            }
        }
        socket.bind(&at.into())?;
        Ok::<_, io::Error>(socket)
    };
    // Another process may have a copy of a previous listener for a moment.
    let opened = netns.run(|| sockets::bound(open));
    opened.expect("entered").expect("a socket")
}

pub(super) fn listen(netns: &Netns, at: SocketAddr, is_ztunnel: bool) -> Socket {
    let socket = socket(netns, at, is_ztunnel);
    socket.listen(4).expect("listening");
    socket
}

pub(super) fn connect(netns: &Netns, at: SocketAddr, to: SocketAddr, is_ztunnel: bool) -> Socket {
    let socket = socket(netns, at, is_ztunnel);
    let connected = socket.connect_timeout(&to.into(), LIMIT);
    connected.unwrap_or_else(|e| panic!("{at} to {to}: {e}"));
    socket
}

/// The index of the listener that has a connection, and the connection.
pub(super) fn accept(listeners: &[Socket]) -> (usize, Socket) {
    let polled = |l| PollFd::new(AsFd::as_fd(l), PollFlags::POLLIN);
    let mut fds: Vec<_> = listeners.iter().map(polled).collect();
    poll(&mut fds, PollTimeout::try_from(LIMIT).expect("short")).expect("polled");
    let ready = fds.iter().position(|fd| fd.any().unwrap_or(false));
    let ready = ready.expect("a connection at one of the listeners");
    let (connection, _) = listeners[ready].accept().expect("accepted");
    connection.set_read_timeout(Some(LIMIT)).expect("set");
    (ready, connection)
}

fn receive(mut from: &Socket) -> [u8; 24] {
    let mut text = [0; 24];
    from.read_exact(&mut text).expect("received");
    text
}

fn send(mut to: &Socket, text: [u8; 24]) {
    to.write_all(&text).expect("sent");
}

/// How ztunnel forwards its connections.
struct Hop {
    taken: Socket,
    next: Socket,
    /// Whether one of both connections is the tunnel.
    inverts: bool,
}

impl Hop {
    fn pass(&self, from: &Socket, to: &Socket) {
        let text = receive(from);
        send(
            to,
            if self.inverts {
                text.map(|byte| !byte)
            } else {
                text
            },
        );
    }
}

/// An application in the client's pod talks to the one in the other pod. Returns the number of connections through ztunnel, and whether
/// plain text was on the wire.
fn converse(lab: &Lab, family: AddressFamily) -> (usize, bool) {
    let (client, pod) = (lab.netns(Place::Client), lab.netns(Place::Pod));
    let unspecified: IpAddr = match family {
        AddressFamily::V4 => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let any = |port| SocketAddr::new(unspecified, port);
    let from = lab.address(Place::Client, family);
    let to = SocketAddr::new(lab.address(Place::Pod, family), APPLICATION_PORT);
    let listeners = [
        listen(client, any(PROXY_OUTBOUND_PORT), true),
        listen(pod, any(PROXY_TUNNEL_PORT), true),
        listen(pod, any(PROXY_INBOUND_PORT), true),
        listen(pod, any(APPLICATION_PORT), false),
    ];
    let wire = Wire::open(pod);
    let asks = connect(client, any(0), to, false);
    let mut hops = Vec::new();
    let answers = loop {
        let (listener, taken) = accept(&listeners);
        let local = taken.local_addr().expect("an address").as_socket();
        let original = || original_destination(&taken, local.expect("an IP address"));
        let to_application = || connect(pod, (from, 0).into(), to, true);
        let (next, inverts) = match listener {
            0 => {
                assert_eq!(original(), to);
                let tunnel = (original().ip(), PROXY_TUNNEL_PORT).into();
                (connect(client, any(0), tunnel, true), true)
            }
            1 => (to_application(), true),
            2 => {
                assert_eq!(original(), to);
                (to_application(), false)
            }
            _ => break taken,
        };
        hops.push(Hop {
            taken,
            next,
            inverts,
        });
    };
    let peer = answers.peer_addr().expect("a peer").as_socket();
    assert_eq!(peer.expect("an IP address").ip(), from);
    send(&asks, QUESTION);
    for hop in &hops {
        hop.pass(&hop.taken, &hop.next);
    }
    assert_eq!(receive(&answers), QUESTION);
    send(&answers, ANSWER);
    for hop in hops.iter().rev() {
        hop.pass(&hop.next, &hop.taken);
    }
    assert_eq!(receive(&asks), ANSWER);
    (hops.len(), wire.has_carried(&[QUESTION, ANSWER]))
}

/// Runs conversations between pods, of which `enrolled` are in ambient mode.
fn each(enrolled: &[Place], check: impl Fn((usize, bool), &str)) {
    for engine in [Engine::Nft, Engine::Xtables] {
        let Some(lab) = lab() else { return };
        for place in enrolled {
            redirect(lab.netns(*place), engine, false, &json!({}));
        }
        for &family in lab.families() {
            check(converse(&lab, family), &format!("{engine:?}, {family:?}"));
        }
    }
    let Some(mounted) = ebpf::mount() else { return };
    let Some(lab) = lab() else { return };
    for place in enrolled {
        ebpf::redirect(&mounted, lab.netns(*place), &wanted(false, &json!({})));
    }
    for &family in lab.families() {
        check(converse(&lab, family), &format!("eBPF, {family:?}"));
    }
}

#[test]
fn between_pods_of_the_mesh_no_plain_text_is_on_the_wire() {
    each(&[Place::Client, Place::Pod], |(hops, plain), case| {
        assert!(!plain, "{case}: plain text is on the wire");
        assert_eq!(hops, 2, "{case}");
    });
}

/// This also proves that the test above detects plain text.
#[test]
fn without_the_rules_of_one_pod_or_of_both_plain_text_is_on_the_wire() {
    each(&[Place::Pod], |seen, case| {
        assert_eq!(seen, (1, true), "{case}")
    });
    each(&[], |seen, case| assert_eq!(seen, (0, true), "{case}"));
}
