//! Redirection at the node by eBPF: packet paths, failures and removal, with real packets.

use crate::acceptance::use_a_port_twice;
use crate::ebpf_before::qdiscs;
use crate::leaks::{Flows, Left, Tap};
use crate::scene::{
    OUTSIDE, PATIENCE, POD, PROXY, SECOND, Scene, Seen, Servers, address, ask, connect, connects,
    inside, sysctl,
};
use crate::{is_reached_by_udp, state, up};
use std::net::{IpAddr, SocketAddr};
use weir_cni::compile::Engine;
use weir_ebpf::Bpffs;
use weir_netfilter::conntrack::{Conntrack, Transport, Tuple};
use weir_netlink::Netns;
use weir_netlink::route::{Routing, TcHandle};
use weir_node_ambient::Config;
use weir_node_ambient::ebpf::{apply, compare, remove};
use weir_testing::{BpfFs, sockets};

/// A node with a directory of pins, for each method of attaching programs.
pub(crate) fn builds() -> impl Iterator<Item = (Scene, BpfFs)> {
    let has_links = || weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok();
    BpfFs::each(has_links).filter_map(|mounted| Some((Scene::build()?, mounted)))
}

pub(crate) fn bpffs(mounted: &BpfFs) -> Bpffs {
    let bpffs = Bpffs::at(mounted.path()).unwrap();
    match mounted.by_filters() {
        true => bpffs.by_filters(),
        false => bpffs,
    }
}

pub(crate) fn applied(scene: &Scene, mounted: &BpfFs, config: &Config) {
    apply(config, &scene.node, &bpffs(mounted)).unwrap();
    let left = compare(config, &scene.node, &bpffs(mounted)).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

pub(crate) fn web(place: u8, v6: bool) -> SocketAddr {
    SocketAddr::new(inside(place, v6), 8080)
}

pub(crate) fn answer(from: &Netns, to: SocketAddr) -> String {
    ask(&mut connect(from, to).unwrap(), "x").unwrap()
}

/// Sections 10 and 2: original destination and client address, and a listener for each kind of traffic, for both families. The node tracks
/// no connection of the pod itself.
// matrix: every
#[test]
fn check_2_addresses_are_kept_and_the_pods_connections_are_not_tracked() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        for v6 in [false, true] {
            assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outside|x");
        }
        servers.drain();
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        for v6 in [false, true] {
            let pod = inside(POD, v6);
            let to = web(OUTSIDE, v6);
            let mut open = connect(&scene.pod, to).unwrap();
            assert_eq!(ask(&mut open, "x").unwrap(), "outbound|outside|x");
            let seen = |who, from, to| Seen { who, from, to };
            assert_eq!(
                servers.drain(),
                [seen("outbound", pod, to), seen("outside", pod, to)]
            );
            let tuple = Tuple {
                transport: Transport::Tcp,
                source: open.local_addr().unwrap(),
                destination: to,
            };
            let find = || Conntrack::open()?.find(&tuple, 0);
            match scene.node.run(find).unwrap() {
                Ok(tracked) => assert!(tracked.is_none(), "{tracked:?}"),
                Err(e) => println!("not compared: {e}"),
            }
            let (client, to) = (inside(OUTSIDE, v6), web(POD, v6));
            assert_eq!(answer(&scene.outside, to), "inbound|pod|x");
            assert_eq!(
                servers.drain(),
                [seen("inbound", client, to), seen("pod", client, to)]
            );
            // No process in the pod listens on this port, so the answer comes from the proxy's listener.
            let to = SocketAddr::new(pod, 15008);
            drop(connect(&scene.outside, to).unwrap());
            let first = servers.seen.recv_timeout(PATIENCE).unwrap();
            assert_eq!(first, seen("hbone", client, to));
            let last = servers.seen.recv_timeout(PATIENCE).unwrap();
            assert_eq!(last.who, "no upstream");
        }
        // Without the programs the traffic is plain text.
        remove(&scene.node, &bpffs(&mounted), None).unwrap();
        assert_eq!(answer(&scene.pod, web(OUTSIDE, false)), "outside|x");
    }
}

