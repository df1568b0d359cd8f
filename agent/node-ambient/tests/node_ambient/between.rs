//! Connections between two enrolled pods that the node translates, as kube-proxy does, and connections of pods to the proxy itself.

use crate::bridge::switched_frames_pass_rules;
use crate::dnat::{Entries, Way, translates, translates_by_any};
use crate::ebpf::{answer, applied, builds, web};
use crate::enrolled::{excluding, with_second};
use crate::leaks::frames;
use crate::scene::{
    OUTSIDE, POD, PROXY, SECOND, Scene, Servers, address, ask, connect, connects, inside,
};
use crate::unlisted::{FURTHER, SHORT, add_addresses, connect_from, has_come};
use crate::{each, up};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use weir_cni::compile::Engine;
use weir_node_ambient::Config;
use weir_testing::BpfFs;

const VETH: &str = r#", "carrier": "veth""#;
/// A port of the node that leads to the second pod.
const PORT: u16 = 30_080;

/// A service that leads to the second pod.
fn service(v6: bool) -> SocketAddr {
    let address: IpAddr = match v6 {
        false => Ipv4Addr::new(10, 96, 0, 2).into(),
        true => Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, 2).into(),
    };
    SocketAddr::new(address, 80)
}

fn at_node(v6: bool) -> SocketAddr {
    SocketAddr::new(address(OUTSIDE, v6, 1), PORT)
}

/// The same port at the address by which pods of a bridge reach the node.
fn at_router(v6: bool) -> SocketAddr {
    SocketAddr::new(address(POD, v6, 1), PORT)
}

/// All destinations that the node translates.
fn entries(v6: bool) -> [SocketAddr; 3] {
    [at_node(v6), at_router(v6), service(v6)]
}

/// Translates with this engine. Prints the reason and returns false if the kernel lacks it.
fn translated(scene: &Scene, engine: Engine) -> bool {
    translates(scene, engine, Way::Port, |v6| to(v6, inside(SECOND, v6)))
}

/// All of them become the application's port at this address.
fn to(v6: bool, address: IpAddr) -> Entries {
    let to = SocketAddr::new(address, 8080);
    entries(v6).map(|entry| (entry, to)).to_vec()
}

