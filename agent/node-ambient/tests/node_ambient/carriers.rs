//! The kind of links that carries first packets, without a setting and with one that the kernel does not support.

use crate::before_routing::{CAPTURED, answers, run};
use crate::carrier;
use crate::scene::{OUTSIDE, POD, PROXY, Scene, Servers, ask, connect, inside};
use std::net::SocketAddr;
use weir_netlink::Netns;
use weir_netlink::route::Routing;
use weir_node_ambient::{Carrier, CarrierChoice, apply, compare, remove};

/// Whether the kernel creates such links, tried in an empty namespace.
fn is_made(kind: CarrierChoice) -> bool {
    let netns = Netns::create().unwrap();
    kind.try_in(&Routing::open_in(&netns).unwrap()).is_ok()
}

fn word(kind: CarrierChoice) -> &'static str {
    match kind {
        CarrierChoice::Geneve => "geneve",
        CarrierChoice::Vxlan => "vxlan",
        CarrierChoice::Veth => "veth",
        CarrierChoice::Auto => "auto",
    }
}

// matrix: every; variants no-nftables no-geneve
#[test]
fn without_a_setting_it_is_the_first_that_the_kernel_makes() {
    let Some(scene) = Scene::build() else { return };
    let expected = CarrierChoice::ORDER.into_iter().find(|kind| is_made(*kind));
    let _servers = Servers::start(&scene);
    let config = scene.config(&[(PROXY, 1)], "");
    let applied = apply(&config, &scene.node, None, false).unwrap();
    let chosen = match applied.node.carrier {
        Carrier::Geneve(_) => CarrierChoice::Geneve,
        Carrier::Vxlan(_) => CarrierChoice::Vxlan,
        Carrier::Veth => CarrierChoice::Veth,
    };
    assert_eq!(Some(chosen), expected);
    let to = SocketAddr::new(inside(OUTSIDE, false), 8080);
    let answer = ask(&mut connect(&scene.pod, to).unwrap(), "x").unwrap();
    assert_eq!(answer, "outbound|outside|x");
}

/// The plan already contains the refusal.
// matrix: variants no-geneve
#[test]
fn a_kind_that_the_kernel_does_not_make_is_refused_before_anything_is_written() {
    let Some(scene) = Scene::build() else { return };
    let before = links_and_rules(&scene);
    for kind in CarrierChoice::ORDER {
        let config = scene.config(&[(PROXY, 1)], &carrier(word(kind)));
        let planned = compare(&config, &scene.node, None);
        assert_eq!(planned.is_ok(), is_made(kind), "{kind:?}: {planned:?}");
        if let Err(e) = planned {
            assert!(
                e.is_unsupported() && e.to_string().contains(kind.words()),
                "{e}"
            );
            let applied = apply(&config, &scene.node, None, false);
            assert_eq!(applied.unwrap_err().to_string(), e.to_string());
            assert_eq!(links_and_rules(&scene), before);
        }
    }
}

/// Each kind replaces each other one, also if the previous kind's links are left in the proxy's namespace.
// matrix: newest
#[test]
fn one_kind_follows_another() {
    let kinds = CarrierChoice::ORDER
        .into_iter()
        .filter(|kind| is_made(*kind));
    let kinds: Vec<&str> = kinds.map(word).collect();
    for first in &kinds {
        for second in kinds.iter().filter(|second| *second != first) {
            for clean in [false, true] {
                let Some(scene) = Scene::build() else { return };
                let _servers = Servers::start(&scene);
                let ways = [
                    (&scene.pod, OUTSIDE, "outbound|outside|x"),
                    (&scene.outside, POD, "inbound|pod|x"),
                ];
                for kind in [first, second] {
                    let config = scene.config(&[(PROXY, 1)], &carrier(kind));
                    apply(&config, &scene.node, None, false).unwrap();
                    let left = compare(&config, &scene.node, None).unwrap();
                    assert!(left.is_empty(), "{first} {second}: {left:?}");
                    for (from, to, expected) in ways {
                        let to = SocketAddr::new(inside(to, false), 8080);
                        let answer = ask(&mut connect(from, to).unwrap(), "x").unwrap();
                        assert_eq!(answer, expected, "{first} {second}");
                    }
                    if clean && kind == first {
                        // Without the configuration, the proxy's side stays.
                        remove(&scene.node, None).unwrap();
                    }
                }
            }
        }
    }
}

/// Links of different kinds do not share a UDP port; that of a bridge of OVN is 6081.
// matrix: newest
#[test]
fn tunnels_have_another_port_than_foreign_ones_of_another_kind() {
    for (own, foreign) in [("vxlan", "geneve"), ("geneve", "vxlan")] {
        let Some(scene) = Scene::build() else { return };
        let add = format!("link add other type {foreign} id 7 remote 192.0.2.1 dstport 6081");
        let routing = Routing::open_in(&scene.node).unwrap();
        if !CarrierChoice::ORDER[..2].iter().all(|kind| is_made(*kind)) {
            return println!("skipped: this kernel has not both kinds of tunnels");
        }
        if run(&scene, "ip", &add).is_none() {
            return;
        }
        routing
            .set_up(routing.link("other").unwrap().index)
            .unwrap();
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], &carrier(own));
        apply(&config, &scene.node, None, false).unwrap();
        let left = compare(&config, &scene.node, None).unwrap();
        assert!(left.is_empty(), "{own}: {left:?}");
        assert_eq!(answers(&scene, false), CAPTURED, "{own}");
    }
}

/// The objects that a change creates first.
fn links_and_rules(scene: &Scene) -> String {
    let routing = Routing::open_in(&scene.node).unwrap();
    let links = routing.links().unwrap().into_iter().map(|link| link.name);
    format!(
        "{:?} {:?}",
        links.collect::<Vec<_>>(),
        routing.rules().unwrap()
    )
}