/// Probes from every address of the node reach the pod itself, and datagrams pass in both directions.
#[test]
fn check_9_the_node_and_datagrams_are_left_alone() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        for v6 in [false, true] {
            for from in [POD, OUTSIDE] {
                let source = SocketAddr::new(address(from, v6, 1), 0);
                let probe = || {
                    let domain = socket2::Domain::for_address(source);
                    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
                    socket.bind(&source.into()).unwrap();
                    socket
                        .connect_timeout(&web(POD, v6).into(), PATIENCE)
                        .unwrap();
                    std::net::TcpStream::from(socket)
                };
                let mut stream = scene.node.run(probe).unwrap();
                assert_eq!(ask(&mut stream, "p").unwrap(), "pod|p", "from {source}");
            }
            assert!(is_reached_by_udp(&scene, v6));
        }
        assert!(servers.drain().iter().all(|s| s.who == "pod"));
    }
}

/// If DNS is captured, queries reach the proxy on port 15053, and its answers have the address of the queried server. Without a proxy,
/// queries pass.
// matrix: every
#[test]
fn check_9_names_are_captured_where_it_is_asked_for() {
    for (scene, mounted) in builds() {
        let bound = |netns: &Netns, at: SocketAddr| {
            let bind = || sockets::bound(|| std::net::UdpSocket::bind(at)).unwrap();
            let socket = netns.run(bind).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let query = |v6, port, server: &std::net::UdpSocket| {
            let client = bound(&scene.pod, (inside(POD, v6), 0).into());
            // The client does not receive answers from another address.
            client.connect((inside(OUTSIDE, v6), port)).unwrap();
            client.send(b"name?").unwrap();
            let mut buffer = [0; 16];
            let (n, from) = server.recv_from(&mut buffer).unwrap();
            assert_eq!(
                (&buffer[..n], from),
                (&b"name?"[..], client.local_addr().unwrap())
            );
            server.send_to(b"answer", from).unwrap();
            let n = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..n], b"answer");
        };
        let captured = scene.config(&[(PROXY, 1)], r#", "dns_capture": true"#);
        applied(&scene, &mounted, &captured);
        let any = |v6| -> IpAddr { if v6 { "::" } else { "0.0.0.0" }.parse().unwrap() };
        for v6 in [false, true] {
            let server = bound(&scene.proxy, (inside(PROXY, v6), 15053).into());
            query(v6, 53, &server);
            query(v6, 53, &server);
            // Other datagrams pass.
            query(v6, 5353, &bound(&scene.outside, (any(v6), 5353).into()));
        }
        let counters = weir_ebpf::node::Node::of(&scene.node, &bpffs(&mounted)).counters();
        let names = counters
            .unwrap()
            .into_iter()
            .find(|(n, _)| n.starts_with("DNS"));
        assert_eq!(names.unwrap().1, 4);
        // Without a proxy, or without the setting, queries reach the server.
        for config in [
            scene.config(&[], r#", "dns_capture": true"#),
            scene.config(&[(PROXY, 1)], ""),
        ] {
            applied(&scene, &mounted, &config);
            for v6 in [false, true] {
                query(
                    v6,
                    53,
                    &bound(&scene.outside, (inside(OUTSIDE, v6), 53).into()),
                );
            }
        }
    }
}

/// The proxy does not listen, its link is deleted, or no proxy is left: nothing leaves in plain text, and probes pass.
// matrix: every
#[test]
fn check_6_nothing_leaves_in_plain_text_without_the_proxy() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        let to = web(OUTSIDE, false);
        // No process listens in the second proxy's namespace, which would forward packets.
        scene
            .second
            .run(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))
            .unwrap()
            .unwrap();
        applied(&scene, &mounted, &scene.config(&[(SECOND, 1)], ""));
        assert!(!connects(&scene.pod, to));
        assert!(!connects(&scene.outside, web(POD, false)));
        assert_eq!(servers.drain(), []);
        // With its program detached the namespace forwards nothing either.
        let second = scene.config(&[(SECOND, 1)], "");
        let id = scene.second.id().ino.to_string();
        let folder = mounted.path().join("weir/v2").join(id);
        let detach = || {
            let routing = Routing::open().unwrap();
            let index = routing.link("eth0").unwrap().index;
            for filter in routing.filters(index, TcHandle::INGRESS).unwrap() {
                routing.delete_filter(&filter).unwrap();
            }
        };
        match mounted.by_filters() {
            true => scene.second.run(detach).unwrap(),
            false => {
                // The record of the namespace that the pins belong to is a directory.
                let pins = std::fs::read_dir(folder).unwrap().flatten();
                for pin in pins.map(|pin| pin.path()).filter(|path| !path.is_dir()) {
                    std::fs::remove_file(pin).unwrap();
                }
            }
        }
        assert!(
            !compare(&second, &scene.node, &bpffs(&mounted))
                .unwrap()
                .is_empty()
        );
        assert!(!connects(&scene.pod, to));
        assert_eq!(servers.drain(), []);
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        let (mut tap, mut flows) = (Tap::of(&scene), Flows::open(&scene));
        assert_ne!(tap.left().words, 0, "what the proxy passes on is seen");
        servers.drain();
        let routing = Routing::open_in(&scene.node).unwrap();
        routing
            .delete_link(routing.link("v2").unwrap().index)
            .unwrap();
        tap.forget();
        flows.write();
        let nothing_connects = || {
            for v6 in [false, true] {
                assert!(!connects(&scene.pod, web(OUTSIDE, v6)));
                assert!(!connects(&scene.outside, web(POD, v6)));
            }
        };
        nothing_connects();
        assert_eq!((tap.left(), servers.drain()), (Left::default(), vec![]));
        applied(&scene, &mounted, &scene.config(&[], ""));
        flows.write();
        nothing_connects();
        assert_eq!((tap.left(), servers.drain()), (Left::default(), vec![]));
        for v6 in [false, true] {
            assert_eq!(answer(&scene.node, web(POD, v6)), "pod|x");
            assert!(is_reached_by_udp(&scene, v6));
        }
        let open = scene.config(&[], r#", "without_proxy": "open""#);
        applied(&scene, &mounted, &open);
        assert_eq!(answer(&scene.pod, to), "outside|x");
        assert_ne!(tap.left().syns, 0);
    }
}

