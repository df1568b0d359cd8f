//! Pods and proxies whose links are ports of one bridge: no route leads to one of them alone, and the bridge forwards frames between them
//! that the node never routes.

use crate::ebpf::{answer, applied, bpffs, web};
use crate::enrolled::with_second;
use crate::scene::{
    OUTSIDE, POD, PROXY, SECOND, Scene, Seen, Servers, ask, bridge, connect, connects, inside,
};
use crate::{is_reached_by_udp, state, up};
use std::net::{SocketAddr, UdpSocket};
use weir_cni::compile::Engine;
use weir_netlink::Netns;
use weir_netlink::route::Routing;
use weir_node_ambient::{apply, compare, remove};
use weir_testing::BpfFs;

const V4_AND_V6: [bool; 2] = [false, true];

fn seen(who: &'static str, from: std::net::IpAddr, to: SocketAddr) -> Seen {
    Seen { who, from, to }
}

/// Connections out of the bridge, into it, between its ports, and from the node.
fn all_ways_are_captured(scene: &Scene, servers: &Servers) {
    for v6 in V4_AND_V6 {
        let (pod, client) = (inside(POD, v6), inside(OUTSIDE, v6));
        servers.drain();
        // A second connection uses what the first one added to the bridge's and neighbour tables.
        for _ in 0..2 {
            let to = web(OUTSIDE, v6);
            assert_eq!(answer(&scene.pod, to), "outbound|outside|x");
            let both = [seen("outbound", pod, to), seen("outside", pod, to)];
            assert_eq!(servers.drain(), both);
            let to = web(POD, v6);
            assert_eq!(answer(&scene.outside, to), "inbound|pod|x");
            let both = [seen("inbound", client, to), seen("pod", client, to)];
            assert_eq!(servers.drain(), both);
            // Neighbours on the bridge, of which one is not enrolled.
            let to = web(SECOND, v6);
            assert_eq!(answer(&scene.pod, to), "outbound|neighbour|x");
            let both = [seen("outbound", pod, to), seen("neighbour", pod, to)];
            assert_eq!(servers.drain(), both);
            let (client, to) = (inside(SECOND, v6), web(POD, v6));
            assert_eq!(answer(&scene.second, to), "inbound|pod|x");
            let both = [seen("inbound", client, to), seen("pod", client, to)];
            assert_eq!(servers.drain(), both);
            assert_eq!(answer(&scene.node, to), "pod|x");
            assert!(servers.drain().iter().all(|s| s.who == "pod"));
        }
        assert!(is_reached_by_udp(scene, v6));
    }
}

fn plain(scene: &Scene) {
    for v6 in V4_AND_V6 {
        assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outside|x");
        assert_eq!(answer(&scene.pod, web(SECOND, v6)), "neighbour|x");
        assert_eq!(answer(&scene.second, web(POD, v6)), "pod|x");
    }
}

fn bound(netns: &Netns, at: SocketAddr) -> UdpSocket {
    let socket = netns.run(|| UdpSocket::bind(at).unwrap()).unwrap();
    let patience = Some(crate::scene::PATIENCE);
    socket.set_read_timeout(patience).unwrap();
    socket
}

/// A DNS server on the bridge, such as CoreDNS: its client gets the proxy's answer, with the server's address.
fn names_are_captured(scene: &Scene) {
    for v6 in V4_AND_V6 {
        let proxy = bound(&scene.proxy, (inside(PROXY, v6), 15053).into());
        let client = bound(&scene.pod, (inside(POD, v6), 0).into());
        client.connect((inside(SECOND, v6), 53)).unwrap();
        client.send(b"name?").unwrap();
        let mut buffer = [0; 16];
        let (n, from) = proxy.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"name?");
        proxy.send_to(b"answer", from).unwrap();
        let n = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], b"answer");
    }
}

/// Determines whether frames that the bridge forwards pass the IP rules as well, as Kubernetes configures many nodes.
///
/// Returns false if this cannot be set: without the module `br_netfilter`, and before Linux 5.3, which has one setting for all namespaces.
pub(crate) fn switched_frames_pass_rules(scene: &Scene, they_do: bool) -> bool {
    let write = |tool: &str| {
        let key = format!("/proc/sys/net/bridge/bridge-nf-call-{tool}");
        std::fs::write(key, if they_do { "1" } else { "0" }).is_ok()
    };
    let both = || ["iptables", "ip6tables"].into_iter().all(write);
    scene.node.run(both).unwrap()
}

