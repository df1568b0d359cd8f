//! Acceptance checks of ambient mode at the node, with real packets in temporary namespaces.
// matrix: newest
// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]

mod acceptance;
mod ahead;
mod before_routing;
mod between;
mod bridge;
mod captured;
mod carriers;
mod dnat;
mod ebpf;
mod ebpf_before;
mod ebpf_events;
mod ebpf_faults;
mod echo;
mod engines;
mod enrolled;
mod exclude;
mod families;
mod foreign;
mod forwarded;
mod host;
mod ipvs;
mod kinds;
mod leaks;
mod marks;
mod meter;
mod mistaken;
mod netkit;
mod odd;
mod proxied;
mod removal;
mod renumbered;
mod reused;
mod scene;
mod segments;
mod services;
mod sources;
mod tagged;
mod unlisted;
mod unnumbered;
mod unready;
mod writers;

use leaks::{Flows, Left, Tap};
use scene::{
    OUTSIDE, POD, PROXY, SECOND, Scene, Seen, Servers, address, ask, connect, connects, inside,
    sysctl,
};
use std::net::{SocketAddr, UdpSocket};
use weir_cni::compile::Engine;
use weir_netlink::Netns;
use weir_netlink::route::{AddressFamily, PolicyRule, RT_TABLE_LOCAL, RouteProtocol, Routing};
use weir_node_ambient::{apply, compare, remove};
use weir_testing::lacks;

const CARRIERS: [&str; 3] = ["geneve", "vxlan", "veth"];

fn carrier(name: &str) -> String {
    format!(r#", "carrier": "{name}""#)
}

/// Runs a check for both engines, if this kernel has them, with each kind of carrier.
fn each(carriers: &[&str], check: impl Fn(&Scene, Engine, &str)) {
    for engine in [Engine::Nft, Engine::Xtables] {
        for name in carriers {
            let Some(scene) = Scene::build() else { return };
            println!("engine {engine}, carrier {name}");
            check(&scene, engine, name);
        }
    }
}

/// The newest feature that an engine needs, and the first kernel that has it.
fn lacking(engine: Engine) -> &'static str {
    match engine {
        Engine::Nft => "expression tproxy (since 4.19)",
        Engine::Xtables => "target ip TPROXY (since 2.6.37)",
    }
}

fn up(scene: &Scene, engine: Engine, more: &str) -> bool {
    match apply(
        &scene.config(&[(PROXY, 1)], more),
        &scene.node,
        Some(engine),
        false,
    ) {
        Ok(_) => true,
        Err(e) if e.is_unsupported() && e.to_string().contains("GENEVE") => {
            lacks::skip("link geneve", "4.2", e);
            false
        }
        Err(e) if e.is_unsupported() => {
            println!("skipped: {}: {e}", lacking(engine));
            false
        }
        Err(e) => panic!("{engine} {more}: {e}"),
    }
}

/// Original destination and client address, and a listener for each kind of traffic, for both families.
// matrix: every; variants no-nft-tproxy no-nftables no-xtables no-geneve
#[test]
fn checks_2_and_3_addresses_are_kept_and_listeners_are_chosen_by_port() {
    each(&CARRIERS, |scene, engine, name| {
        let servers = Servers::start(scene);
        for v6 in [false, true] {
            let to = SocketAddr::new(inside(OUTSIDE, v6), 8080);
            let plain = ask(&mut connect(&scene.pod, to).unwrap(), "x").unwrap();
            assert_eq!(plain, "outside|x", "the proxy is asked without rules");
        }
        servers.drain();
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        for v6 in [false, true] {
            let pod = inside(POD, v6);
            let to = SocketAddr::new(inside(OUTSIDE, v6), 8080);
            let answer = ask(&mut connect(&scene.pod, to).unwrap(), "x").unwrap();
            assert_eq!(answer, "outbound|outside|x");
            let seen = |who, from, to| Seen { who, from, to };
            assert_eq!(
                servers.drain(),
                [seen("outbound", pod, to), seen("outside", pod, to)]
            );
            let (client, to) = (inside(OUTSIDE, v6), SocketAddr::new(pod, 8080));
            let answer = ask(&mut connect(&scene.outside, to).unwrap(), "y").unwrap();
            assert_eq!(answer, "inbound|pod|y");
            assert_eq!(
                servers.drain(),
                [seen("inbound", client, to), seen("pod", client, to)]
            );
            // No process in the pod listens on this port, so the answer comes from the proxy's listener.
            let to = SocketAddr::new(pod, 15008);
            drop(connect(&scene.outside, to).unwrap());
            let first = servers.seen.recv_timeout(scene::PATIENCE).unwrap();
            assert_eq!(first, seen("hbone", client, to));
            let last = servers.seen.recv_timeout(scene::PATIENCE).unwrap();
            assert_eq!(last.who, "no upstream");
        }
    });
}