/// Proxies follow each other: new connections go to the newest, and open ones stay with their proxy, in both directions and families, until
/// that is removed.
// matrix: every
#[test]
fn open_connections_stay_with_their_proxy() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        let names = ["second outbound", "second inbound", "second hbone"];
        servers.proxy(&scene.second, names);
        let open = || {
            let ways = [false, true].map(|v6| {
                [
                    (&scene.pod, web(OUTSIDE, v6)),
                    (&scene.outside, web(POD, v6)),
                ]
            });
            let ways = ways.concat().into_iter();
            ways.map(|(from, to)| connect(from, to).unwrap())
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
            let config = scene.config(proxies, "");
            applied(&scene, &mounted, &config);
        };
        switch(&[(PROXY, 1)]);
        let mut first = open();
        assert_eq!(answers(&mut first), by(""));
        switch(&[(PROXY, 1), (SECOND, 2)]);
        let mut second = open();
        assert_eq!(answers(&mut first), by(""));
        assert_eq!(answers(&mut second), by("second "));
        // The first proxy becomes active again, as after another replacement.
        switch(&[(PROXY, 3), (SECOND, 2)]);
        let mut third = open();
        assert_eq!(answers(&mut third), by(""));
        assert_eq!(
            (answers(&mut first), answers(&mut second)),
            (by(""), by("second "))
        );
        // The second proxy is removed with its connections, none of which bypasses the first.
        switch(&[(PROXY, 3)]);
        assert_eq!(answers(&mut third), by(""));
        servers.drain();
        assert_eq!(answers(&mut second), vec![String::new(); 4]);
        assert_eq!(servers.drain(), []);
    }
}

/// A newer proxy takes over: new connections go to it.
#[test]
fn a_newer_proxy_takes_over() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        let names = ["second outbound", "second inbound", "second hbone"];
        servers.proxy(&scene.second, names);
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        assert_eq!(
            answer(&scene.pod, web(OUTSIDE, false)),
            "outbound|outside|x"
        );
        applied(
            &scene,
            &mounted,
            &scene.config(&[(PROXY, 1), (SECOND, 2)], ""),
        );
        for v6 in [false, true] {
            assert_eq!(
                answer(&scene.pod, web(OUTSIDE, v6)),
                "second outbound|outside|x"
            );
            assert_eq!(answer(&scene.outside, web(POD, v6)), "second inbound|pod|x");
        }
    }
}

#[test]
fn a_port_of_the_older_proxy_is_used_by_the_newer() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        servers.proxy(&scene.second, ["outbound 2", "inbound 2", "hbone 2"]);
        let both: &[(u8, u64)] = &[(PROXY, 1), (SECOND, 2)];
        for proxies in [&both[..1], both] {
            applied(&scene, &mounted, &scene.config(proxies, ""));
        }
        use_a_port_twice(&scene);
    }
}

