//! A pod with a netkit pair: acceptance check 7 of eBPF mode, and the same for rules.

use crate::ebpf::{answer, applied, bpffs, web};
use crate::scene::{OUTSIDE, POD, PROXY, Scene, Servers};
use crate::{is_reached_by_udp, up};
use weir_cni::compile::Engine;
use weir_node_ambient::ebpf::remove;
use weir_testing::BpfFs;

/// `NETKIT_L2` and `NETKIT_L3`: with Ethernet headers and without.
const MODES: [u32; 2] = [0, 1];

fn is_captured(scene: &Scene) {
    for v6 in [false, true] {
        assert_eq!(answer(&scene.pod, web(OUTSIDE, v6)), "outbound|outside|x");
        assert_eq!(answer(&scene.outside, web(POD, v6)), "inbound|pod|x");
        assert_eq!(answer(&scene.node, web(POD, v6)), "pod|x");
        assert!(is_reached_by_udp(scene, v6));
    }
}

// matrix: every
#[test]
fn check_7_programs_capture_a_pod_with_a_netkit_pair() {
    for mode in MODES {
        for mounted in BpfFs::each(|| weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok()) {
            let Some(scene) = Scene::with_netkit(mode) else {
                return;
            };
            let _servers = Servers::start(&scene);
            let config = scene.config(&[(PROXY, 1)], "");
            applied(&scene, &mounted, &config);
            is_captured(&scene);
            remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
            assert_eq!(answer(&scene.pod, web(OUTSIDE, false)), "outside|x");
        }
    }
}

// matrix: every
#[test]
fn rules_capture_a_pod_with_a_netkit_pair() {
    for mode in MODES {
        for engine in [Engine::Nft, Engine::Xtables] {
            let Some(scene) = Scene::with_netkit(mode) else {
                return;
            };
            let _servers = Servers::start(&scene);
            if !up(&scene, engine, "") {
                continue;
            }
            is_captured(&scene);
        }
    }
}