/// A probe from every address of the node reaches the pod itself.
#[test]
fn check_4_probes_from_every_address_of_the_node_are_not_captured() {
    each(&CARRIERS, |scene, engine, name| {
        let servers = Servers::start(scene);
        let counts = meter::start(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        for v6 in [false, true] {
            let to = SocketAddr::new(inside(POD, v6), 8080);
            for from in [POD, OUTSIDE] {
                let source = address(from, v6, 1);
                let probe = || {
                    let domain = socket2::Domain::for_address(to);
                    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None).unwrap();
                    socket.bind(&SocketAddr::new(source, 0).into()).unwrap();
                    socket.connect_timeout(&to.into(), scene::PATIENCE).unwrap();
                    std::net::TcpStream::from(socket)
                };
                let mut stream = scene.node.run(probe).unwrap();
                assert_eq!(ask(&mut stream, "p").unwrap(), "pod|p", "from {source}");
            }
            assert!(is_reached_by_udp(scene, v6));
        }
        assert!(servers.drain().iter().all(|s| s.who == "pod"));
        if counts {
            assert_eq!(meter::read(scene).since(meter::Count::default()), [0, 0]);
        }
    });
}

/// Whether the pod receives a datagram of the node, and the node the answer.
fn is_reached_by_udp(scene: &Scene, v6: bool) -> bool {
    let bind = |netns: &Netns, address| {
        let bind = || UdpSocket::bind(SocketAddr::new(address, 0)).unwrap();
        let socket = netns.run(bind).unwrap();
        socket.set_read_timeout(Some(scene::PATIENCE)).unwrap();
        socket
    };
    let pod = bind(&scene.pod, inside(POD, v6));
    let node = bind(&scene.node, address(POD, v6, 1));
    let mut buffer = [0; 8];
    let mut passes = || {
        node.send_to(b"ping", pod.local_addr()?)?;
        let (_, from) = pod.recv_from(&mut buffer)?;
        pod.send_to(b"pong", from)?;
        node.recv_from(&mut buffer)
    };
    passes().is_ok()
}