/// By rules: frames between ports pass the node's rules, which recognize the proxy's frames by its port.
// matrix: every; variants no-nft-tproxy no-nftables no-xtables
#[test]
fn rules_capture_at_a_bridge() {
    for (carrier, called) in crate::CARRIERS.into_iter().zip([false, true, true]) {
        let Some(scene) = Scene::bridged() else {
            return;
        };
        switched_frames_pass_rules(&scene, called);
        let servers = Servers::start(&scene);
        servers.echo(&scene.second, "neighbour");
        plain(&scene);
        let before = state(&scene);
        let more = format!(r#", "dns_capture": true, "carrier": "{carrier}""#);
        if !up(&scene, Engine::Nft, &more) {
            continue;
        }
        all_ways_are_captured(&scene, &servers);
        names_are_captured(&scene);
        let config = scene.config(&[(PROXY, 1)], &more);
        let again = compare(&config, &scene.node, Some(Engine::Nft)).unwrap();
        assert!(again.is_empty(), "{:#?} {:#?}", again.host, again.proxy);
        remove(&scene.node, Some(&config)).unwrap();
        assert_eq!(state(&scene), before);
        plain(&scene);
    }
}

/// By programs at the ports, where frames have the link-layer addresses of other machines.
// matrix: every
#[test]
fn check_7_programs_capture_at_a_bridge() {
    for mounted in BpfFs::each(|| weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok()) {
        let Some(scene) = Scene::bridged() else {
            return;
        };
        let servers = Servers::start(&scene);
        servers.echo(&scene.second, "neighbour");
        let config = scene.config(&[(PROXY, 1)], r#", "dns_capture": true"#);
        applied(&scene, &mounted, &config);
        all_ways_are_captured(&scene, &servers);
        names_are_captured(&scene);
        weir_node_ambient::ebpf::remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        plain(&scene);
    }
}

/// Neither the end of the proxy nor its absence lets a neighbour see plain text.
#[test]
fn neighbours_see_no_plain_text_without_the_proxy() {
    let Some(scene) = Scene::bridged() else {
        return;
    };
    let servers = Servers::start(&scene);
    servers.echo(&scene.second, "neighbour");
    if !up(&scene, Engine::Nft, "") {
        return;
    }
    let (to, from) = (web(SECOND, false), web(POD, false));
    let mut open = connect(&scene.pod, to).unwrap();
    assert_eq!(ask(&mut open, "x").unwrap(), "outbound|neighbour|x");
    servers.drain();
    let routing = Routing::open_in(&scene.node).unwrap();
    let port = routing.link("v2").unwrap().index;
    routing.delete_link(port).unwrap();
    assert!(ask(&mut open, "secret").is_err());
    assert!(!connects(&scene.pod, to) && !connects(&scene.second, from));
    let none = scene.config(&[], "");
    apply(&none, &scene.node, Some(Engine::Nft), false).unwrap();
    assert!(!connects(&scene.pod, to) && !connects(&scene.second, from));
    assert_eq!(servers.drain(), []);
    for v6 in V4_AND_V6 {
        assert_eq!(answer(&scene.node, web(POD, v6)), "pod|x");
        assert!(is_reached_by_udp(&scene, v6));
    }
}

/// Both proxies are ports of the same bridge: connections of the old one continue.
#[test]
fn a_newer_proxy_takes_over_at_a_bridge() {
    let Some(scene) = Scene::bridged() else {
        return;
    };
    let servers = Servers::start(&scene);
    let names = ["second outbound", "second inbound", "second hbone"];
    servers.proxy(&scene.second, names);
    if !up(&scene, Engine::Nft, "") {
        return;
    }
    let mut open = connect(&scene.pod, web(OUTSIDE, false)).unwrap();
    assert_eq!(ask(&mut open, "x").unwrap(), "outbound|outside|x");
    let both = scene.config(&[(PROXY, 1), (SECOND, 2)], "");
    apply(&both, &scene.node, Some(Engine::Nft), false).unwrap();
    let again = compare(&both, &scene.node, Some(Engine::Nft)).unwrap();
    assert!(again.is_empty(), "{:#?} {:#?}", again.host, again.proxy);
    for v6 in V4_AND_V6 {
        assert_eq!(
            answer(&scene.pod, web(OUTSIDE, v6)),
            "second outbound|outside|x"
        );
        assert_eq!(answer(&scene.outside, web(POD, v6)), "second inbound|pod|x");
    }
    assert_eq!(ask(&mut open, "y").unwrap(), "outbound|outside|y");
}

/// Legacy tables do not see bridged frames: nothing is changed, and the error names the engines that can capture on this node.
#[test]
fn legacy_tables_refuse_ports_of_a_bridge() {
    let Some(scene) = Scene::bridged() else {
        return;
    };
    let config = scene.config(&[(PROXY, 1)], "");
    let refused = compare(&config, &scene.node, Some(Engine::Xtables)).unwrap_err();
    let applied = apply(&config, &scene.node, Some(Engine::Xtables), false).unwrap_err();
    for error in [refused, applied].map(|e| e.to_string()) {
        assert!(error.contains("port of bridge br0"), "{error}");
        assert!(error.contains("eBPF"), "{error}");
    }
    let present = scene.node.run(weir_node_ambient::rules::present);
    assert_eq!(present.unwrap().unwrap(), None);
}

/// One pod at a bridge does not keep the others from being captured, nor does a proxy there that is not active.
#[test]
fn legacy_tables_leave_out_a_pod_at_a_bridge() {
    let Some(scene) = Scene::build() else {
        return;
    };
    let _servers = Servers::start(&scene);
    let routing = Routing::open_in(&scene.node).unwrap();
    let port = routing.link("v3").unwrap().index;
    routing.set_master(port, bridge(&routing)).unwrap();
    if !up(&scene, Engine::Xtables, "") {
        return;
    }
    let mut config = with_second(scene.config(&[(PROXY, 1)], ""), &scene);
    let refused = compare(&config, &scene.node, None).unwrap_err();
    config.leave_out = true;
    let node = apply(&config, &scene.node, None, false).unwrap().node;
    assert_eq!(node.left_out.keys().collect::<Vec<_>>(), ["pod-b"]);
    for text in [&refused.to_string(), &node.left_out["pod-b"]] {
        let parts = ["pod-b", "port of bridge br0", "eBPF"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
    for v6 in V4_AND_V6 {
        assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outbound|outside|x");
        assert_eq!(answer(&scene.outside, web(POD, v6)), "inbound|pod|x");
    }
    let mut config = scene.config(&[(PROXY, 1), (SECOND, 2)], "");
    config.leave_out = true;
    let refused = compare(&config, &scene.node, None).unwrap_err().to_string();
    assert!(refused.contains("proxy zt-3"), "{refused}");
    config.proxies[1].ready = false;
    assert!(compare(&config, &scene.node, None).unwrap().is_empty());
}
