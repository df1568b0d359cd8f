//! Packets of a pod that leave the node: frames that arrive outside while captured connections continue to write.

use crate::ebpf::{applied, bpffs, builds, web};
use crate::scene::{
    LONG, Mortal, OUTSIDE, POD, PROXY, Scene, Servers, ask, connect, connects, inside, set,
};
use crate::{carrier, each, meter, up};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Hook, L4Proto, Rule, Table, TableFamily, Verdict,
};
use weir_netlink::Netns;
use weir_netlink::route::Routing;
use weir_node_ambient::apply;
use weir_node_ambient::ebpf::remove;

/// A text that only the pod writes.
const WORDS: &str = "words of the pod";
/// A port on which the pod serves, besides its application.
const PORT: u16 = 8081;

/// From `linux/if_ether.h`: frames of every protocol.
const ETH_P_ALL: u16 = 3;

/// The frames from the pod since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Segments that open a connection, or accept one.
    pub(crate) syns: usize,
    /// Frames with the pod's text.
    pub(crate) words: usize,
}

/// Receives every frame on the link of the server outside.
pub(crate) struct Tap {
    frames: Socket,
    /// Datagrams of the pod, which are never captured: when they have arrived, so have all earlier packets.
    fences: [UdpSocket; 2],
    number: u32,
}

/// The source of a frame, its protocol, and the bytes after the IP header.
pub(crate) fn parse(frame: &[u8]) -> Option<(IpAddr, u8, &[u8])> {
    let (ether, packet) = (frame.get(12..14)?, frame.get(14..)?);
    match ether {
        [0x08, 0x00] => {
            let source: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            let length = usize::from(packet[0] & 15) * 4;
            Some((source.into(), packet[9], packet.get(length..)?))
        }
        [0x86, 0xdd] => {
            let source: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            Some((source.into(), packet[6], packet.get(40..)?))
        }
        _ => None,
    }
}

/// Receives every frame on the namespace's links from now on.
pub(crate) fn frames(netns: &Netns) -> Socket {
    let protocol = Protocol::from(i32::from(ETH_P_ALL.to_be()));
    let open = || Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap();
    let frames = netns.run(open).unwrap();
    frames.set_recv_buffer_size(4 << 20).unwrap();
    frames
}

fn contains(bytes: &[u8], text: &str) -> bool {
    let mut windows = bytes.windows(text.len());
    windows.any(|window| window == text.as_bytes())
}

impl Tap {
    pub(crate) fn of(scene: &Scene) -> Self {
        let frames = frames(&scene.outside);
        frames.set_read_timeout(Some(LONG)).unwrap();
        let bind = |v6| {
            let bind = || UdpSocket::bind((inside(POD, v6), 0)).unwrap();
            scene.pod.run(bind).unwrap()
        };
        Self {
            frames,
            fences: [false, true].map(bind),
            number: 0,
        }
    }

    pub(crate) fn forget(&mut self) {
        let _ = self.left();
    }

    /// The frames so far; each is reported once.
    pub(crate) fn left(&mut self) -> Left {
        let (mut left, mut buffer) = (Left::default(), vec![0; 1 << 17]);
        for v6 in [false, true] {
            self.number += 1;
            let fence = format!("fence {};", self.number);
            let to = SocketAddr::new(inside(OUTSIDE, v6), 9);
            let sent = self.fences[usize::from(v6)].send_to(fence.as_bytes(), to);
            sent.unwrap();
            loop {
                let n = (&self.frames).read(&mut buffer).unwrap();
                let Some((source, protocol, rest)) = parse(&buffer[..n]) else {
                    continue;
                };
                if source == inside(OUTSIDE, source.is_ipv6()) {
                    continue;
                }
                if contains(rest, WORDS) {
                    // Printed if the test fails.
                    println!("from {source}, protocol {protocol}: {rest:?}");
                    left.words += 1;
                }
                let is_syn = protocol == 6 && rest.get(13).is_some_and(|flags| flags & 2 != 0);
                left.syns += usize::from(is_syn && source == inside(POD, source.is_ipv6()));
                if contains(rest, &fence) {
                    break;
                }
            }
        }
        left
    }
}

/// Connections of the pod and to it that the proxy has accepted, in both families.
pub(crate) struct Flows {
    /// The pod's ends.
    pod: Vec<TcpStream>,
    _clients: Vec<TcpStream>,
}

impl Flows {
    /// Opens the connections; each has carried the pod's text once.
    pub(crate) fn open(scene: &Scene) -> Self {
        let (mut pod, mut clients) = (Vec::new(), Vec::new());
        for v6 in [false, true] {
            let mut outbound = connect(&scene.pod, web(OUTSIDE, v6)).unwrap();
            let said = ask(&mut outbound, WORDS).unwrap();
            assert_eq!(said, format!("outbound|outside|{WORDS}"));
            let at = SocketAddr::new(inside(POD, v6), PORT);
            let listener = scene.pod.run(|| TcpListener::bind(at)).unwrap().unwrap();
            let mut client = connect(&scene.outside, at).unwrap();
            let (mut inbound, _) = listener.accept().unwrap();
            client.write_all(b"?").unwrap();
            let mut buffer = [0; 64];
            assert_eq!(inbound.read(&mut buffer).unwrap(), 1);
            inbound.write_all(WORDS.as_bytes()).unwrap();
            let n = client.read(&mut buffer).unwrap();
            assert_eq!(&buffer[..n], format!("inbound|{WORDS}").as_bytes());
            pod.extend([outbound, inbound]);
            clients.push(client);
        }
        for stream in &pod {
            stream.set_nodelay(true).unwrap();
            let short = Some(Duration::from_millis(30));
            stream.set_read_timeout(short).unwrap();
        }
        Self {
            pod,
            _clients: clients,
        }
    }