/// The proxy's namespace ends while open connections continue to write; nothing leaves in plain text.
#[test]
fn check_5_nothing_leaves_in_plain_text_when_the_proxy_is_gone() {
    each(&CARRIERS, |scene, engine, name| {
        let servers = Servers::start(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        let to = SocketAddr::new(inside(OUTSIDE, false), 8080);
        let (mut tap, mut flows) = (Tap::of(scene), Flows::open(scene));
        assert_ne!(tap.left().words, 0, "what the proxy passes on is seen");
        servers.drain();
        // Deletes the device, as the end of its namespace would; sockets of this process keep the namespace.
        let routing = Routing::open_in(&scene.node).unwrap();
        routing
            .delete_link(routing.link("v2").unwrap().index)
            .unwrap();
        tap.forget();
        flows.write();
        for v6 in [false, true] {
            let (to, pod) = (inside(OUTSIDE, v6), inside(POD, v6));
            assert!(!connects(&scene.pod, SocketAddr::new(to, 8080)));
            assert!(!connects(&scene.outside, SocketAddr::new(pod, 8080)));
        }
        assert_eq!((tap.left(), servers.drain()), (Left::default(), vec![]));
        // The same without a proxy in the configuration, and plain text if a setting permits it.
        let none = scene.config(&[], "");
        apply(&none, &scene.node, Some(engine), false).unwrap();
        flows.write();
        assert!(!connects(&scene.pod, to));
        assert!(!connects(
            &scene.outside,
            SocketAddr::new(inside(POD, false), 8080)
        ));
        assert_eq!((tap.left(), servers.drain()), (Left::default(), vec![]));
        // The pods stay healthy.
        for v6 in [false, true] {
            let mut probe = connect(&scene.node, SocketAddr::new(inside(POD, v6), 8080)).unwrap();
            assert_eq!(ask(&mut probe, "p").unwrap(), "pod|p");
            assert!(is_reached_by_udp(scene, v6));
        }
        let open = scene.config(&[], r#", "without_proxy": "open""#);
        apply(&open, &scene.node, Some(engine), false).unwrap();
        assert_eq!(
            ask(&mut connect(&scene.pod, to).unwrap(), "x").unwrap(),
            "outside|x"
        );
        assert_ne!(tap.left().syns, 0);
    });
}

/// Check 6, replacement: a newer proxy takes over.
#[test]
fn a_newer_proxy_takes_over() {
    each(&CARRIERS, |scene, engine, name| {
        let servers = Servers::start(scene);
        servers.proxy(
            &scene.second,
            ["second outbound", "second inbound", "second hbone"],
        );
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        let to = SocketAddr::new(inside(OUTSIDE, false), 8080);
        assert_eq!(
            ask(&mut connect(&scene.pod, to).unwrap(), "x").unwrap(),
            "outbound|outside|x"
        );
        let both = scene.config(&[(PROXY, 1), (SECOND, 2)], &carrier(name));
        apply(&both, &scene.node, Some(engine), false).unwrap();
        assert!(
            compare(&both, &scene.node, Some(engine))
                .unwrap()
                .is_empty()
        );
        assert_eq!(
            ask(&mut connect(&scene.pod, to).unwrap(), "x").unwrap(),
            "second outbound|outside|x"
        );
        let inbound = SocketAddr::new(inside(POD, false), 8080);
        assert_eq!(
            ask(&mut connect(&scene.outside, inbound).unwrap(), "x").unwrap(),
            "second inbound|pod|x"
        );
    });
}

fn state(scene: &Scene) -> String {
    let routing = Routing::open_in(&scene.node).unwrap();
    let links: Vec<String> = routing
        .links()
        .unwrap()
        .iter()
        .map(|l| l.name.clone())
        .collect();
    let routes: Vec<String> = [100, 101, 102, 254]
        .iter()
        .flat_map(|t| routing.routes(*t).unwrap())
        .map(|r| r.to_string())
        // The kernel adds link-local addresses at any time.
        .filter(|r| !r.starts_with("fe80:"))
        .collect();
    let rules: Vec<String> = routing
        .rules()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    let rules_of_netfilter = scene
        .node
        .run(weir_node_ambient::rules::present)
        .unwrap()
        .unwrap();
    let sysctls = [
        "ipv4/conf/all/rp_filter",
        "ipv4/conf/default/rp_filter",
        "ipv4/conf/v1/rp_filter",
        "ipv4/conf/v2/accept_local",
    ];
    let sysctls = sysctls.map(|key| sysctl(&scene.node, key));
    format!("{links:?}\n{routes:#?}\n{rules:#?}\n{rules_of_netfilter:?}\n{sysctls:?}")
}

/// Applying again changes nothing; cleaning leaves nothing and restores the sysctls.
// matrix: every
#[test]
fn checks_8_and_9_applied_twice_is_applied_once_and_cleaned_is_as_before() {
    each(&CARRIERS, |scene, engine, name| {
        // The policy rules that the node agent adds for a pod behind a branch ENI of AWS.
        let routing = Routing::open_in(&scene.node).unwrap();
        let pod = ipnet::IpNet::from(inside(POD, false));
        let by = RouteProtocol::Other(weir_cni::redirection::RTPROT_WEIR);
        let probe = PolicyRule::to(pod, 300).at(512).by(by);
        let answer = PolicyRule::iif(AddressFamily::V4, "v1", RT_TABLE_LOCAL);
        for rule in [probe, answer.at(9).by(by)] {
            routing.add_rule(&rule).unwrap();
        }
        let before = state(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        let there = state(scene);
        assert_ne!(before, there);
        assert_eq!(sysctl(&scene.node, "ipv4/conf/all/rp_filter"), "0");
        let config = scene.config(&[(PROXY, 1)], &carrier(name));
        let again = compare(&config, &scene.node, Some(engine)).unwrap();
        assert!(again.is_empty(), "{:#?} {:#?}", again.host, again.proxy);
        assert!(up(scene, engine, &carrier(name)));
        assert_eq!(state(scene), there);
        assert!(!remove(&scene.node, Some(&config)).unwrap().is_empty());
        assert_eq!(state(scene), before);
        assert_eq!(
            remove(&scene.node, Some(&config)).unwrap(),
            Vec::<String>::new()
        );
    });
}

/// Objects of other writers are reported before anything is written.
#[test]
fn collisions_are_reported_and_refused() {
    let Some(scene) = Scene::build() else { return };
    let routing = Routing::open_in(&scene.node).unwrap();
    let foreign = PolicyRule::mark(AddressFamily::V4, 0x200, 7).at(9);
    routing.add_rule(&foreign).unwrap();
    let before = state(&scene);
    let config = scene.config(&[(PROXY, 1)], "");
    let error = apply(&config, &scene.node, Some(Engine::Nft), false)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("0x200") && error.contains("--force"),
        "{error}"
    );
    assert_eq!(state(&scene), before);
    apply(&config, &scene.node, Some(Engine::Nft), true).unwrap();
    remove(&scene.node, Some(&config)).unwrap();
    assert_eq!(state(&scene), before);
}
