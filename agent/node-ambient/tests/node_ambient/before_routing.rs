//! Objects that other writers add later and that route packets of pods elsewhere although the desired state is complete: rules that change
//! bits of marks, routes in the tables, and the policy rule for local routes.

use crate::scene::{
    OUTSIDE, POD, PROXY, Scene, Servers, address, ask, connect, connects, inside, tool,
};
use crate::{is_reached_by_udp, state, up};
use std::net::SocketAddr;
use weir_cni::compile::Engine;
use weir_node_ambient::{Collision, Config, apply, compare, remove};

/// Runs a tool. Returns `None` without the tool.
pub(crate) fn run(scene: &Scene, name: &str, text: &str) -> Option<()> {
    let args: Vec<&str> = match name {
        "nft" => vec![text],
        _ => text.split(' ').collect(),
    };
    let run = scene.node.run(|| tool(name, &args)).unwrap()?;
    assert!(run.status.success(), "{name} {text}: {run:?}");
    Some(())
}

/// The answers to a connection of the pod, and to a connection to the pod.
pub(crate) fn answers(scene: &Scene, v6: bool) -> [String; 2] {
    let ways = [(&scene.pod, OUTSIDE), (&scene.outside, POD)];
    ways.map(|(from, to)| {
        let to = SocketAddr::new(inside(to, v6), 8080);
        ask(&mut connect(from, to).unwrap(), "x").unwrap()
    })
}

pub(crate) const CAPTURED: [&str; 2] = ["outbound|outside|x", "inbound|pod|x"];
const PAST: [&str; 2] = ["outside|x", "pod|x"];

/// Checks that the desired state is complete, and returns other findings. `verify` fails for those with `bypasses`.
fn found(scene: &Scene, config: &Config, engine: Engine) -> Vec<Collision> {
    let change = compare(config, &scene.node, Some(engine)).unwrap();
    assert!(change.is_empty(), "{:?} {:?}", change.host, change.proxy);
    change.collisions
}

/// The effect on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// They bypass the proxy.
    Past,
    /// They fail.
    Lost,
    /// They reach the proxy, and weir only reports that bits are shared.
    Captured,
    /// They reach the proxy, and weir reports nothing.
    Nothing,
}
use Then::{Captured, Lost, Nothing, Past};

/// Chains in a table of their own; the bits of the configuration are 0xb70.
const NFT: [(&str, Then); 17] = [
    ("BEFORE meta mark set 0x200; }", Past),
    ("BEFORE meta mark set meta mark or 0x200; }", Past),
    // Cilium sets this mark.
    ("BEFORE meta mark set 0xf00; }", Past),
    ("CONNECTIONS ct mark set 0x220; }", Past),
    ("BEFORE jump other; }", Past),
    ("BEFORE meta l4proto vmap { tcp : goto other }; }", Past),
    ("AFTER meta mark set 0; }", Lost),
    ("AFTER meta mark set meta mark and 0xfffff0ff; }", Lost),
    ("AFTER meta mark set ct mark; }", Lost),
    ("BEFORE meta mark set 0; }", Captured),
    ("AFTER meta mark and 0xf00 == 0x200 counter; }", Captured),
    ("AFTER ct mark 0x220 counter; }", Captured),
    // No packet reaches the chain that sets the mark.
    ("BEFORE counter; }", Captured),
    (
        "chain c { type filter hook postrouting priority 0; meta mark set 0x200; }",
        Captured,
    ),
    // Other bits.
    (
        "AFTER meta mark set meta mark or 0x4000; ct mark set ct mark or 0x80; }",
        Nothing,
    ),
    ("AFTER meta mark set meta mark and 0xfff0ffff; }", Nothing),
    ("AFTER meta mark and 0x4000 == 0x4000 counter; }", Nothing),
];

fn table(text: &str) -> String {
    let hook =
        |priority: i32| format!("chain c {{ type filter hook prerouting priority {priority}; ");
    let text = text.replace("BEFORE ", &hook(-151));
    let text = text.replace("CONNECTIONS ", &hook(-190));
    let text = text.replace("AFTER ", &hook(-149));
    // All texts except those about other bits have this chain beside them.
    let other = match text.contains("other") || text.contains("counter; }") {
        true if !text.contains("0x4000") => "chain other { meta mark set 0x200; };",
        _ => "",
    };
    format!("table inet another {{ {other} {text}; }}")
}

fn check(scene: &Scene, config: &Config, what: &str, then: Then) {
    println!("{what}");
    let found = found(scene, config, Engine::Nft);
    let is_bad = matches!(then, Past | Lost);
    assert_eq!(
        found.iter().any(|c| c.bypasses),
        is_bad,
        "{what}: {found:?}"
    );
    assert_eq!(found.is_empty(), then == Nothing, "{what}: {found:?}");
    match then {
        Past => assert_eq!(answers(scene, false), PAST, "{what}"),
        Lost => {
            let to = SocketAddr::new(inside(OUTSIDE, false), 8080);
            let asked = connect(&scene.pod, to).and_then(|mut there| ask(&mut there, "x"));
            assert!(asked.is_err(), "{what}: {asked:?}");
        }
        Captured | Nothing => assert_eq!(answers(scene, false), CAPTURED, "{what}"),
    }
    // Foreign objects that were added later do not prevent the desired state from staying in force.
    apply(config, &scene.node, Some(Engine::Nft), false).unwrap();
}

