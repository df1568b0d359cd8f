//! Further acceptance checks: packets are counted on the node, and kube-proxy's rules are present.

use crate::scene::{
    LONG, OUTSIDE, PATIENCE, POD, PROXY, SECOND, Scene, Servers, address, ask, connect, connects,
    inside, set, socket,
};
use crate::{carrier, each, lacking, meter, up};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use weir_cni::compile::Engine;
use weir_netfilter::conntrack::{Conntrack, Transport, Tuple};
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Hook, L4Proto, Nat, NatKind, Rule, Statement, Table, TableFamily,
    priority,
};
use weir_netfilter::xtables::{Script, XtEngine, XtFamily};
use weir_netlink::Result;
use weir_netlink::route::Routing;
use weir_node_ambient::{Carrier, Config, apply, compare, remove};
use weir_testing::Ends;

/// Runs a check for each engine, with one kind of carrier.
fn engines(check: impl Fn(&Scene, Engine)) {
    for engine in [Engine::Nft, Engine::Xtables] {
        let Some(scene) = Scene::build() else { return };
        println!("engine {engine}");
        check(&scene, engine);
    }
}

/// The connection mark in the node's conntrack entry. Returns `None` if this kernel does not show it.
fn mark(
    scene: &Scene,
    transport: Transport,
    source: SocketAddr,
    destination: SocketAddr,
) -> Option<u32> {
    let tuple = Tuple {
        transport,
        source,
        destination,
    };
    let find = || Conntrack::open()?.find(&tuple, 0);
    let begun = std::time::Instant::now();
    loop {
        match scene.node.run(find).unwrap() {
            Ok(Some(entry)) => return Some(entry.mark),
            // On a busy machine the packets reach the node later.
            Ok(None) => assert!(begun.elapsed() < LONG, "{tuple} is not tracked"),
            Err(e) => {
                println!("marks are not compared: {e}");
                return None;
            }
        }
    }
}

