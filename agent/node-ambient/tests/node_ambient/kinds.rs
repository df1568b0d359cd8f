//! Pods whose packets do not pass the node's namespace: ipvlan and macvlan are refused by name.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{OUTSIDE, POD, PROXY, Scene, Servers, set, wait_for_own_addresses};
use crate::{state, up};
use std::net::IpAddr;
use weir_cni::compile::Engine;
use weir_netlink::route::{Link, LinkKind, Route, Routing};
use weir_node_ambient::{Config, compare, ebpf};
use weir_testing::{BpfFs, lacks};

/// The kinds, with the first kernel that has each.
const KINDS: [(&str, &str); 2] = [("ipvlan", "3.19"), ("macvlan", "2.6.23")];
const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 4, 77));

/// Adds a link of this kind to the node's link to the outside.
///
/// The new link is in a pod, or in the node's namespace with a route, as a plugin creates it for traffic from the node to such pods.
fn add(scene: &Scene, kind: &str, since: &str, is_inside: bool) -> bool {
    let node = Routing::open_in(&scene.node).unwrap();
    let upper = Link {
        lower: Some(node.link("v4").unwrap().index),
        ..Link::new("upper0", LinkKind::plain(kind))
    };
    let netns = if is_inside {
        &scene.second
    } else {
        &scene.node
    };
    match node.add_link(&upper, is_inside.then_some((&scene.second).into())) {
        Err(e) if e.is_unsupported() || e.errno() == Some(95) => {
            lacks::skip(&format!("link {kind}"), since, e);
            return false;
        }
        added => added.unwrap(),
    }
    let there = Routing::open_in(netns).unwrap();
    let index = there.link("upper0").unwrap().index;
    there.set_up(index).unwrap();
    let is_new = match is_inside {
        true => there.add_address(index, ipnet::IpNet::new(ADDRESS, 24).unwrap()),
        false => there.add_route(&Route::unicast(ADDRESS.into(), None, Some(index))),
    };
    assert!(is_new.unwrap());
    true
}