/// Both pods are enrolled. The first one excludes `of_first`, and all pods exclude `of_all`.
fn both(scene: &Scene, of_first: &str, of_all: &str) -> Config {
    let more = format!(r#"{VETH}, "exclude": {{{of_all}}}"#);
    let config = scene.config(&[(PROXY, 1)], &more);
    with_second(excluding(config, of_first), scene)
}

const NETWORKS: &str = r#""peers": ["10.96.0.0/16", "fd96::/16"]"#;

/// The exclusions of the first pod, those of all pods, and the receiver of the first pod's connections to the service, by programs.
///
/// A connection that the second pod does not exclude is captured on its way there. The proxy only gets the translated destination, which
/// the first pod may exclude or not.
const EXCLUDED: [(&str, &str, &str); 4] = [
    (r#""outbound_ports": [80]"#, "", "outbound"),
    (NETWORKS, "", "outbound"),
    (r#""peers": ["0.0.0.0/0", "::/0"]"#, "", "inbound"),
    ("", NETWORKS, "outbound"),
];

fn says(scene: &Scene, to: SocketAddr, expected: &str, case: &str) {
    assert_eq!(answer(&scene.pod, to), expected, "{to}: {case}");
}

// matrix: every
#[test]
fn programs_capture_what_the_node_translates_between_pods() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        servers.echo(&scene.second, "neighbour");
        if !translates_by_any(&scene, Way::Port, |v6| to(v6, inside(SECOND, v6))) {
            return;
        }
        applied(&scene, &mounted, &both(&scene, "", ""));
        for v6 in [false, true] {
            let said = "outbound|neighbour|x";
            says(&scene, at_node(v6), said, "a port of the node");
            says(&scene, web(SECOND, v6), said, "the pod");
            // The proxy forwards the connection to the service, which the node translates, so that it is captured once more.
            let said = "outbound|outbound|neighbour|x";
            says(&scene, service(v6), said, "a service");
        }
        for (of_first, of_all, by) in EXCLUDED {
            applied(&scene, &mounted, &both(&scene, of_first, of_all));
            let case = format!("{of_first} {of_all}");
            for v6 in [false, true] {
                for to in [service(v6), at_node(v6)] {
                    says(&scene, to, &format!("{by}|neighbour|x"), &case);
                }
            }
        }
    }
}

// matrix: every
#[test]
fn rules_capture_what_the_node_translates_between_pods() {
    each(&["veth"], |scene, engine, _| {
        let servers = Servers::start(scene);
        servers.echo(&scene.second, "neighbour");
        if !translated(scene, engine) || !up(scene, engine, VETH) {
            return;
        }
        for (of_first, of_all, _) in EXCLUDED {
            let config = both(scene, of_first, of_all);
            weir_node_ambient::apply(&config, &scene.node, Some(engine), false).unwrap();
            let left = weir_node_ambient::compare(&config, &scene.node, Some(engine)).unwrap();
            assert!(left.is_empty(), "{:#?}", left.host);
            // Legacy tables have no hook after the translation that can still change the route.
            let said = match engine {
                Engine::Nft => "inbound|neighbour|x",
                Engine::Xtables => "neighbour|x",
            };
            let case = format!("{of_first} {of_all}");
            for v6 in [false, true] {
                says(scene, service(v6), said, &case);
            }
        }
        // If all pods exclude the networks of pods, nothing is captured.
        let pods = r#""peers": ["10.1.0.0/16", "10.96.0.0/16", "fd00:1::/32", "fd96::/16"]"#;
        let config = both(scene, "", pods);
        weir_node_ambient::apply(&config, &scene.node, Some(engine), false).unwrap();
        for v6 in [false, true] {
            says(scene, service(v6), "neighbour|x", "all");
        }
    });
}

fn captured_by_rules(scene: &Scene, config: &Config) {
    let engine = Some(Engine::Nft);
    weir_node_ambient::apply(config, &scene.node, engine, false).unwrap();
    let left = weir_node_ambient::compare(config, &scene.node, engine).unwrap();
    assert!(left.is_empty(), "{:#?}", left.host);
}

/// Open connections of the first pod continue if switched frames start or stop passing the IP rules.
fn goes_on(scene: &Scene, called: bool) {
    let all = [false, true].map(entries).concat();
    let mut open: Vec<_> = all
        .iter()
        .map(|to| connect(&scene.pod, *to).unwrap_or_else(|e| panic!("{to}: {e}")))
        .collect();
    for (called, text) in [(called, "a"), (!called, "b")] {
        switched_frames_pass_rules(scene, called);
        for (stream, to) in open.iter_mut().zip(&all) {
            let said = ask(stream, text).unwrap_or_else(|e| panic!("{to}, {called}: {e}"));
            assert_eq!(said, format!("outbound|neighbour|{text}"), "{to}, {called}");
        }
    }
}

/// The bridge itself forwards frames that `br_netfilter` translates, to the proxy and past it.
#[test]
fn rules_capture_what_the_node_translates_between_ports_of_a_bridge() {
    for called in [true, false] {
        let Some(scene) = Scene::bridged() else {
            return;
        };
        let is_so = switched_frames_pass_rules(&scene, called);
        let servers = Servers::start(&scene);
        servers.echo(&scene.second, "neighbour");
        if !translated(&scene, Engine::Nft) {
            return;
        }
        let all_say = |expected: &str, case: &str| {
            for to in [false, true].map(entries).concat() {
                says(&scene, to, expected, &format!("{case}, {called}"));
            }
        };
        if called && is_so {
            all_say("neighbour|x", "without rules");
        }
        if !up(&scene, Engine::Nft, VETH) {
            return;
        }
        // The second pod is not enrolled.
        all_say("outbound|neighbour|x", "nothing excluded");
        let mut first = both(&scene, NETWORKS, "");
        first.pods.truncate(1);
        captured_by_rules(&scene, &first);
        for v6 in [false, true] {
            says(&scene, service(v6), "neighbour|x", "excluded");
        }
        // The second pod is enrolled.
        for (of_first, of_all, _) in EXCLUDED {
            captured_by_rules(&scene, &both(&scene, of_first, of_all));
            let case = format!("{of_first} {of_all}, {called}");
            for v6 in [false, true] {
                says(&scene, service(v6), "inbound|neighbour|x", &case);
            }
        }
        let pods = r#""peers": ["10.1.0.0/16", "10.96.0.0/16", "fd00:1::/32", "fd96::/16"]"#;
        captured_by_rules(&scene, &both(&scene, "", pods));
        for v6 in [false, true] {
            says(&scene, service(v6), "neighbour|x", "all");
        }
        captured_by_rules(&scene, &both(&scene, "", ""));
        all_say("outbound|neighbour|x", "nothing excluded");
        goes_on(&scene, called);
        switched_frames_pass_rules(&scene, called);
        no_unlisted_address_is_translated_past_the_proxy(&scene, &servers);
    }
}

/// No connection from an unlisted address, or to one, bypasses the proxy by a translation.
fn no_unlisted_address_is_translated_past_the_proxy(scene: &Scene, servers: &Servers) {
    add_addresses(scene);
    servers.drain();
    for v6 in [false, true] {
        let own = address(POD, v6, FURTHER);
        let refused = connect_from(&scene.pod, own, at_router(v6), SHORT);
        assert!(refused.is_err(), "from {own}");
        captured_by_rules(scene, &scene.config(&[(PROXY, 1)], VETH));
        assert!(translates(scene, Engine::Nft, Way::Port, |v6| {
            to(v6, address(POD, v6, FURTHER))
        }));
        let frames = frames(&scene.pod);
        assert!(!connects(&scene.second, at_router(v6)), "to {own}");
        assert!(!has_come(&frames, inside(SECOND, v6)), "to {own}");
        captured_by_rules(scene, &both(scene, "", ""));
        assert!(translated(scene, Engine::Nft));
    }
    assert_eq!(servers.drain(), []);
}

/// The bridge forwards the proxy's answers: if they pass the IP rules, they are translated back.
#[test]
fn programs_capture_what_the_node_translates_between_ports_of_a_bridge() {
    let has_links = || weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok();
    for mounted in BpfFs::each(has_links) {
        let Some(scene) = Scene::bridged() else {
            return;
        };
        let servers = Servers::start(&scene);
        servers.echo(&scene.second, "neighbour");
        if !switched_frames_pass_rules(&scene, true) || !translated(&scene, Engine::Nft) {
            return println!("skipped: frames that the bridge switches are not translated");
        }
        for v6 in [false, true] {
            says(&scene, at_router(v6), "neighbour|x", "without programs");
        }
        applied(&scene, &mounted, &both(&scene, "", ""));
        for v6 in [false, true] {
            for to in [at_node(v6), at_router(v6)] {
                says(&scene, to, "outbound|neighbour|x", "a port of the node");
            }
            let said = "outbound|outbound|neighbour|x";
            says(&scene, service(v6), said, "a service");
        }
        for (of_first, of_all, by) in EXCLUDED {
            applied(&scene, &mounted, &both(&scene, of_first, of_all));
            let case = format!("{of_first} {of_all}");
            for to in [false, true].map(entries).concat() {
                says(&scene, to, &format!("{by}|neighbour|x"), &case);
            }
        }
    }
}

/// For example to scrape its metrics.
// matrix: every
#[test]
fn a_pod_reaches_the_proxy_itself() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        servers.echo(&scene.proxy, "proxy");
        for dns in ["false", "true"] {
            let more = format!(r#", "dns_capture": {dns}"#);
            applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], &more));
            for v6 in [false, true] {
                says(&scene, web(PROXY, v6), "proxy|x", "its own address");
                assert_eq!(answer(&scene.proxy, web(POD, v6)), "pod|x");
                says(&scene, web(OUTSIDE, v6), "outbound|outside|x", "another");
            }
        }
        // Without an active proxy, connections to other addresses fail.
        applied(&scene, &mounted, &scene.config(&[], ""));
        assert!(!crate::connects(&scene.pod, web(OUTSIDE, false)));
    }
}