fn bound(netns: &weir_netlink::Netns, at: SocketAddr) -> UdpSocket {
    let socket = netns.run(|| UdpSocket::bind(at)).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

// matrix: variants no-geneve
#[test]
fn check_1_one_packet_of_a_connection_crosses_the_carrier() {
    each(&["geneve", "vxlan", "veth"], |scene, engine, name| {
        let _servers = Servers::start(scene);
        if !meter::start(scene) || !up(scene, engine, &carrier(name)) {
            return;
        }
        for v6 in [false, true] {
            let to = SocketAddr::new(inside(OUTSIDE, v6), 8080);
            let mut before = meter::read(scene);
            let mut stream = connect(&scene.pod, to).unwrap();
            for _ in 0..3 {
                assert_eq!(ask(&mut stream, "x").unwrap(), "outbound|outside|x");
            }
            assert_eq!(meter::read(scene).since(before), [0, 1], "{to}");
            let captured = mark(scene, Transport::Tcp, stream.local_addr().unwrap(), to);
            assert!(captured.is_none_or(|m| m == 0x210), "{captured:?}");

            let pod = SocketAddr::new(inside(POD, v6), 8080);
            before = meter::read(scene);
            let mut stream = connect(&scene.outside, pod).unwrap();
            for _ in 0..3 {
                assert_eq!(ask(&mut stream, "x").unwrap(), "inbound|pod|x");
            }
            assert_eq!(meter::read(scene).since(before), [1, 0], "{pod}");

            before = meter::read(scene);
            let own = connect(&scene.proxy, to).unwrap();
            let skipped = mark(scene, Transport::Tcp, own.local_addr().unwrap(), to);
            assert!(skipped.is_none_or(|m| m == 0x220), "{skipped:?}");
            let datagram = bound(&scene.pod, (inside(POD, v6), 0).into());
            datagram.send_to(b"x", to).unwrap();
            let skipped = mark(scene, Transport::Udp, datagram.local_addr().unwrap(), to);
            assert!(skipped.is_none_or(|m| m == 0x220), "{skipped:?}");
            assert_eq!(meter::read(scene).since(before), [0, 0]);
        }
        assert_eq!(meter::read(scene).uncaptured, 0);
    });
}

/// Also for a pod that listens on the port of the tunnels.
#[test]
fn datagrams_to_every_port_of_a_pod_arrive() {
    each(&["geneve", "vxlan"], |scene, engine, name| {
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        let config = scene.config(&[(PROXY, 1)], &carrier(name));
        let change = compare(&config, &scene.node, Some(engine)).unwrap();
        let (Carrier::Geneve(port) | Carrier::Vxlan(port)) = change.node.carrier else {
            panic!("{:?}", change.node.carrier)
        };
        for v6 in [false, true] {
            for port in [port, port + 1] {
                let to = SocketAddr::new(inside(POD, v6), port);
                let (server, client) = (bound(&scene.pod, to), (inside(OUTSIDE, v6), 0));
                let client = bound(&scene.outside, client.into());
                client.send_to(b"x", to).unwrap();
                let (_, from) = server.recv_from(&mut [0; 8]).unwrap();
                assert_eq!(from, client.local_addr().unwrap(), "{to}");
            }
        }
    });
}

/// This includes answers of the node without a socket: a reset for a port without a listener.
#[test]
fn check_4_no_packet_of_the_node_crosses_the_carrier() {
    engines(|scene, engine| {
        let _servers = Servers::start(scene);
        if !meter::start(scene) || !up(scene, engine, "") {
            return;
        }
        let before = meter::read(scene);
        for v6 in [false, true] {
            let pod = SocketAddr::new(inside(POD, v6), 8080);
            let mut probe = connect(&scene.node, pod).unwrap();
            assert_eq!(ask(&mut probe, "p").unwrap(), "pod|p");
            drop(probe);
            let closed = SocketAddr::new(address(POD, v6, 1), 9);
            let refused = connect(&scene.pod, closed).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        }
        assert_eq!(meter::read(scene).since(before), [0, 0]);
    });
}

/// Connections are attempted all the time, while the redirection is applied again, another proxy takes over, and no proxy is left.
#[test]
fn check_6_no_packet_leaves_uncaptured_while_the_proxy_is_replaced() {
    engines(|scene, engine| {
        let servers = Servers::start(scene);
        let names = ["second outbound", "second inbound", "second hbone"];
        servers.proxy(&scene.second, names);
        if !meter::start(scene) || !up(scene, engine, "") {
            return;
        }
        let to = SocketAddr::new(inside(OUTSIDE, false), 8080);
        let mut kept = connect(&scene.pod, to).unwrap();
        let (stop, made) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|threads| {
            let _ends = Ends(&stop);
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let socket = || {
                        let (domain, kind) = (socket2::Domain::IPV4, socket2::Type::STREAM);
                        let socket = socket2::Socket::new(domain, kind, None).unwrap();
                        let limit = std::time::Duration::from_millis(20);
                        drop(socket.connect_timeout(&to.into(), limit));
                    };
                    scene.pod.run(socket).unwrap();
                    made.fetch_add(1, Ordering::Release);
                }
            });
            let first: &[(u8, u64)] = &[(PROXY, 1)];
            let both: &[(u8, u64)] = &[(PROXY, 1), (SECOND, 2)];
            for proxies in [first, both, &[], both, &both[1..], first] {
                let config = scene.config(proxies, "");
                if proxies == first {
                    // As after a restart of the agent.
                    apply(&config, &scene.node, Some(engine), false).unwrap();
                    continue;
                }
                let before = made.load(Ordering::Acquire);
                apply(&config, &scene.node, Some(engine), false).unwrap();
                let begun = std::time::Instant::now();
                while made.load(Ordering::Acquire) < before + 3 {
                    assert!(begun.elapsed() < LONG, "no connections are made");
                    std::thread::yield_now();
                }
            }
        });
        assert_eq!(meter::read(scene).uncaptured, 0);
        assert_eq!(
            ask(&mut connect(&scene.pod, to).unwrap(), "x").unwrap(),
            "outbound|outside|x"
        );
        // This proves that the meter detects uncaptured packets.
        drop(remove(&scene.node, None).unwrap());
        let _ = ask(&mut kept, "x");
        assert_eq!(
            ask(&mut connect(&scene.pod, to).unwrap(), "x").unwrap(),
            "outside|x"
        );
        assert_ne!(meter::read(scene).uncaptured, 0);
    });
}