/// A configuration with the pod that can be captured, and another one with the address.
fn config(scene: &Scene, netns: &str) -> Config {
    let mut config = scene.config(&[(PROXY, 1)], "");
    let more = format!(r#"{{"pods": [{{"uid": "pod-b", "addresses": ["{ADDRESS}"]{netns}}}]}}"#);
    let more = Config::from_json(&more, "test").unwrap();
    config.pods.extend(more.pods);
    config
}

fn each(check: impl Fn(&Scene, &str, Config)) {
    for (kind, since) in KINDS {
        for is_inside in [true, false] {
            let Some(scene) = Scene::build() else { return };
            if !add(&scene, kind, since, is_inside) {
                continue;
            }
            let netns = format!(r#", "netns": "{}""#, scene.second.path().display());
            let config = config(&scene, if is_inside { &netns } else { "" });
            check(&scene, kind, config);
        }
    }
}

fn is_named(error: &str, kind: &str) {
    for part in ["pod-b", "upper0", &format!("of kind {kind}")] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn rules_refuse_pods_of_other_kinds_by_name() {
    each(|scene, kind, mut config| {
        let _servers = Servers::start(scene);
        for engine in [Engine::Nft, Engine::Xtables] {
            let before = state(scene);
            let error = weir_node_ambient::apply(&config, &scene.node, Some(engine), true);
            is_named(&error.unwrap_err().to_string(), kind);
            assert_eq!(state(scene), before);
        }
        // If the configuration permits leaving the pod out, the other pods are captured.
        if !up(scene, Engine::Nft, "") {
            return;
        }
        config.leave_out = true;
        let change = compare(&config, &scene.node, Some(Engine::Nft)).unwrap();
        is_named(
            &change.node.left_out["pod-b"].replace("capture ", "pod-b "),
            kind,
        );
        assert!(change.is_empty(), "{:?}", change.host);
        assert_eq!(
            answer(&scene.pod, web(OUTSIDE, false)),
            "outbound|outside|x"
        );
    });
}

#[test]
fn programs_refuse_pods_of_other_kinds_by_name() {
    for mounted in BpfFs::each(|| weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok()) {
        each(|scene, kind, mut config| {
            let _servers = Servers::start(scene);
            let before = state(scene);
            let error = ebpf::apply(&config, &scene.node, &bpffs(&mounted)).unwrap_err();
            is_named(&error.to_string(), kind);
            assert_eq!(state(scene), before);
            let pins = std::fs::read_dir(mounted.path().join("weir/v2"));
            assert_eq!(pins.map_or(0, Iterator::count), 0);
            config.leave_out = true;
            applied(scene, &mounted, &config);
            assert_eq!(
                answer(&scene.pod, web(OUTSIDE, false)),
                "outbound|outside|x"
            );
            assert_eq!(answer(&scene.outside, web(POD, true)), "inbound|pod|x");
            ebpf::remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        });
    }
}

/// No route leads to the pod alone, and its namespace is neither configured nor in the directory of `ip netns`: the error names the pod and
/// the remedy.
#[test]
fn a_pod_that_cannot_be_found_is_named() {
    for mounted in BpfFs::each(|| weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok()) {
        let Some(scene) = Scene::build() else { return };
        let _servers = Servers::start(&scene);
        let mut config = config(&scene, "");
        let before = state(&scene);
        let by_programs = ebpf::apply(&config, &scene.node, &bpffs(&mounted)).unwrap_err();
        let by_rules = weir_node_ambient::apply(&config, &scene.node, Some(Engine::Nft), true);
        for error in [by_programs, by_rules.unwrap_err()] {
            let error = error.to_string();
            for part in ["pod-b", &ADDRESS.to_string(), "give its netns"] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
        assert_eq!(state(&scene), before);
        config.leave_out = true;
        applied(&scene, &mounted, &config);
        assert_eq!(
            answer(&scene.pod, web(OUTSIDE, false)),
            "outbound|outside|x"
        );
        ebpf::remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
    }
}

/// Adds nine interfaces with one address each to the pod and to the configuration.
fn with_ten_interfaces(scene: &Scene, mut config: Config) -> Config {
    let node = Routing::open_in(&scene.node).unwrap();
    let pod = Routing::open_in(&scene.pod).unwrap();
    for number in 1..10 {
        let name = format!("eth{number}");
        node.add_veth(&format!("more{number}"), &name, &scene.pod)
            .unwrap();
        let ends = [(&node, format!("more{number}"), 1), (&pod, name, 10)];
        for (routing, name, last) in ends {
            let index = routing.link(&name).unwrap().index;
            routing.set_up(index).unwrap();
            let net = ipnet::IpNet::new(more(number, last), 24).unwrap();
            routing.add_address(index, net).unwrap();
        }
        config.pods[0].addresses.push(more(number, 10));
    }
    wait_for_own_addresses(&node);
    // The pod's answers leave through eth0.
    set(&scene.node, "ipv4/conf/all/rp_filter", "2");
    config
}

fn more(number: u8, last: u8) -> IpAddr {
    IpAddr::from([10, 2, number, last])
}

fn is_captured_at_all(scene: &Scene) {
    for number in 1..10 {
        let to = std::net::SocketAddr::new(more(number, 10), 8080);
        assert_eq!(answer(&scene.outside, to), "inbound|pod|x", "{to}");
        assert_eq!(answer(&scene.node, to), "pod|x", "{to}");
    }
    assert_eq!(answer(&scene.outside, web(POD, true)), "inbound|pod|x");
    assert_eq!(
        answer(&scene.pod, web(OUTSIDE, false)),
        "outbound|outside|x"
    );
}

#[test]
fn check_7_programs_capture_a_pod_with_ten_interfaces() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let config = with_ten_interfaces(&scene, scene.config(&[(PROXY, 1)], ""));
        applied(&scene, &mounted, &config);
        is_captured_at_all(&scene);
    }
}

#[test]
fn rules_capture_a_pod_with_ten_interfaces() {
    crate::each(&["veth"], |scene, engine, _| {
        let _servers = Servers::start(scene);
        let veth = r#", "carrier": "veth""#;
        if !up(scene, engine, veth) {
            return;
        }
        let config = with_ten_interfaces(scene, scene.config(&[(PROXY, 1)], veth));
        weir_node_ambient::apply(&config, &scene.node, Some(engine), false).unwrap();
        is_captured_at_all(scene);
    });
}
