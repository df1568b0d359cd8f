//! Inbound traffic of the pod.
// matrix: variants 6.12-rt

use serde_json::json;
use weir_cni::compile::Engine;
use weir_demo::{Mode, Outcome, Place, Receiver, Stage};

use crate::support::{CASES, FAMILIES, REDIRECT, config, each, lab, program_for, tcp};

#[test]
fn inbound_is_captured_with_its_destination_and_its_source() {
    each(&CASES, json!({}), |pod| {
        for family in FAMILIES {
            let to = pod.at(Place::Pod, family, 8080);
            let flow = tcp("client to pod", Place::Client, to);
            let outcome = pod.expect(flow, Receiver::ProxyInbound);
            let Outcome::Received { local, source, .. } = outcome else {
                unreachable!()
            };
            assert_eq!(source.ip(), pod.lab.address(Place::Client, family));
            match pod.case.mode {
                Mode::Redirect => assert_eq!(local.port(), 15006),
                // TPROXY rewrites nothing: the listener's socket has the destination address itself.
                Mode::Tproxy => assert_eq!(local, to),
            }
            // A port without a listener is captured as well.
            let nobody = pod.at(Place::Pod, family, 4321);
            pod.expect(
                tcp("to no listener", Place::Client, nobody),
                Receiver::ProxyInbound,
            );
        }
    });
}

/// Without a listener, and with a socket that is not transparent: while the proxy starts, and after it has crashed.
#[test]
fn what_no_transparent_proxy_takes_does_not_reach_the_application() {
    for engine in [Engine::Nft, Engine::Xtables] {
        for port in ["15006", "15099"] {
            let Some(lab) = lab() else { return };
            let config = config(Mode::Tproxy, json!({ "inbound_capture_port": port }));
            // The engine is chosen automatically.
            program_for(lab.netns(Place::Pod), None, engine, &config);
            let stage = Stage::open(&lab, Mode::Redirect).expect("everybody in place");
            for family in FAMILIES {
                let at = |port| (lab.address(Place::Pod, family), port).into();
                let flow = tcp("captured", Place::Client, at(8080));
                let outcome = stage.send(&flow).expect("sent");
                assert!(
                    matches!(&outcome, Outcome::Lost(_)),
                    "{flow}: {outcome}, {engine}, {port}"
                );
                let outcome = stage.send(&tcp("excluded", Place::Client, at(15020)));
                let by = outcome.expect("sent").by();
                assert_eq!(by, Some(Receiver::Application), "{engine}, {port}");
            }
        }
    }
}

#[test]
fn excluded_inbound_ports_reach_the_application() {
    each(
        &CASES,
        json!({ "inbound_ports_exclude": "9090,15020" }),
        |pod| {
            for family in FAMILIES {
                for port in [9090, 15020] {
                    let to = pod.at(Place::Pod, family, port);
                    pod.expect(tcp("excluded", Place::Client, to), Receiver::Application);
                }
                let to = pod.at(Place::Pod, family, 8080);
                pod.expect(
                    tcp("not excluded", Place::Client, to),
                    Receiver::ProxyInbound,
                );
            }
        },
    );
}

#[test]
fn only_included_inbound_ports_are_captured() {
    each(
        &REDIRECT,
        json!({ "inbound_ports_include": "8080" }),
        |pod| {
            for family in FAMILIES {
                let to = pod.at(Place::Pod, family, 8080);
                pod.expect(tcp("included", Place::Client, to), Receiver::ProxyInbound);
                let to = pod.at(Place::Pod, family, 9090);
                pod.expect(
                    tcp("not included", Place::Client, to),
                    Receiver::Application,
                );
            }
        },
    );
}

#[test]
fn the_tunnel_port_is_left_alone() {
    each(&REDIRECT, json!({}), |pod| {
        for family in FAMILIES {
            let to = pod.at(Place::Pod, family, 15008);
            pod.expect(tcp("tunnel", Place::Client, to), Receiver::Application);
        }
    });
}

#[test]
fn excluded_interfaces_are_left_alone_both_ways() {
    each(&CASES, json!({ "exclude_interfaces": "net1" }), |pod| {
        let net1 = pod.lab.attach("net1", Place::Server, 9).expect("net1");
        for family in FAMILIES {
            let to = (net1.pod(family), 8080).into();
            pod.expect(tcp("in at net1", Place::Server, to), Receiver::Application);
            let to = (net1.peer(family), 80).into();
            pod.expect(tcp("out at net1", Place::Pod, to), Receiver::Server);
            let to = pod.at(Place::Pod, family, 8080);
            pod.expect(tcp("in at eth0", Place::Client, to), Receiver::ProxyInbound);
        }
    });
}

#[test]
fn what_comes_from_a_virtual_interface_is_taken_as_outbound() {
    each(
        &REDIRECT,
        json!({ "reroute_virtual_interfaces": "k6t-a,k6t-b" }),
        |pod| {
            let vm = pod.lab.attach("k6t-a", Place::Client, 8).expect("k6t-a");
            for family in FAMILIES {
                // The guest's source address belongs to that interface, so it connects to the pod's address there.
                let to = (vm.pod(family), 80).into();
                let flow = tcp("guest", Place::Client, to).source((vm.peer(family), 0).into());
                pod.expect(flow, Receiver::ProxyOutbound);
                let to = pod.at(Place::Pod, family, 8080);
                pod.expect(tcp("in at eth0", Place::Client, to), Receiver::ProxyInbound);
            }
        },
    );
}