/// Elsewhere in these tests duplicate address detection is off.
#[test]
fn connections_over_ipv6_are_made_at_once() {
    each(&["vxlan", "veth"], |scene, engine, name| {
        for netns in [&scene.node, &scene.proxy] {
            set(netns, "ipv6/conf/default/accept_dad", "1");
        }
        let _servers = Servers::start(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        for (from, to) in [(&scene.pod, OUTSIDE), (&scene.outside, POD)] {
            let to = SocketAddr::new(inside(to, true), 8080);
            assert!(connects(from, to), "{to}");
        }
    });
}

/// One proxy takes over from another one that keeps running: open connections stay open, and every new connection succeeds.
#[test]
fn proxies_follow_each_other_without_loss() {
    each(&["vxlan", "veth"], |scene, engine, name| {
        hand_over(scene, engine, &carrier(name));
    });
}

/// Both proxies connect with the address of the pod: the second may use a port at once that a connection of the first still has.
#[test]
fn a_port_of_the_older_proxy_is_used_by_the_newer() {
    engines(|scene, engine| {
        let servers = Servers::start(scene);
        servers.proxy(&scene.second, ["outbound 2", "inbound 2", "hbone 2"]);
        if !up(scene, engine, "") {
            return;
        }
        let config = scene.config(&[(PROXY, 1), (SECOND, 2)], "");
        apply(&config, &scene.node, Some(engine), false).unwrap();
        use_a_port_twice(scene);
    });
}

/// The older proxy connects with the address of the pod, then the newer one from the same port.
pub(crate) fn use_a_port_twice(scene: &Scene) {
    for v6 in [false, true] {
        let to = SocketAddr::new(inside(OUTSIDE, v6), 8080);
        let with_port = |proxy: &weir_netlink::Netns| {
            let connect = || {
                let socket = socket(to, true);
                let from = SocketAddr::new(inside(POD, v6), 40_001);
                socket.bind(&from.into())?;
                socket.connect_timeout(&to.into(), PATIENCE)?;
                Ok::<_, std::io::Error>(std::net::TcpStream::from(socket))
            };
            proxy.run(connect).unwrap()
        };
        let mut older = with_port(&scene.proxy).unwrap();
        assert_eq!(ask(&mut older, "x").unwrap(), "outside|x");
        // The server still has the older connection: it answers the SYN within it and then drops it. The next SYN opens the new connection.
        let mut newer = with_port(&scene.second).unwrap();
        assert_eq!(ask(&mut newer, "y").unwrap(), "outside|y");
    }
}

fn hand_over(scene: &Scene, engine: Engine, more: &str) {
    let servers = Servers::start(scene);
    let names = ["second outbound", "second inbound", "second hbone"];
    servers.proxy(&scene.second, names);
    if !up(scene, engine, more) {
        return;
    }
    let to = |v6| SocketAddr::new(inside(OUTSIDE, v6), 8080);
    let pod = |v6| SocketAddr::new(inside(POD, v6), 8080);
    let open = || {
        let ways = [false, true].map(|v6| [(&scene.pod, to(v6)), (&scene.outside, pod(v6))]);
        ways.concat()
            .into_iter()
            .map(|(from, to)| connect(from, to).unwrap())
            .collect::<Vec<_>>()
    };
    let answers = |streams: &mut Vec<std::net::TcpStream>| {
        let answer = |stream| ask(stream, "x").unwrap_or_default();
        streams.iter_mut().map(answer).collect::<Vec<_>>()
    };
    let by = |who: &str| {
        ["outbound|outside|x", "inbound|pod|x"]
            .repeat(2)
            .iter()
            .map(|a| format!("{who}{a}"))
            .collect::<Vec<_>>()
    };
    let switch = |proxies: &[(u8, u64)]| {
        let config = scene.config(proxies, more);
        let stop = AtomicBool::new(false);
        let wrong = std::thread::scope(|threads| {
            let ends = Ends(&stop);
            let made = threads.spawn(|| {
                let mut wrong = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    for (from, to) in [(&scene.pod, to(false)), (&scene.outside, pod(true))] {
                        let asked = connect(from, to).and_then(|mut stream| ask(&mut stream, "y"));
                        wrong.extend(asked.err());
                    }
                }
                wrong
            });
            apply(&config, &scene.node, Some(engine), false).unwrap();
            drop(ends);
            made.join().unwrap()
        });
        assert!(wrong.is_empty(), "{proxies:?}: {wrong:?}");
        let left = compare(&config, &scene.node, Some(engine)).unwrap();
        assert!(left.is_empty(), "{:?} {:?}", left.host, left.proxy);
    };
    let mut first = open();
    assert_eq!(answers(&mut first), by(""));
    switch(&[(PROXY, 1), (SECOND, 2)]);
    let mut second = open();
    assert_eq!(
        (answers(&mut first), answers(&mut second)),
        (by(""), by("second "))
    );
    // The first proxy becomes active again, as after another replacement.
    switch(&[(PROXY, 3), (SECOND, 2)]);
    let mut third = open();
    assert_eq!((answers(&mut first), answers(&mut third)), (by(""), by("")));
    assert_eq!(answers(&mut second), by("second "));
    switch(&[(PROXY, 3)]);
    assert_eq!(answers(&mut third), by(""));
    // The second proxy is removed with its connections, none of which bypasses the first.
    servers.drain();
    let ended = answers(&mut second);
    assert_eq!(ended, vec![String::new(); 4]);
    assert_eq!(servers.drain(), []);
    drop(
        remove(
            &scene.node,
            Some(&scene.config(&[(PROXY, 3), (SECOND, 2)], more)),
        )
        .unwrap(),
    );
    let links = Routing::open_in(&scene.node).unwrap().links().unwrap();
    assert!(
        !links.iter().any(|l| l.name.starts_with("istio")),
        "{links:?}"
    );
}