#[test]
fn rules_that_change_bits_before_packets_are_routed_are_no_mere_collisions() {
    let Some(scene) = Scene::build() else { return };
    let _servers = Servers::start(&scene);
    if !up(&scene, Engine::Nft, "") {
        return;
    }
    let config = scene.config(&[(PROXY, 1)], "");
    assert_eq!(found(&scene, &config, Engine::Nft), []);
    for (text, then) in NFT {
        if run(&scene, "nft", &table(text)).is_none() {
            return;
        }
        check(&scene, &config, text, then);
        run(&scene, "nft", "delete table inet another");
    }
    assert_eq!(answers(&scene, true), CAPTURED);
}

/// Table, chain with rule, and effect; `-A` precedes the chain.
const LEGACY: [(&str, &str, Then); 5] = [
    (
        "raw",
        "PREROUTING -p tcp -j MARK --set-xmark 0x200/0x200",
        Past,
    ),
    (
        "raw",
        "PREROUTING -p tcp -j MARK --set-xmark 0x0/0x200",
        Captured,
    ),
    (
        "mangle",
        "POSTROUTING -j MARK --set-xmark 0x200/0x0",
        Captured,
    ),
    // The VPC CNI plugin of AWS adds this rule.
    (
        "mangle",
        "PREROUTING -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80",
        Nothing,
    ),
    (
        "nat",
        "PREROUTING -j MARK --set-xmark 0x4000/0x4000",
        Nothing,
    ),
];

#[test]
fn legacy_rules_that_change_bits_before_packets_are_routed_are_no_mere_collisions() {
    let Some(scene) = Scene::build() else { return };
    let _servers = Servers::start(&scene);
    if !up(&scene, Engine::Nft, "") {
        return;
    }
    let config = scene.config(&[(PROXY, 1)], "");
    for (name, rule, then) in LEGACY {
        let verb = |verb: &str| format!("-w -t {name} {verb} {rule}");
        let probe = scene
            .node
            .run(|| tool("iptables-legacy", &["-w", "-t", name, "-S"]));
        match probe.unwrap() {
            Some(run) if run.status.success() => {}
            _ => return println!("skipped: {}", crate::lacking(Engine::Xtables)),
        }
        run(&scene, "iptables-legacy", &verb("-A"));
        check(&scene, &config, rule, then);
        run(&scene, "iptables-legacy", &verb("-D"));
    }
}

/// Routes in the tables of the configuration, and whether the kernel prefers them to weir's routes.
const ROUTES: [(&str, bool); 7] = [
    (
        "-6 route ADD fd00:1:1::a/128 dev v1 metric 1 table 100",
        true,
    ),
    ("-6 route ADD fd00:1:4::/64 dev v4 metric 1 table 101", true),
    ("-4 route ADD 10.1.4.0/24 dev v4 table 101", true),
    ("-4 route ADD 10.1.4.0/24 dev v4 table 102", true),
    ("-4 route ADD throw 10.1.4.0/24 table 101", true),
    // The pod's own route has a longer prefix.
    ("-4 route ADD 10.1.1.0/24 dev v1 table 100", false),
    ("-4 route ADD default dev v4 metric 9 table 101", false),
];

#[test]
fn routes_that_come_before_those_of_the_configuration_are_no_mere_collisions() {
    let Some(scene) = Scene::build() else { return };
    let _servers = Servers::start(&scene);
    if !up(&scene, Engine::Nft, "") {
        return;
    }
    let config = scene.config(&[(PROXY, 1)], "");
    for (text, wins) in ROUTES {
        if run(&scene, "ip", &text.replace("ADD", "add")).is_none() {
            return;
        }
        let found = found(&scene, &config, Engine::Nft);
        let found: Vec<_> = found.iter().map(|c| c.bypasses).collect();
        assert_eq!(found, [wins], "{text}");
        if !wins {
            assert_eq!(answers(&scene, false), CAPTURED, "{text}");
        }
        run(&scene, "ip", &text.replace("ADD", "del"));
    }
    // Both ends of one IPv6 connection bypass the proxy.
    for (text, _) in ROUTES.iter().take(2) {
        run(&scene, "ip", &text.replace("ADD", "add"));
    }
    assert_eq!(answers(&scene, true), PAST);
}

/// Adds or deletes the policy rule of both families for a table.
fn rule_for(scene: &Scene, table: &str, verb: &str, priority: u32) -> Option<()> {
    for family in ["-4", "-6"] {
        let rule = format!("{family} rule {verb} pref {priority} lookup {table}");
        run(scene, "ip", &rule)?;
    }
    Some(())
}

