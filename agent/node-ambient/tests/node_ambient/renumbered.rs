//! Changes of the configuration in force, while pods and the node connect: other numbers, and the first proxy.

use crate::before_routing::{CAPTURED, answers, run};
use crate::scene::{OUTSIDE, POD, PROXY, Scene, Servers, ask, connect, inside};
use crate::{carrier, each, state, up};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_netlink::Netns;
use weir_node_ambient::{Config, apply, compare, remove};

/// Other numbers of policy rules, tables and marks; the last ones are the default.
const NUMBERS: [&str; 4] = [
    r#", "routing": {"priority": 200}"#,
    TABLES,
    r#", "marks": {"outbound": 4096, "skip": 8192, "conn_skip": 8200, "proxy": 8196, "proxy_return": 1024, "second": 16384}"#,
    "",
];
const TABLES: &str = r#", "routing": {"inbound_table": 200, "outbound_table": 201, "proxy_table": 202, "second_table": 203}"#;

/// Connects again and again while `change` runs, and returns the answers that differ from the expected one.
fn during(change: impl FnOnce(), (from, to): (&Netns, u8), expected: &str) -> BTreeSet<String> {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let clients = [false, true].map(|v6| {
            let is_done = &is_done;
            threads.spawn(move || {
                let to = SocketAddr::new(inside(to, v6), 8080);
                let mut others = BTreeSet::new();
                while !is_done.load(Ordering::Relaxed) {
                    let said = connect(from, to).and_then(|mut stream| ask(&mut stream, "x"));
                    let said = said.unwrap_or_else(|e| e.to_string());
                    others.extend((said != expected).then(|| format!("{to}: {said}")));
                }
                others
            })
        });
        change();
        is_done.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .flat_map(|client| client.join().unwrap())
            .collect()
    })
}

fn applied(scene: &Scene, config: &Config, engine: weir_cni::compile::Engine) {
    apply(config, &scene.node, Some(engine), false).unwrap();
    let left = compare(config, &scene.node, Some(engine)).unwrap();
    assert!(left.is_empty(), "{:?} {:?}", left.host, left.proxy);
}

/// New connections of the pod and open ones stay captured.
#[test]
fn other_numbers_take_effect_without_a_packet_past_the_proxy() {
    each(&["veth"], |scene, engine, name| {
        let _servers = Servers::start(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        let [outbound, _] = CAPTURED;
        let mut open = [false, true].map(|v6| {
            let to = SocketAddr::new(inside(OUTSIDE, v6), 8080);
            connect(&scene.pod, to).unwrap()
        });
        let change = || {
            for more in [NUMBERS; 4].concat() {
                let more = format!("{more}{}", carrier(name));
                applied(scene, &scene.config(&[(PROXY, 1)], &more), engine);
                for stream in &mut open {
                    assert_eq!(ask(stream, "x").unwrap(), outbound, "{more}");
                }
            }
        };
        let by_pod = || {
            let others = during(change, (&scene.pod, OUTSIDE), outbound);
            assert!(others.is_empty(), "{others:?}");
        };
        let others = during(by_pod, (&scene.node, POD), "pod|x");
        assert!(others.is_empty(), "{others:?}");
    });
}

/// Tables and marks that are in force with another meaning.
const REUSED: [(&str, &str); 4] = [
    (
        r#", "routing": {"inbound_table": 101, "outbound_table": 102, "proxy_table": 103, "second_table": 104}"#,
        "table 10",
    ),
    (
        r#", "routing": {"inbound_table": 99, "outbound_table": 100, "proxy_table": 101, "second_table": 102}"#,
        "table 10",
    ),
    (
        r#", "marks": {"outbound": 512, "skip": 256, "conn_skip": 288, "proxy": 272}"#,
        "mark 0x",
    ),
    (
        r#", "marks": {"outbound": 4096, "skip": 8192, "conn_skip": 8448, "proxy": 8196, "proxy_return": 1024, "second": 16384}"#,
        "mark 0x100 is in force for connections of pods",
    ),
];

#[test]
fn numbers_that_are_in_force_for_something_else_are_refused() {
    each(&["veth"], |scene, engine, name| {
        let _servers = Servers::start(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        let before = state(scene);
        for (more, reason) in REUSED {
            let config = scene.config(&[(PROXY, 1)], &format!("{more}{}", carrier(name)));
            let refused = apply(&config, &scene.node, Some(engine), true).unwrap_err();
            assert!(refused.to_string().contains(reason), "{more}: {refused}");
            assert_eq!(state(scene), before, "{more}");
        }
        for v6 in [false, true] {
            assert_eq!(answers(scene, v6), CAPTURED);
        }
        remove(&scene.node, None).unwrap();
        let (more, _) = REUSED[0];
        let config = scene.config(&[(PROXY, 1)], &format!("{more}{}", carrier(name)));
        applied(scene, &config, engine);
        assert_eq!(answers(scene, false), CAPTURED);
    });
}

/// A foreign route takes the place of one in the middle of the change.
#[test]
fn other_numbers_that_cannot_take_effect_leave_the_pods_captured() {
    each(&["veth"], |scene, engine, name| {
        let _servers = Servers::start(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        let route = |verb: &str| {
            let pod = inside(POD, false);
            let text = format!("route {verb} unreachable {pod} metric 4294967295 table 200");
            run(scene, "ip", &text)
        };
        if route("add").is_none() {
            return;
        }
        let more = format!("{TABLES}{}", carrier(name));
        let config = scene.config(&[(PROXY, 1)], &more);
        let error = apply(&config, &scene.node, Some(engine), false).unwrap_err();
        assert!(error.to_string().contains("table 200"), "{error}");
        for v6 in [false, true] {
            assert_eq!(answers(scene, v6), CAPTURED);
        }
        route("delete");
        applied(scene, &config, engine);
        for v6 in [false, true] {
            assert_eq!(answers(scene, v6), CAPTURED);
        }
    });
}

/// Probes of the node reach the pod while a proxy appears and disappears, and while the pod leaves and joins.
#[test]
fn the_node_reaches_its_pods_while_the_first_proxy_appears() {
    each(&["vxlan", "veth"], |scene, engine, name| {
        let _servers = Servers::start(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        let change = || {
            let (open, closed) = (
                scene.config(&[(PROXY, 1)], &carrier(name)),
                scene.config(&[], &carrier(name)),
            );
            let mut without_pods = open.clone();
            without_pods.pods.clear();
            for config in [&closed, &open, &without_pods, &open].repeat(2) {
                applied(scene, config, engine);
            }
        };
        let others = during(change, (&scene.node, POD), "pod|x");
        assert!(others.is_empty(), "{others:?}");
    });
}
