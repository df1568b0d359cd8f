//! Rules of one engine after those of the other.

use crate::ebpf::{answer, web};
use crate::scene::{OUTSIDE, PROXY, Scene, Servers, sysctl};
use crate::{carrier, state, up};
use weir_cni::compile::Engine;
use weir_netfilter::ipset::IpsetEngine;
use weir_netfilter::nft::NftEngine;
use weir_netfilter::xtables::XtEngine;
use weir_node_ambient::{apply, compare, remove};

/// Engines with rules or sets of this crate in the node's namespace.
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
        // What sysctls were before is known to the end.
        assert!(!remove(&scene.node, Some(&config)).unwrap().is_empty());
        assert_eq!(engines(&scene), []);
        assert_eq!(sysctl(&scene.node, "ipv4/conf/all/rp_filter"), "1");
        assert_eq!(state(&scene), before);
    }
}
