//! Policy rules of other writers that precede those of a configuration.

use crate::scene::{OUTSIDE, POD, PROXY, Scene, Servers, ask, connect, inside, tool};
use crate::{state, up};
use std::net::SocketAddr;
use weir_cni::compile::Engine;
use weir_node_ambient::{Collision, Config, apply, compare, remove};

const FIRST: &str = "it comes first and selects packets of pods";

/// Runs `ip rule VERB ...`. Returns `None` without the tool.
fn rule(scene: &Scene, verb: &str, text: &str) -> Option<()> {
    let (family, text) = match text.strip_prefix("-6 ") {
        Some(text) => ("-6", text),
        None => ("-4", text),
    };
    let args: Vec<&str> = [family, "rule", verb]
        .into_iter()
        .chain(text.split(' '))
        .collect();
    let run = scene.node.run(|| tool("ip", &args)).unwrap()?;
    assert!(run.status.success(), "{args:?}: {run:?}");
    Some(())
}

fn found(scene: &Scene, config: &Config) -> Vec<Collision> {
    let change = compare(config, &scene.node, None).unwrap();
    change.collisions
}

/// A rule, the expected message about it, and whether connections bypass the proxy because of it.
const RULES: [(&str, Option<&str>, bool); 26] = [
    ("pref 50 lookup main", Some(FIRST), true),
    (
        "pref 50 lookup main suppress_prefixlength 0",
        Some(FIRST),
        true,
    ),
    (
        "pref 50 from 10.1.0.0/16 to 10.1.0.0/16 lookup main",
        Some(FIRST),
        true,
    ),
    ("pref 50 from 10.1.1.10 lookup main", Some(FIRST), true),
    ("pref 50 to 10.1.4.0/24 lookup main", Some(FIRST), true),
    // Cilium adds such rules for addresses of an ENI.
    ("pref 20 to 10.1.1.10 lookup main", Some(FIRST), true),
    ("pref 50 not fwmark 51820 lookup main", Some(FIRST), true),
    ("pref 50 iif v1 lookup main", Some(FIRST), true),
    // Connections to pods may arrive through any link.
    ("pref 50 iif v4 lookup main", Some(FIRST), true),
    ("pref 50 goto 32766", Some(FIRST), true),
    ("-6 pref 50 to fd00:1:4::/64 lookup main", Some(FIRST), true),
    // No connection succeeds.
    ("pref 50 from 10.1.1.10 blackhole", Some(FIRST), false),
    (
        "pref 50 fwmark 51820 lookup main",
        Some("it selects by the same bits of the mark"),
        false,
    ),
    // Rules for other packets: of the proxy, of the node, of networks without pods.
    ("pref 50 iif v2 lookup main", None, false),
    ("pref 50 iif lo lookup main", None, false),
    ("pref 50 iif absent lookup main", None, false),
    ("pref 50 oif v4 lookup main", None, false),
    ("pref 50 from 10.1.4.1 lookup main", None, false),
    (
        "pref 50 from 192.0.2.0/24 to 198.51.100.0/24 lookup main",
        None,
        false,
    ),
    ("pref 50 fwmark 0x80/0x80 lookup main", None, false),
    ("pref 50 uidrange 1000-2000 lookup main", None, false),
    ("pref 50 ipproto udp lookup main", None, false),
    // The table contains no route.
    ("pref 50 lookup 77", None, false),
    ("pref 50 lookup main suppress_prefixlength 32", None, false),
    ("pref 50 lookup local", None, false),
    ("pref 104 lookup main", None, false),
];

// matrix: newest
#[test]
fn rules_that_select_packets_of_pods_first_are_reported() {
    let Some(scene) = Scene::build() else { return };
    let config = scene.config(&[(PROXY, 1)], r#", "carrier": "veth""#);
    for (text, effect, bypasses) in RULES {
        if rule(&scene, "add", text).is_none() {
            return;
        }
        let seen = found(&scene, &config);
        let seen: Vec<_> = seen
            .iter()
            .map(|c| (c.effect.as_str(), c.bypasses))
            .collect();
        let expected: Vec<_> = effect
            .into_iter()
            .map(|effect| (effect, bypasses))
            .collect();
        assert_eq!(seen, expected, "{text}");
        rule(&scene, "del", text);
    }
    assert_eq!(found(&scene, &config), []);
}

/// As with `wg-quick`: without a priority the kernel adds the rule directly before the first one.
// matrix: newest
#[test]
fn a_rule_that_is_added_later_and_leads_past_the_proxy_is_found() {
    let Some(scene) = Scene::build() else { return };
    let _servers = Servers::start(&scene);
    let config = scene.config(&[(PROXY, 1)], "");
    let ways = [
        (&scene.pod, OUTSIDE, "outside|x", "outbound|outside|x"),
        (&scene.outside, POD, "pod|x", "inbound|pod|x"),
    ];
    let answers = || {
        ways.map(|(from, to, ..)| {
            let to = SocketAddr::new(inside(to, false), 8080);
            ask(&mut connect(from, to).unwrap(), "x").unwrap()
        })
    };
    if !up(&scene, Engine::Nft, "") {
        return;
    }
    assert_eq!(answers(), ways.map(|(.., captured)| captured.to_owned()));
    assert_eq!(found(&scene, &config), []);
    if rule(&scene, "add", "lookup main suppress_prefixlength 0").is_none() {
        return;
    }
    assert_eq!(answers(), ways.map(|(_, _, plain, _)| plain.to_owned()));
    let change = compare(&config, &scene.node, None).unwrap();
    assert!(change.is_empty() && change.collisions.iter().any(|c| c.bypasses));
    // An existing redirection is not refused; a first one is.
    apply(&config, &scene.node, None, false).unwrap();
    remove(&scene.node, Some(&config)).unwrap();
    let before = state(&scene);
    let error = apply(&config, &scene.node, None, false).unwrap_err();
    assert!(error.to_string().contains(FIRST), "{error}");
    assert_eq!(state(&scene), before);
}
