//! Proxies with other sockets than ztunnel's, and configurations that name the node's own namespace.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{OUTSIDE, POD, PROXY, Scene, Servers, Sockets, address, ask, socket};
use crate::unlisted::SHORT;
use crate::{each, state, up};
use std::net::{SocketAddr, TcpStream};
use weir_cni::compile::Engine;
use weir_netlink::Netns;
use weir_node_ambient::{apply, compare, ebpf};
use weir_testing::BpfFs;

const VETH: &str = r#", "carrier": "veth""#;
const NAMES: [&str; 3] = ["outbound", "inbound", "hbone"];

/// The answer of the peer, if a connection succeeds.
fn said(from: &Netns, to: SocketAddr) -> Option<String> {
    let connect = || {
        let socket = socket(to, false);
        let connected = socket.connect_timeout(&to.into(), SHORT);
        connected.map(|()| TcpStream::from(socket))
    };
    ask(&mut from.run(connect).unwrap().ok()?, "x").ok()
}

/// Connections reach the proxy or fail, and the node reaches the pod. A listener that is not transparent may receive some over IPv6.
fn are_captured(scene: &Scene, servers: &Servers, sockets: Sockets) {
    let is_served = sockets == Sockets::Shared;
    for v6 in [false, true] {
        for (from, to, own, passed_on) in [
            (
                &scene.pod,
                web(OUTSIDE, v6),
                "outbound|x",
                "outbound|outside|x",
            ),
            (&scene.outside, web(POD, v6), "inbound|x", "inbound|pod|x"),
        ] {
            let said = said(from, to);
            let is_right = match is_served {
                true => said.as_deref() == Some(passed_on),
                false => said.as_deref().is_none_or(|said| said == own),
            };
            assert!(is_right, "{sockets:?}: {to}: {said:?}");
        }
        assert_eq!(answer(&scene.node, web(POD, v6)), "pod|x");
    }
    let seen = servers.drain().into_iter();
    let past = seen.filter(|seen| seen.who == "outside");
    assert_eq!(past.count(), if is_served { 2 } else { 0 }, "{sockets:?}");
}

const LIES: [Sockets; 3] = [Sockets::Plain, Sockets::AtOneAddress, Sockets::Shared];

#[test]
fn rules_let_nothing_past_a_proxy_with_other_sockets() {
    for sockets in LIES {
        each(&["veth"], |scene, engine, _| {
            let servers = Servers::of_others(scene);
            servers.proxy_with(&scene.proxy, NAMES, sockets);
            if up(scene, engine, VETH) {
                are_captured(scene, &servers, sockets);
            }
        });
    }
}

#[test]
fn programs_let_nothing_past_a_proxy_with_other_sockets() {
    let has_links = weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok();
    for sockets in LIES {
        if sockets == Sockets::Shared && !has_links {
            // The kernel does not assign packets to such listeners.
            weir_testing::lacks::skip("SO_REUSEPORT with bpf_sk_assign", "6.6", "no tcx");
            continue;
        }
        for (scene, mounted) in builds() {
            let servers = Servers::of_others(&scene);
            servers.proxy_with(&scene.proxy, NAMES, sockets);
            applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
            are_captured(&scene, &servers, sockets);
        }
    }
}

/// It belongs to neither a pod nor a proxy, even if the configuration has the node's addresses as well.
#[test]
fn the_namespace_of_the_node_itself_is_refused() {
    for mounted in BpfFs::each(|| weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok()) {
        let Some(scene) = Scene::build() else { return };
        let _servers = Servers::start(&scene);
        let before = state(&scene);
        for is_proxy in [false, true] {
            let mut config = scene.config(&[(PROXY, 1)], VETH);
            let own = [false, true].map(|v6| address(OUTSIDE, v6, 1)).to_vec();
            match is_proxy {
                true => {
                    config.proxies[0].netns = scene.node.path();
                    config.proxies[0].addresses = own;
                }
                false => {
                    config.pods[0].netns = Some(scene.node.path());
                    config.pods[0].addresses = own;
                }
            }
            let engine = Some(Engine::Nft);
            let errors = [
                ebpf::apply(&config, &scene.node, &bpffs(&mounted)).unwrap_err(),
                ebpf::compare(&config, &scene.node, &bpffs(&mounted)).unwrap_err(),
                apply(&config, &scene.node, engine, true).unwrap_err(),
                compare(&config, &scene.node, engine).unwrap_err(),
            ];
            for error in errors.map(|e| e.to_string()) {
                let name = if is_proxy { "proxy zt-2" } else { "pod pod-a" };
                for part in [name, "is not in this namespace"] {
                    assert!(error.contains(part), "{part}: {error}");
                }
            }
            assert_eq!(state(&scene), before);
            assert_eq!(answer(&scene.pod, web(OUTSIDE, false)), "outside|x");
        }
    }
}