    /// The pod keeps writing for longer than two retransmissions take, without an answer.
    pub(crate) fn write(&mut self) {
        let begun = Instant::now();
        let mut open = self.pod.len();
        while open > 0 && begun.elapsed() < Duration::from_millis(1200) {
            open = 0;
            for stream in &mut self.pod {
                let is_written = stream.write(WORDS.as_bytes()).is_ok();
                open += usize::from(is_written);
                let mut buffer = [0; 64];
                let n = stream.read(&mut buffer).unwrap_or(0);
                assert_eq!(&buffer[..n], b"");
            }
        }
    }
}

/// The pod no longer receives packets, which does not end its connections: it retransmits its text. Returns false without nf_tables.
fn deafen(scene: &Scene) -> bool {
    let tcp = Rule::builder().iifname(CmpOp::Eq, "eth0");
    let chain = Chain {
        rules: vec![tcp.l4proto(L4Proto::Tcp).verdict(Verdict::Drop)],
        ..Chain::base("input", ChainType::Filter, Hook::Input, 0)
    };
    let table = Table {
        chains: vec![chain],
        ..Table::new(TableFamily::Inet, "test-deaf")
    };
    match meter::add_in(&scene.pod, table) {
        Err(e) if e.is_unsupported() => {
            println!("the pod hears that its connections end: {e}");
            false
        }
        added => {
            added.unwrap();
            true
        }
    }
}

/// Lets the proxy's namespace forward packets that no process accepts.
fn forward(scene: &Scene) {
    for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        set(&scene.proxy, key, "1");
    }
}

/// The sockets of a killed proxy are closed; its namespace stays, with everything in it.
fn check_killed(scene: &Scene, servers: &Servers, proxy: Mortal, let_pass: impl Fn()) {
    let (mut tap, mut flows) = (Tap::of(scene), Flows::open(scene));
    assert_ne!(tap.left().words, 0, "what the proxy passes on is seen");
    let is_deaf = deafen(scene);
    proxy.kill();
    tap.forget();
    servers.drain();
    flows.write();
    for v6 in [false, true] {
        assert!(!connects(&scene.pod, web(OUTSIDE, v6)));
        assert!(!connects(&scene.outside, web(POD, v6)));
    }
    assert_eq!((tap.left(), servers.drain()), (Left::default(), vec![]));
    if is_deaf {
        let open = flows.pod.iter().filter(|s| s.peer_addr().is_ok());
        assert_eq!(open.count(), 4, "all went on writing");
    }
    // This proves that the test detects such packets.
    let_pass();
    let (mut seen, begun) = (Left::default(), Instant::now());
    let lacks = |seen: &Left| seen.syns == 0 || (seen.words == 0 && is_deaf);
    // By now the kernel retransmits after seconds.
    while lacks(&seen) && begun.elapsed() < LONG {
        flows.write();
        let _ = connects(&scene.pod, web(OUTSIDE, false));
        let left = tap.left();
        seen.syns += left.syns;
        seen.words += left.words;
    }
    assert!(!lacks(&seen), "{seen:?}");
}

#[test]
fn check_5_rules_let_nothing_past_a_killed_proxy() {
    each(&["vxlan", "veth"], |scene, engine, name| {
        let (servers, proxy) = Servers::start_mortal(scene);
        forward(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        check_killed(scene, &servers, proxy, || {
            // Without the policy rules for the marks, the namespace forwards the packets instead of delivering them.
            let routing = Routing::open_in(&scene.proxy).unwrap();
            let rules = routing.rules().unwrap().into_iter();
            for rule in rules.filter(|rule| rule.fwmark.is_some()) {
                routing.del_rule(&rule).unwrap();
            }
        });
    });
}

/// The pod keeps writing while the proxy, whose link is deleted, is removed from the configuration.
///
/// The node's answers to these packets do not make the connection one that passes.
#[test]
fn check_5_nothing_leaves_while_the_configuration_loses_the_proxy() {
    each(&["vxlan", "veth"], |scene, engine, name| {
        let _servers = Servers::start(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        let (mut tap, mut flows) = (Tap::of(scene), Flows::open(scene));
        let routing = Routing::open_in(&scene.node).unwrap();
        let device = routing.link("v2").unwrap().index;
        routing.delete_link(device).unwrap();
        tap.forget();
        flows.write();
        let none = scene.config(&[], "");
        std::thread::scope(|threads| {
            threads.spawn(|| flows.write());
            apply(&none, &scene.node, Some(engine), false).unwrap();
        });
        flows.write();
        assert_eq!(tap.left(), Left::default());
    });
}

// matrix: every
#[test]
fn check_6_programs_let_nothing_past_a_killed_proxy() {
    for (scene, mounted) in builds() {
        let (servers, proxy) = Servers::start_mortal(&scene);
        forward(&scene);
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        check_killed(&scene, &servers, proxy, || {
            remove(&scene.node, &bpffs(&mounted), None).unwrap();
        });
    }
}