/// Applying again changes nothing; cleaning leaves nothing and restores the sysctls.
// matrix: every
#[test]
fn check_10_removal_leaves_nothing() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        let all = |scene: &Scene| {
            let forwarding = "ipv4/conf/eth0/forwarding";
            let routing = Routing::open_in(&scene.proxy).unwrap();
            let rules: Vec<String> = routing
                .rules()
                .unwrap()
                .iter()
                .map(ToString::to_string)
                .collect();
            let more = [
                sysctl(&scene.node, "ipv4/conf/v2/rp_filter"),
                sysctl(&scene.proxy, forwarding),
            ];
            (
                state(scene),
                rules,
                routing.routes(100).unwrap().len(),
                qdiscs(scene),
                more,
            )
        };
        let before = all(&scene);
        applied(&scene, &mounted, &config);
        assert_ne!(all(&scene), before);
        let again = apply(&config, &scene.node, &bpffs(&mounted)).unwrap();
        assert!(again.is_empty(), "{again:?}");
        assert!(
            !remove(&scene.node, &bpffs(&mounted), Some(&config))
                .unwrap()
                .is_empty()
        );
        assert_eq!(all(&scene), before);
        assert_eq!(
            remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap(),
            []
        );
        let left = std::fs::read_dir(mounted.path().join("weir/v2")).unwrap();
        assert_eq!(left.count(), 0);
    }
}

/// From rules to programs and back, while a connection stays open at the proxy.
#[test]
fn rules_and_programs_follow_each_other() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        if !up(&scene, Engine::Nft, "") {
            return;
        }
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
        assert!(
            compare(&config, &scene.node, &bpffs(&mounted))
                .unwrap()
                .replaces
        );
        applied(&scene, &mounted, &config);
        assert_eq!(
            scene
                .node
                .run(weir_node_ambient::rules::present)
                .unwrap()
                .unwrap(),
            None
        );
        for v6 in [false, true] {
            assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outbound|outside|x");
            assert_eq!(answer(&scene.outside, web(POD, v6)), "inbound|pod|x");
        }
        drop(servers);
    }
}

/// An agent without a record of the proxies has removed the other engine's objects only at the node: those left at the proxy do no harm.
#[test]
fn what_the_other_way_left_at_the_proxy_is_replaced() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        let captured = || {
            for v6 in [false, true] {
                assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outbound|outside|x");
                assert_eq!(answer(&scene.outside, web(POD, v6)), "inbound|pod|x");
            }
        };
        if !up(&scene, Engine::Nft, "") {
            return;
        }
        weir_node_ambient::remove(&scene.node, None).unwrap();
        // An agent that captures in pods removes these policy rules from pods that are not enrolled.
        let routing = Routing::open_in(&scene.proxy).unwrap();
        let marked = routing.rules().unwrap().into_iter();
        let marked: Vec<_> = marked.filter(|rule| rule.fwmark.is_some()).collect();
        assert_eq!(marked.len(), 4);
        for rule in &marked {
            assert!(routing.del_rule(rule).unwrap());
        }
        applied(&scene, &mounted, &config);
        captured();
        remove(&scene.node, &bpffs(&mounted), None).unwrap();
        assert!(up(&scene, Engine::Nft, ""));
        captured();
    }
}

/// More addresses than Istio's map has room for; the addresses of pods that leave are removed.
#[test]
fn check_7_thousands_of_addresses() {
    use weir_ebpf::node::{Node, Proxy, Wanted};
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let many = |count: u16| {
            let more = (0..count).map(|n| {
                let [high, low] = n.to_be_bytes();
                IpAddr::from([10, 9, high, low])
            });
            let own = [inside(POD, false), inside(POD, true)];
            Wanted {
                pods: more.chain(own).map(|a| (a, "v1".to_owned())).collect(),
                addresses: [address(POD, false, 1)].into(),
                proxy: Some(Proxy {
                    netns: scene.proxy.path(),
                    interface: "eth0".to_owned(),
                    device: "v2".to_owned(),
                    ..Proxy::default()
                }),
                has_ipv6: true,
                ..Wanted::default()
            }
        };
        let bpffs = bpffs(&mounted);
        let node = Node::of(&scene.node, &bpffs);
        node.apply(&many(3000)).unwrap();
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
        assert_eq!(node.apply(&many(1)).unwrap().host.len(), 2999);
        assert!(node.compare(&many(1)).unwrap().is_empty());
        assert_eq!(
            answer(&scene.pod, web(OUTSIDE, false)),
            "outbound|outside|x"
        );
        let full = node.apply(&many(20_000)).unwrap_err().to_string();
        assert!(full.contains("room for 16384 addresses"), "{full}");
        // The pods that were captured before stay captured.
        assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
        let counters = node.counters().unwrap();
        let outbound = counters
            .iter()
            .find(|(name, _)| name.starts_with("outbound"));
        assert_eq!(outbound.unwrap().1, 3, "{counters:?}");
    }
}
