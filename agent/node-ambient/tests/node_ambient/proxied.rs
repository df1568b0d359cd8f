//! Sysctls of the proxy's namespace by which it does not get what is redirected to it.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{OUTSIDE, POD, PROXY, Scene, Servers, set, sysctl};
use crate::up;
use weir_cni::compile::Engine;
use weir_node_ambient::{compare, ebpf, remove};

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

/// As `wg-quick` sets it at the node, of which a new namespace takes it over.
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
        // Set later, it is a difference.
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