const SERVICE: [u8; 4] = [10, 96, 0, 10];
const WITHOUT_ENDPOINTS: [u8; 4] = [10, 96, 0, 11];

/// A service of kube-proxy in nf_tables mode, with one endpoint.
fn kube_proxy_nft(scene: &Scene) -> Result<()> {
    let to = inside(OUTSIDE, false);
    let service = Rule::builder()
        .daddr(CmpOp::Eq, IpAddr::from(SERVICE).into())
        .dport(L4Proto::Tcp, CmpOp::Eq, 80..=80)
        .push(Statement::Nat(Nat {
            kind: NatKind::Dnat,
            family: TableFamily::Ip,
            addrs: Some((to, to)),
            ports: Some(8080..=8080),
            flags: 0,
        }));
    let chain = Chain {
        rules: vec![service.build()],
        ..Chain::base(
            "nat-prerouting",
            ChainType::Nat,
            Hook::Prerouting,
            priority::DSTNAT,
        )
    };
    let table = Table {
        chains: vec![chain],
        ..Table::new(TableFamily::Ip, "kube-proxy")
    };
    meter::add(scene, table)
}

/// kube-proxy in iptables mode: a service with an endpoint, and one without.
fn kube_proxy_legacy(scene: &Scene) -> Result<()> {
    let (to, service) = (inside(OUTSIDE, false), IpAddr::from(SERVICE));
    let without = IpAddr::from(WITHOUT_ENDPOINTS);
    let text = format!(
        "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SEP - [0:0]\n\
         -A PREROUTING -j KUBE-SERVICES\n-A KUBE-SERVICES -d {service}/32 -p tcp --dport 80 -j KUBE-SEP\n\
         -A KUBE-SEP -p tcp -j DNAT --to-destination {to}:8080\nCOMMIT\n\
         *filter\n:FORWARD ACCEPT [0:0]\n:KUBE-FORWARD - [0:0]\n-A FORWARD -m conntrack --ctstate NEW -j KUBE-FORWARD\n\
         -A KUBE-FORWARD -d {without}/32 -p tcp --dport 80 -j REJECT\nCOMMIT\n"
    );
    let script = Script::parse(XtFamily::Ip, &text).unwrap();
    let restore = || XtEngine::open()?.restore(&script, true).map(drop);
    scene.node.run(restore).unwrap()
}

