//! kube-proxy in IPVS mode: service addresses are the node's own, on a link that only holds them.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{OUTSIDE, POD, PROXY, Scene, Servers, address, inside, tool};
use crate::state;
use std::net::{IpAddr, SocketAddr};
use weir_cni::compile::Engine;
use weir_netlink::route::{Link, LinkKind, Routing};
use weir_node_ambient::ebpf::remove;
use weir_node_ambient::{apply, compare};
use weir_testing::lacks;

fn service(v6: bool) -> SocketAddr {
    let address: IpAddr = match v6 {
        false => [10, 96, 0, 10].into(),
        true => [0xfd00, 0x96, 0, 0, 0, 0, 0, 10].into(),
    };
    SocketAddr::new(address, 8080)
}

/// Creates the link of kube-proxy as a bridge instead of a dummy, which not every kernel has: a bridge without ports behaves alike.
fn hold_services(scene: &Scene, link: &str) {
    let node = Routing::open_in(&scene.node).unwrap();
    let bridge = Link::new(link, LinkKind::plain("bridge"));
    node.add_link(&bridge, None).unwrap();
    let index = node.link(link).unwrap().index;
    node.set_up(index).unwrap();
    for v6 in [false, true] {
        node.add_address(index, service(v6).ip().into()).unwrap();
    }
}

/// If nothing translates the address of a service, a server of the node answers there.
#[test]
fn programs_capture_connections_to_services_and_rules_refuse_the_node() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        servers.echo(&scene.node, "node");
        hold_services(&scene, "kube-ipvs0");
        let before = state(&scene);
        let config = scene.config(&[(PROXY, 1)], "");
        for engine in [Engine::Nft, Engine::Xtables] {
            let error = apply(&config, &scene.node, Some(engine), false)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("kube-ipvs0") && error.contains("node-ebpf"),
                "{error}"
            );
            assert_eq!(state(&scene), before);
        }
        applied(&scene, &mounted, &config);
        for v6 in [false, true] {
            assert_eq!(answer(&scene.pod, service(v6)), "outbound|node|x");
            // Connections to the node's own addresses are not captured.
            let own = SocketAddr::new(address(POD, v6, 1), 8080);
            assert_eq!(answer(&scene.pod, own), "node|x");
        }
        // A service that is added later, or removed.
        let node = Routing::open_in(&scene.node).unwrap();
        let index = node.link("kube-ipvs0").unwrap().index;
        node.add_address(index, IpAddr::from([10, 96, 0, 11]).into())
            .unwrap();
        assert!(compare_programs(&scene, &mounted, &config));
        remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
        assert_eq!(answer(&scene.pod, service(false)), "node|x");
    }
}

fn compare_programs(
    scene: &Scene,
    mounted: &weir_testing::BpfFs,
    config: &weir_node_ambient::Config,
) -> bool {
    let change = weir_node_ambient::ebpf::compare(config, &scene.node, &bpffs(mounted));
    change.unwrap().is_empty()
}

/// The refusal is justified: if rules are written anyway, the proxy does not receive the connection.
#[test]
fn rules_do_not_capture_connections_to_services_of_ipvs() {
    for engine in [Engine::Nft, Engine::Xtables] {
        let Some(scene) = Scene::build() else { return };
        let servers = Servers::start(&scene);
        servers.echo(&scene.node, "node");
        let config = scene.config(&[(PROXY, 1)], "");
        if !crate::up(&scene, engine, "") {
            continue;
        }
        assert!(
            compare(&config, &scene.node, Some(engine))
                .unwrap()
                .collisions
                .is_empty()
        );
        hold_services(&scene, "kube-dummy-if");
        assert_eq!(answer(&scene.pod, service(false)), "node|x");
        assert_eq!(
            answer(&scene.pod, web(OUTSIDE, false)),
            "outbound|outside|x"
        );
        let change = compare(&config, &scene.node, Some(engine)).unwrap();
        assert!(change.is_empty(), "{:?}", change.host);
        let found: Vec<_> = change.collisions.iter().filter(|c| c.bypasses).collect();
        assert!(
            found.len() == 1 && found[0].found.contains("addresses: 2"),
            "{found:?}"
        );
    }
}

/// Runs `ipvsadm` in the node's namespace. Prints the reason and returns `None` without the tool or without IPVS in the kernel.
fn ipvsadm(scene: &Scene, args: &[&str]) -> Option<()> {
    let run = scene.node.run(|| tool("ipvsadm", args)).unwrap()?;
    let said = String::from_utf8_lossy(&run.stderr);
    if said.contains("initialize ipvs") {
        lacks::skip("module ip_vs", "2.6.27", said.trim());
        return None;
    }
    assert!(run.status.success(), "{args:?}: {said}");
    Some(())
}

/// A service with an endpoint outside: the proxy gets the service's address, and IPVS translates the proxy's connection.
// matrix: every
#[test]
fn check_7_services_of_ipvs_reach_the_proxy_untranslated() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        hold_services(&scene, "kube-ipvs0");
        for v6 in [false, true] {
            let (from, to) = (service(v6).to_string(), web(OUTSIDE, v6).to_string());
            if ipvsadm(&scene, &["-A", "-t", &from, "-s", "rr"]).is_none() {
                return;
            }
            ipvsadm(&scene, &["-a", "-t", &from, "-r", &to, "-m"]).unwrap();
            assert_eq!(
                answer(&scene.pod, service(v6)),
                "outside|x",
                "without programs"
            );
        }
        servers.drain();
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        for v6 in [false, true] {
            assert_eq!(answer(&scene.pod, service(v6)), "outbound|outside|x");
            let seen = servers.drain();
            let seen: Vec<_> = seen.iter().map(|s| (s.who, s.from, s.to)).collect();
            let (pod, translated) = (inside(POD, v6), web(OUTSIDE, v6));
            let wanted = [("outbound", pod, service(v6)), ("outside", pod, translated)];
            assert_eq!(seen, wanted);
        }
        remove(&scene.node, &bpffs(&mounted), None).unwrap();
        assert_eq!(answer(&scene.pod, service(false)), "outside|x");
    }
}