/// As with Cilium, which moves it, the policy rule for local routes follows later.
#[test]
fn the_table_of_local_routes_comes_first() {
    let Some(scene) = Scene::build() else { return };
    let _servers = Servers::start(&scene);
    let local = |verb, priority| rule_for(&scene, "local", verb, priority);
    if !up(&scene, Engine::Nft, "") || local("add", 100).is_none() {
        return;
    }
    let config = scene.config(&[(PROXY, 1)], "");
    let bypasses = || {
        let found = found(&scene, &config, Engine::Nft).into_iter();
        found.filter(|c| c.bypasses).collect::<Vec<_>>()
    };
    let later = scene.config(&[(PROXY, 1)], r#", "routing": {"priority": 200}"#);
    assert_eq!(bypasses(), []);
    assert!(reaches_the_node(&scene, false, 20));
    local("del", 0);
    for v6 in [false, true] {
        assert!(!reaches_the_node(&scene, v6, 2));
    }
    let late = bypasses();
    assert_eq!(late.len(), 2, "{late:?}");
    for collision in &late {
        let text = collision.to_string();
        assert!(
            collision.bypasses && text.contains("priority 100"),
            "{text}"
        );
        assert!(text.contains("routing: a priority above"), "{text}");
    }
    apply(&later, &scene.node, Some(Engine::Nft), false).unwrap();
    assert_eq!(found(&scene, &later, Engine::Nft), []);
    for v6 in [false, true] {
        assert!(reaches_the_node(&scene, v6, 20) && is_reached_by_udp(&scene, v6));
        assert_eq!(answers(&scene, v6), CAPTURED);
    }
    remove(&scene.node, Some(&later)).unwrap();
    // A first change is refused with every priority.
    for priority in [50, 99, 100] {
        let more = format!(r#", "routing": {{"priority": {priority}}}"#);
        let config = scene.config(&[(PROXY, 1)], &more);
        let before = state(&scene);
        let error = apply(&config, &scene.node, Some(Engine::Nft), false).unwrap_err();
        assert!(error.to_string().contains("the node itself"), "{error}");
        assert_eq!(state(&scene), before);
    }
    local("add", 32_765);
    local("del", 100);
    let error = apply(&config, &scene.node, Some(Engine::Nft), false).unwrap_err();
    assert!(error.to_string().contains("32765"), "{error}");
}

/// The kernel skips a `goto` to a priority that no rule has: then packets that are not captured find the tables of captured ones.
#[test]
fn the_rule_for_the_main_table_is_where_packets_pass() {
    let Some(scene) = Scene::build() else { return };
    let _servers = Servers::start(&scene);
    let main = |verb, priority| rule_for(&scene, "main", verb, priority);
    let before = state(&scene);
    if !up(&scene, Engine::Nft, "") {
        return;
    }
    // Without a proxy, whose own connections to pods would reach it again and again.
    let config = scene.config(&[], "");
    apply(&config, &scene.node, Some(Engine::Nft), false).unwrap();
    if main("add", 32_765).is_none() {
        return;
    }
    let probes =
        || [false, true].map(|v6| connects(&scene.node, SocketAddr::new(inside(POD, v6), 8080)));
    let seen = || found(&scene, &config, Engine::Nft);
    assert_eq!((probes(), seen()), ([true; 2], vec![]));
    main("del", 32_766);
    let without = seen();
    assert_eq!((probes(), without.len()), ([false; 2], 2), "{without:?}");
    for collision in &without {
        let text = collision.to_string();
        assert!(collision.bypasses && text.contains("32766"), "{text}");
    }
    main("add", 32_766);
    assert_eq!((probes(), seen()), ([true; 2], vec![]));
    main("del", 32_766);
    // The rules are listed as `[unresolved]`.
    remove(&scene.node, Some(&config)).unwrap();
    let refused = apply(&config, &scene.node, Some(Engine::Nft), false).unwrap_err();
    assert!(refused.to_string().contains("32766"), "{refused}");
    main("add", 32_766);
    main("del", 32_765);
    assert_eq!(state(&scene), before);
}

/// Whether one of several datagrams from outside to an address of the node arrives.
fn reaches_the_node(scene: &Scene, v6: bool, times: u32) -> bool {
    let at = address(OUTSIDE, v6, 1);
    let bind = |netns: &weir_netlink::Netns, ip| {
        let bind = || std::net::UdpSocket::bind(SocketAddr::new(ip, 0)).unwrap();
        let socket = netns.run(bind).unwrap();
        let wait = std::time::Duration::from_millis(500);
        socket.set_read_timeout(Some(wait)).unwrap();
        socket
    };
    let node = bind(&scene.node, at);
    let outside = bind(&scene.outside, inside(OUTSIDE, v6));
    let mut buffer = [0; 8];
    (0..times).any(|_| {
        let sent = outside.send_to(b"ping", node.local_addr().unwrap());
        sent.is_ok() && node.recv_from(&mut buffer).is_ok()
    })
}