// matrix: every
#[test]
fn check_7_services_of_kube_proxy_reach_the_proxy_untranslated() {
    engines(|scene, engine| {
        let servers = Servers::start(scene);
        let kube_proxy = match engine {
            Engine::Nft => kube_proxy_nft(scene),
            Engine::Xtables => kube_proxy_legacy(scene),
        };
        match kube_proxy {
            Err(e) if e.is_unsupported() => return println!("skipped: {}: {e}", lacking(engine)),
            made => made.unwrap(),
        }
        let service = SocketAddr::from((SERVICE, 80));
        let plain = ask(&mut connect(&scene.pod, service).unwrap(), "x").unwrap();
        assert_eq!(plain, "outside|x", "the service works without rules");
        servers.drain();
        if !up(scene, engine, "") {
            return;
        }
        let mut stream = connect(&scene.pod, service).unwrap();
        assert_eq!(ask(&mut stream, "x").unwrap(), "outbound|outside|x");
        let seen: Vec<_> = servers.drain().iter().map(|s| (s.who, s.to)).collect();
        let translated = SocketAddr::new(inside(OUTSIDE, false), 8080);
        assert_eq!(seen, [("outbound", service), ("outside", translated)]);
        if engine == Engine::Xtables {
            let without = SocketAddr::from((WITHOUT_ENDPOINTS, 80));
            drop(connect(&scene.pod, without).unwrap());
            let first = servers.seen.recv_timeout(PATIENCE).unwrap();
            assert_eq!((first.who, first.to), ("outbound", without));
        }
    });
}

/// The checks above capture both families; this one captures a single family.
#[test]
fn check_10_a_pod_with_one_family_on_a_node_with_two() {
    engines(|scene, engine| {
        let _servers = Servers::start(scene);
        let with = |proxy: &str, pod: &str| {
            let (z, p) = (scene.proxy.path(), scene.pod.path());
            let text = format!(
                r#"{{"proxies": [{{"uid": "z", "netns": "{}", "addresses": [{proxy}]}}],
                "pods": [{{"uid": "a", "netns": "{}", "addresses": [{pod}]}}]}}"#,
                z.display(),
                p.display()
            );
            Config::from_json(&text, "test")
        };
        let quoted = |number, v6| format!("{:?}", inside(number, v6).to_string());
        let both = |number| format!("{}, {}", quoted(number, false), quoted(number, true));
        let config = with(&both(PROXY), &quoted(POD, false)).unwrap();
        match apply(&config, &scene.node, Some(engine), false) {
            Err(e) if e.is_unsupported() => return println!("skipped: {}: {e}", lacking(engine)),
            applied => drop(applied.unwrap()),
        }
        let to = |v6| SocketAddr::new(inside(OUTSIDE, v6), 8080);
        let asked = |v6| ask(&mut connect(&scene.pod, to(v6)).unwrap(), "x").unwrap();
        assert_eq!(asked(false), "outbound|outside|x");
        // This address is not enrolled. Rules of legacy tables do not match the links of pods, so its connections pass.
        match engine {
            Engine::Nft => assert!(!connects(&scene.pod, to(true))),
            Engine::Xtables => assert_eq!(asked(true), "outside|x"),
        }
        // Packets of a family that the proxy lacks would be lost, so the configuration is refused and the error names the address.
        let error = with(&quoted(PROXY, false), &both(POD)).unwrap_err();
        let error = error.to_string();
        let address = inside(POD, true).to_string();
        assert!(
            error.contains(&address) && error.contains("family"),
            "{error}"
        );
    });
}

// matrix: every
#[test]
fn names_are_asked_from_the_proxy() {
    engines(|scene, engine| {
        if !up(scene, engine, r#", "dns_capture": true"#) {
            return;
        }
        for v6 in [false, true] {
            let server = bound(&scene.proxy, (inside(PROXY, v6), 15053).into());
            let client = bound(&scene.pod, (inside(POD, v6), 0).into());
            client.connect((inside(OUTSIDE, v6), 53)).unwrap();
            client.send(b"query").unwrap();
            let mut buffer = [0; 16];
            let (length, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"query");
            assert_eq!(from, client.local_addr().unwrap());
            // The client receives only answers from the address that it sent to.
            server.send_to(b"answer", from).unwrap();
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"answer");
        }
    });
}
