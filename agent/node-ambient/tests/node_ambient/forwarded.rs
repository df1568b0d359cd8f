//! Connections to an enrolled pod that the node translates: NodePort, hostPort, and masqueraded ones.
//!
//! Their clients are not the node, so they go to the proxy although their source may be the node's address. Connections of the node's own
//! processes do not.

use crate::dnat::{Entries, Way, translates, translates_by_any};
use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{
    LONG, OUTSIDE, PATIENCE, POD, PROXY, Scene, Servers, address, ask, connect, socket,
};
use crate::{carrier, each, up};
use std::net::SocketAddr;
use weir_testing::BpfFs;

/// Ports of the node that lead to the pod, and to the server outside.
const TO_POD: u16 = 30_080;
const TO_OUTSIDE: u16 = 30_081;

const WAYS: [Way; 3] = [Way::Port, Way::MasqueradedPort, Way::Masqueraded];

/// The destination of a client outside.
fn entry(way: Way, v6: bool) -> SocketAddr {
    match way {
        Way::Masqueraded => web(POD, v6),
        _ => at_node(v6, TO_POD),
    }
}

fn at_node(v6: bool, port: u16) -> SocketAddr {
    SocketAddr::new(address(OUTSIDE, v6, 1), port)
}

/// Translations to the pod, and to the server outside.
fn entries(v6: bool) -> Entries {
    let of = |(port, place)| (at_node(v6, port), web(place, v6));
    [(TO_POD, POD), (TO_OUTSIDE, OUTSIDE)].map(of).to_vec()
}

/// Connections of other hosts are the proxy's, in both directions; those of the node's own processes are not.
fn is_captured(scene: &Scene, servers: &Servers, way: Way) {
    for v6 in [false, true] {
        let entry = entry(way, v6);
        servers.drain();
        let mut open = connect(&scene.outside, entry).unwrap_or_else(|e| panic!("{entry}: {e}"));
        for text in ["a", "b"] {
            let said = ask(&mut open, text).unwrap_or_else(|e| panic!("{entry}: {e}"));
            assert_eq!(said, format!("inbound|pod|{text}"), "{entry}");
        }
        let seen = servers.seen.recv_timeout(PATIENCE).unwrap();
        assert_eq!((seen.who, seen.to), ("inbound", web(POD, v6)));
        // While the connection is open, probes still reach the pod itself, with the source address that masqueraded connections have as
        // well.
        assert_eq!(answer(&scene.node, web(POD, v6)), "pod|x");
        assert_eq!(ask(&mut open, "c").unwrap(), "inbound|pod|c", "{entry}");
    }
}

// matrix: every
#[test]
fn rules_capture_what_the_node_translates_for_others() {
    for way in WAYS {
        each(&crate::CARRIERS, |scene, engine, name| {
            let servers = Servers::start(scene);
            if !translates(scene, engine, way, entries) {
                return;
            }
            for v6 in [false, true] {
                let said = answer(&scene.outside, entry(way, v6));
                assert_eq!(said, "pod|x", "{way:?} works without rules");
            }
            if !up(scene, engine, &carrier(name)) {
                return;
            }
            println!("{way:?}");
            is_captured(scene, &servers, way);
            for v6 in [false, true] {
                // Connections of an enrolled pod that the node translates are captured as well.
                if way != Way::Masqueraded {
                    let said = answer(&scene.pod, at_node(v6, TO_OUTSIDE));
                    assert_eq!(said, "outbound|outside|x", "{way:?}");
                }
                let refused = connect(&scene.pod, at_node(v6, 9)).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
            }
        });
    }
}

// matrix: every
#[test]
fn programs_capture_what_the_node_translates_for_others() {
    for way in WAYS {
        for (scene, mounted) in builds() {
            let servers = Servers::start(&scene);
            if !translates_by_any(&scene, way, entries) {
                return;
            }
            for v6 in [false, true] {
                let said = answer(&scene.outside, entry(way, v6));
                assert_eq!(said, "pod|x", "{way:?} works without programs");
            }
            applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
            println!("{way:?}");
            is_captured(&scene, &servers, way);
            // Connections of the node's own processes are not captured either, and a pod receives its answers.
            for v6 in [false, true] {
                if way != Way::Masqueraded {
                    assert_eq!(answer(&scene.node, entry(way, v6)), "pod|x", "{way:?}");
                    let said = answer(&scene.pod, at_node(v6, TO_OUTSIDE));
                    assert_eq!(said, "outside|x", "{way:?}");
                }
                let refused = connect(&scene.pod, at_node(v6, 9)).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
            }
        }
    }
}

/// The number of first packets that were captured on their way to a pod.
fn inbound(scene: &Scene, mounted: &BpfFs) -> u64 {
    let counters = weir_ebpf::node::Node::of(&scene.node, &bpffs(mounted)).counters();
    let mut counters = counters.unwrap().into_iter();
    counters
        .find(|(name, _)| name.starts_with("inbound"))
        .unwrap()
        .1
}

/// On a bridge, the first packet of another pod may still belong to that pod's socket when it reaches this one.
#[test]
fn programs_capture_what_another_pod_sends_with_the_address_of_the_node() {
    let has_links = || weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok();
    for mounted in BpfFs::each(has_links) {
        let Some(scene) = Scene::bridged() else {
            return;
        };
        let servers = Servers::start(&scene);
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        for v6 in [false, true] {
            let from = SocketAddr::new(address(POD, v6, 1), 0);
            let connect = || {
                let socket = socket(web(POD, v6), true);
                socket.bind(&from.into()).unwrap();
                let limit = std::time::Duration::from_millis(100);
                drop(socket.connect_timeout(&web(POD, v6).into(), limit));
            };
            // The first packet may be lost while the neighbour is resolved.
            let begun = std::time::Instant::now();
            let before = inbound(&scene, &mounted);
            while inbound(&scene, &mounted) == before {
                assert!(begun.elapsed() < LONG, "it is not captured");
                scene.second.run(connect).unwrap();
            }
        }
        // The node resets this connection, which is not its own, so the application receives none.
        assert!(servers.drain().iter().all(|seen| seen.who != "pod"));
        assert_eq!(answer(&scene.node, web(POD, false)), "pod|x");
    }
}
