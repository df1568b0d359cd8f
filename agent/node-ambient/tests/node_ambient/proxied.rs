//! Foreign objects in the proxy's namespace that keep redirected packets from it: sysctls, policy rules and routes.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{OUTSIDE, POD, PROXY, Scene, Servers, connects, set, sysctl, tool};
use crate::up;
use weir_cni::compile::Engine;
use weir_node_ambient::{Collision, compare, ebpf, remove};

const SRC_VALID_MARK: [&str; 2] = [
    "ipv4/conf/all/src_valid_mark",
    "ipv4/conf/eth0/src_valid_mark",
];

fn captured(scene: &Scene) {
    for v6 in [false, true] {
        assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outbound|outside|x");
        assert_eq!(answer(&scene.outside, web(POD, v6)), "inbound|pod|x");
    }
}

/// `wg-quick` sets this at the node, and new namespaces inherit it.
#[test]
fn sources_are_not_validated_by_marks() {
    for engine in [Engine::Nft, Engine::Xtables] {
        let Some(scene) = Scene::build() else { return };
        let _servers = Servers::start(&scene);
        let others = [
            ("ipv4/conf/default/src_valid_mark", "1"),
            ("ipv4/conf/all/rp_filter", "2"),
            ("ipv4/conf/default/rp_filter", "1"),
        ];
        let before = SRC_VALID_MARK.map(|key| (key, "1")).into_iter();
        let before: Vec<_> = before.chain(others).collect();
        for (key, value) in &before {
            set(&scene.proxy, key, value);
        }
        if !up(&scene, engine, "") {
            return;
        }
        captured(&scene);
        // If it is set later, weir reports a difference.
        for key in SRC_VALID_MARK {
            set(&scene.proxy, key, "1");
            let config = scene.config(&[(PROXY, 1)], "");
            let found = compare(&config, &scene.node, Some(engine)).unwrap().proxy;
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(up(&scene, engine, ""));
            captured(&scene);
        }
        let config = scene.config(&[(PROXY, 1)], "");
        remove(&scene.node, Some(&config)).unwrap();
        for (key, value) in before {
            assert_eq!(sysctl(&scene.proxy, key), value, "{engine} {key}");
        }
    }
}

// matrix: every
#[test]
fn sources_are_not_validated_by_marks_with_programs() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        for key in SRC_VALID_MARK {
            set(&scene.proxy, key, "1");
        }
        let config = scene.config(&[(PROXY, 1)], "");
        applied(&scene, &mounted, &config);
        captured(&scene);
        ebpf::remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        for key in SRC_VALID_MARK {
            assert_eq!(sysctl(&scene.proxy, key), "1", "{key}");
        }
    }
}

/// Runs `ip VERB`. Returns `None` without the tool.
fn ip(scene: &Scene, verb: &str, text: &str) -> Option<()> {
    let text = text.replace("ADD", verb);
    let args: Vec<&str> = text.split(' ').collect();
    let run = scene.proxy.run(|| tool("ip", &args)).unwrap()?;
    assert!(run.status.success(), "{text}: {run:?}");
    Some(())
}

/// Objects, and whether redirected packets are lost because of each.
const OBJECTS: [(&str, bool); 15] = [
    // Without a priority the kernel adds it directly before weir's rules.
    ("-4 rule ADD from 10.1.0.0/16 lookup main", true),
    ("-4 rule ADD pref 10 lookup main", true),
    ("-6 rule ADD pref 10 lookup main", true),
    ("-4 rule ADD pref 10 fwmark 0x400/0x400 lookup main", true),
    ("-4 rule ADD pref 10 not fwmark 0x10 lookup main", true),
    ("-4 rule ADD pref 10 goto 32766", true),
    ("-4 rule ADD pref 10 blackhole", true),
    ("-4 route ADD 10.1.4.0/24 dev eth0 table 100", true),
    // The sbr plugin writes such rules for an attached network, with an address of the proxy.
    ("-4 rule ADD pref 10 from 10.1.2.10 lookup main", false),
    ("-4 rule ADD pref 10 fwmark 0x10 lookup main", false),
    ("-4 rule ADD pref 10 iif lo lookup main", false),
    ("-4 rule ADD pref 10 ipproto icmp lookup main", false),
    ("-4 rule ADD pref 10 lookup 77", false),
    ("-4 rule ADD pref 20004 lookup main", false),
    ("-4 route ADD 10.9.0.0/16 dev eth0 table 77", false),
];

fn check(scene: &Scene, look: &dyn Fn() -> Vec<Collision>) {
    assert_eq!(look(), []);
    for (text, is_lost) in OBJECTS {
        if ip(scene, "add", text).is_none() {
            return;
        }
        let found = look();
        assert_eq!(found.len(), usize::from(is_lost), "{text}: {found:?}");
        assert!(found.iter().all(|c| c.bypasses), "{text}");
        let v6 = text.starts_with("-6");
        match is_lost {
            true => assert!(!connects(&scene.pod, web(OUTSIDE, v6)), "{text}"),
            false => captured(scene),
        }
        ip(scene, "del", text);
    }
    assert_eq!(look(), []);
    captured(scene);
}

#[test]
fn what_takes_redirected_packets_first_is_named() {
    let Some(scene) = Scene::build() else { return };
    let _servers = Servers::start(&scene);
    if !up(&scene, Engine::Nft, "") {
        return;
    }
    check(&scene, &|| {
        let config = scene.config(&[(PROXY, 1)], "");
        let change = compare(&config, &scene.node, Some(Engine::Nft)).unwrap();
        assert!(change.is_empty(), "{:?} {:?}", change.host, change.proxy);
        change.collisions
    });
}

// matrix: newest
#[test]
fn what_takes_packets_redirected_by_programs_first_is_named() {
    for (scene, mounted) in builds().take(1) {
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        applied(&scene, &mounted, &config);
        check(&scene, &|| {
            let change = ebpf::compare(&config, &scene.node, &bpffs(&mounted)).unwrap();
            assert!(change.is_empty(), "{change:?}");
            change.collisions
        });
    }
}
