//! Removal where something is left or unknown: in the proxy's namespace, in one that cannot be opened, and sysctls.

use crate::ebpf::{applied, bpffs, builds};
use crate::scene::{PROXY, Scene, sysctl, tool};
use crate::up;
use weir_cni::compile::Engine;
use weir_netfilter::nft::{NftEngine, Ruleset, TableFamily};
use weir_node_ambient::nft::HOST_TABLE;
use weir_node_ambient::{Config, Proxy, apply, compare, ebpf, remove};

/// The proxy is not ready, and nothing is captured without one.
fn open(scene: &Scene) -> Config {
    let mut config = scene.config(&[(PROXY, 1)], r#", "without_proxy": "open""#);
    config.proxies[0].ready = false;
    config
}

/// With another proxy whose namespace has this path.
fn with_another(scene: &Scene, netns: &str) -> Config {
    let mut config = scene.config(&[(PROXY, 1)], "");
    config.proxies.push(Proxy {
        uid: "another".to_owned(),
        netns: netns.into(),
        addresses: vec!["10.9.9.9".parse().unwrap()],
        created: 0,
        ready: false,
    });
    config
}

/// The node was cleaned by a process that did not know the proxies.
#[test]
fn what_is_left_at_the_proxy_is_a_difference() {
    for engine in [Engine::Nft, Engine::Xtables] {
        let Some(scene) = Scene::build() else { return };
        if !up(&scene, engine, "") {
            return;
        }
        remove(&scene.node, None).unwrap();
        let config = open(&scene);
        let left = compare(&config, &scene.node, Some(engine)).unwrap();
        assert!(left.host.is_empty(), "{:?}", left.host);
        let lines: Vec<String> = left.proxy.iter().map(ToString::to_string).collect();
        let is_of_rules = |line: &String| line.starts_with("remove the rules of");
        assert!(lines.iter().any(is_of_rules), "{lines:?}");
        apply(&config, &scene.node, Some(engine), false).unwrap();
        let left = compare(&config, &scene.node, Some(engine)).unwrap();
        assert!(left.is_empty(), "{:?} {:?}", left.host, left.proxy);
    }
}

#[test]
fn what_programs_left_at_the_proxy_is_a_difference() {
    for (scene, mounted) in builds() {
        let bpffs = bpffs(&mounted);
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        ebpf::remove(&scene.node, &bpffs, None).unwrap();
        let config = open(&scene);
        let left = ebpf::compare(&config, &scene.node, &bpffs).unwrap().steps;
        assert!(left.host.is_empty() && !left.proxy.is_empty(), "{left:?}");
        applied(&scene, &mounted, &config);
        let none = ebpf::remove(&scene.node, &bpffs, Some(&config)).unwrap();
        assert!(none.is_empty(), "{none:?}");
    }
}

/// Only ENOENT means that the process has ended.
const ENDED: &str = "/proc/0/ns/net";
const UNKNOWN: &str = "/proc/version/ns";

#[test]
fn a_proxy_whose_namespace_cannot_be_opened_has_not_ended() {
    for engine in [Engine::Nft, Engine::Xtables] {
        let Some(scene) = Scene::build() else { return };
        if !up(&scene, engine, "") {
            return;
        }
        let ended = with_another(&scene, ENDED);
        let change = compare(&ended, &scene.node, Some(engine)).unwrap();
        assert!(change.is_empty(), "{:?} {:?}", change.host, change.proxy);
        let config = with_another(&scene, UNKNOWN);
        for error in [
            compare(&config, &scene.node, Some(engine)).unwrap_err(),
            remove(&scene.node, Some(&config)).unwrap_err(),
        ] {
            assert!(error.to_string().contains(UNKNOWN), "{error}");
        }
        // The rest was removed.
        assert!(remove(&scene.node, Some(&ended)).unwrap().is_empty());
    }
}

#[test]
fn a_proxy_with_programs_whose_namespace_cannot_be_opened_has_not_ended() {
    for (scene, mounted) in builds() {
        let bpffs = bpffs(&mounted);
        let ended = with_another(&scene, ENDED);
        applied(&scene, &mounted, &ended);
        let config = with_another(&scene, UNKNOWN);
        for error in [
            ebpf::compare(&config, &scene.node, &bpffs).unwrap_err(),
            ebpf::remove(&scene.node, &bpffs, Some(&config)).unwrap_err(),
        ] {
            assert!(error.to_string().contains(UNKNOWN), "{error}");
        }
        let left = ebpf::remove(&scene.node, &bpffs, Some(&ended)).unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Another program removes the rules, and with them the previous values of sysctls.
#[test]
fn sysctls_whose_previous_values_are_lost_are_named() {
    let deleted = || {
        let table = (TableFamily::Inet, HOST_TABLE.to_owned());
        let done = NftEngine::open()
            .unwrap()
            .apply(&Ruleset::default(), &[table]);
        done.unwrap();
        true
    };
    let flushed = || tool("iptables-legacy", &["-w", "-t", "mangle", "-F"]).is_some();
    let lose: [(Engine, &(dyn Fn() -> bool + Sync)); 2] =
        [(Engine::Nft, &deleted), (Engine::Xtables, &flushed)];
    for (engine, lose) in lose {
        let Some(scene) = Scene::build() else { return };
        let said = |lines: &[String]| {
            let mut lines = lines.iter();
            lines
                .find(|line| line.starts_with("left as they are"))
                .cloned()
        };
        if !up(&scene, engine, "") {
            return;
        }
        assert_eq!(said(&remove(&scene.node, None).unwrap()), None);
        assert_eq!(sysctl(&scene.node, "ipv4/conf/all/rp_filter"), "1");
        assert!(up(&scene, engine, ""));
        if !scene.node.run(lose).unwrap() {
            return;
        }
        let line = said(&remove(&scene.node, None).unwrap()).unwrap();
        for part in [
            "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.v2.accept_local=1",
            "default of each is 0",
        ] {
            assert!(line.contains(part), "{engine} {part}: {line}");
        }
        assert!(remove(&scene.node, None).unwrap().is_empty());
    }
}
