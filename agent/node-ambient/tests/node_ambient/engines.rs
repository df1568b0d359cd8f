//! Rules of one engine after those of the other, and legacy rules of other writers.

use crate::ebpf::{answer, web};
use crate::scene::{OUTSIDE, PROXY, Scene, Servers, sysctl};
use crate::{carrier, lacking, state, up};
use std::io::Write;
use std::process::{Command, Stdio};
use weir_cni::compile::Engine;
use weir_netfilter::ipset::IpsetEngine;
use weir_netfilter::nft::NftEngine;
use weir_netfilter::xtables::{Script, XtEngine, XtFamily};
use weir_netlink::route::{Link, LinkKind, Routing};
use weir_node_ambient::{apply, compare, remove};

/// The engines that have rules or sets of this crate in the node's namespace.
fn engines(scene: &Scene) -> Vec<Engine> {
    let read = || {
        let tables = NftEngine::open().unwrap().tables().unwrap();
        let by_nft = tables.iter().any(|(_, name)| name.contains("ambient"));
        let rules = XtEngine::open().unwrap().ruleset().unwrap().to_string();
        let sets = IpsetEngine::open().unwrap().names().unwrap();
        let legacy = rules.contains("ztunnel") || !sets.is_empty();
        let found = [(by_nft, Engine::Nft), (legacy, Engine::Xtables)];
        found
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, engine)| engine)
            .collect()
    };
    scene.node.run(read).unwrap()
}

// matrix: newest
#[test]
fn rules_of_one_engine_follow_those_of_the_other() {
    for order in [
        [Engine::Nft, Engine::Xtables],
        [Engine::Xtables, Engine::Nft],
    ] {
        let Some(scene) = Scene::build() else { return };
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], &carrier("vxlan"));
        let before = state(&scene);
        for engine in order {
            if !up(&scene, engine, &carrier("vxlan")) {
                return;
            }
            assert_eq!(engines(&scene), [engine]);
            let left = compare(&config, &scene.node, Some(engine)).unwrap();
            assert!(left.is_empty(), "{:?} {:?}", left.host, left.proxy);
            assert_eq!(
                answer(&scene.pod, web(OUTSIDE, false)),
                "outbound|outside|x"
            );
        }
        let [_, last] = order;
        let mut without = config.clone();
        without.pods.clear();
        apply(&without, &scene.node, Some(last), false).unwrap();
        assert_eq!(answer(&scene.pod, web(OUTSIDE, false)), "outside|x");
        // The record of the original sysctls is kept to the end.
        assert!(!remove(&scene.node, Some(&config)).unwrap().is_empty());
        assert_eq!(engines(&scene), []);
        assert_eq!(sysctl(&scene.node, "ipv4/conf/all/rp_filter"), "1");
        assert_eq!(state(&scene), before);
    }
}

/// Objects of Istio's agent do not count as rules of this crate.
// matrix: newest
#[test]
fn legacy_rules_and_links_of_istio_are_not_overwritten() {
    let Some(scene) = Scene::build() else { return };
    let text = "*mangle\n:PREROUTING ACCEPT [0:0]\n:ztunnel-PREROUTING - [0:0]\n\
        -A PREROUTING -j ztunnel-PREROUTING\n\
        -A ztunnel-PREROUTING -i istioin -j MARK --set-xmark 0x200/0x200\nCOMMIT\n";
    let script = Script::parse(XtFamily::Ip, text).unwrap();
    let restore = || XtEngine::open()?.restore(&script, false).map(drop);
    match scene.node.run(restore).unwrap() {
        Err(e) if e.is_unsupported() => {
            println!("skipped: {}: {e}", lacking(Engine::Xtables));
            return;
        }
        restored => restored.unwrap(),
    }
    let routing = Routing::open_in(&scene.node).unwrap();
    for name in ["istioin", "istioout"] {
        let link = Link::new(name, LinkKind::plain("bridge"));
        routing.add_link(&link, None).unwrap();
    }
    let rules = || {
        let read = || XtEngine::open().unwrap().ruleset().unwrap().to_string();
        scene.node.run(read).unwrap()
    };
    let before = (state(&scene), rules());
    let config = scene.config(&[(PROXY, 1)], &carrier("veth"));
    for engine in [None, Some(Engine::Xtables)] {
        let error = apply(&config, &scene.node, engine, false).unwrap_err();
        assert!(error.to_string().contains("link istioin"), "{error}");
        assert_eq!((state(&scene), rules()), before);
    }
    apply(&config, &scene.node, None, true).unwrap();
    assert_ne!(rules(), before.1);
}

/// A table that exceeds the limit of decoding, such as one of kube-proxy with many services.
// matrix: newest
#[test]
fn a_large_legacy_table_of_others_holds_up_only_the_first_change() {
    let Some(scene) = Scene::build() else { return };
    let _servers = Servers::start(&scene);
    if !up(&scene, Engine::Nft, &carrier("veth")) {
        return;
    }
    let mut text = "*nat\n:KUBE - [0:0]\n".to_owned();
    for n in 0..90_000 {
        let (second, third, fourth) = (96 + (n >> 16), (n >> 8) & 255, n & 255);
        text += &format!(
            "-A KUBE -d 10.{second}.{third}.{fourth}/32 -p tcp -m tcp --dport 80 -j RETURN\n"
        );
    }
    text += "COMMIT\n";
    let locks = weir_testing::TempDir::new();
    let restore = || {
        let mut restore = Command::new("iptables-legacy-restore");
        // It would hold the machine's lock for longer than others wait for it; nobody else writes here.
        let own_lock = locks.file("lock");
        let restore = restore.arg("-n").env("XTABLES_LOCKFILE", own_lock);
        let run = restore.stdin(Stdio::piped()).spawn();
        let mut child = match run {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return false,
            run => run.unwrap(),
        };
        child
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        assert!(child.wait().unwrap().success());
        true
    };
    if !scene.node.run(restore).unwrap() {
        println!("skipped: no iptables-legacy-restore");
        return;
    }
    let unseen = "unknown: reading the rules failed";
    let config = scene.config(&[(PROXY, 1)], &carrier("veth"));
    let change = compare(&config, &scene.node, None).unwrap();
    assert!(change.is_empty(), "{:?}", change.host);
    assert!(change.collisions.iter().any(|c| c.effect.contains(unseen)));
    let mut without = config.clone();
    without.pods.clear();
    for config in [&without, &config] {
        apply(config, &scene.node, None, false).unwrap();
    }
    assert_eq!(
        answer(&scene.pod, web(OUTSIDE, false)),
        "outbound|outside|x"
    );
    let open = scene.config(&[], r#", "without_proxy": "open""#);
    apply(&open, &scene.node, None, false).unwrap();
    let routing = Routing::open_in(&scene.node).unwrap();
    assert!(routing.link("istioin").unwrap_err().is_not_found());
    let error = apply(&config, &scene.node, None, false).unwrap_err();
    assert!(error.to_string().contains(unseen), "{error}");
    apply(&config, &scene.node, None, true).unwrap();
    remove(&scene.node, Some(&config)).unwrap();
}
