//! Capture of IPv4 alone on a node with both families.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{OUTSIDE, POD, PROXY, Scene, Servers, inside, set};
use crate::{carrier, each, up};
use weir_cni::compile::Engine;
use weir_netfilter::ipset::IpsetEngine;
use weir_netfilter::nft::NftEngine;
use weir_netfilter::xtables::{XtEngine, XtFamily};
use weir_netlink::Netns;
use weir_netlink::route::{AddressFamily, Routing};
use weir_node_ambient::nft::{HOST_TABLE, PROXY_TABLE, SET};
use weir_node_ambient::{apply, compare, ebpf, remove};

/// The policy rules and routes of weir and the addresses of carriers in a namespace.
fn routing_of_ipv6(netns: &Netns) -> Vec<String> {
    let routing = Routing::open_in(netns).unwrap();
    let rules = routing.rules().unwrap().into_iter();
    let own = |p: u32| (100..=103).contains(&p) || p == 20_000 || p == 20_003;
    let rules = rules.filter(|r| r.family == AddressFamily::V6 && r.priority.is_some_and(own));
    let mut found: Vec<String> = rules.map(|r| r.to_string()).collect();
    for table in 100..=103 {
        let routes = routing.routes(table).unwrap().into_iter();
        let routes = routes.filter(|r| r.dst.addr().is_ipv6());
        found.extend(routes.map(|r| r.to_string()));
    }
    let addresses = routing.addresses().unwrap().into_iter();
    let text = addresses.map(|a| a.net.to_string());
    found.extend(text.filter(|a| a.starts_with("fd00:7765:")));
    found
}

fn rules_of_ipv6(netns: &Netns, engine: Engine) -> Vec<String> {
    let read = || -> weir_netlink::Result<Vec<String>> {
        let mut found = Vec::new();
        match engine {
            Engine::Nft => {
                let read = NftEngine::open()?.read()?.ruleset;
                let own = |name: &str| name == HOST_TABLE || name == PROXY_TABLE;
                let own = read.tables.iter().filter(|table| own(&table.name));
                let text: String = own.map(ToString::to_string).collect();
                let lines = text
                    .lines()
                    .filter(|l| l.contains("ip6") || l.contains("ipv6"));
                found.extend(lines.map(str::to_owned));
            }
            Engine::Xtables => {
                let tables = XtEngine::open()?.ruleset()?.tables.into_iter();
                let tables = tables.filter(|table| table.family == XtFamily::Ip6);
                let chains = tables.flat_map(|table| table.chains);
                let has_rules =
                    chains.filter(|c| !c.rules.is_empty() || c.name.contains("ztunnel"));
                found.extend(has_rules.map(|chain| chain.name));
                let sets = IpsetEngine::open()?.names()?.into_iter();
                found.extend(sets.filter(|name| name.starts_with(SET) && name != SET));
            }
        }
        Ok(found)
    };
    netns.run(read).unwrap().unwrap()
}

/// On a clean node, and after both families were captured.
// matrix: every; variants no-nftables no-xtables
#[test]
fn without_ipv6_rules_make_nothing_of_it() {
    for was_dual in [false, true] {
        each(&["veth"], |scene, engine, name| {
            let servers = Servers::start(scene);
            let dual = scene.config(&[(PROXY, 1)], &carrier(name));
            if was_dual {
                if !up(scene, engine, &carrier(name)) {
                    return;
                }
                assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outbound|outside|x");
                assert!(!rules_of_ipv6(&scene.node, engine).is_empty());
                assert!(!routing_of_ipv6(&scene.node).is_empty());
            }
            let config = dual.without_ipv6();
            match apply(&config, &scene.node, Some(engine), false) {
                Err(e) if e.is_unsupported() => {
                    println!("skipped: {}: {e}", crate::lacking(engine));
                    return;
                }
                applied => drop(applied.unwrap()),
            }
            let left = compare(&config, &scene.node, Some(engine)).unwrap();
            assert!(left.is_empty(), "{left:?}");
            for netns in [&scene.node, &scene.proxy] {
                assert_eq!(rules_of_ipv6(netns, engine), Vec::<String>::new());
                assert_eq!(routing_of_ipv6(netns), Vec::<String>::new());
            }
            captures_ipv4_alone(scene);
            drop(servers);
            remove(&scene.node, Some(&config)).unwrap();
        });
    }
}

fn captures_ipv4_alone(scene: &Scene) {
    assert_eq!(
        answer(&scene.pod, web(OUTSIDE, false)),
        "outbound|outside|x"
    );
    assert_eq!(answer(&scene.outside, web(POD, false)), "inbound|pod|x");
    assert_eq!(answer(&scene.pod, web(OUTSIDE, true)), "outside|x");
    assert_eq!(answer(&scene.outside, web(POD, true)), "pod|x");
}

// matrix: every
#[test]
fn without_ipv6_programs_make_nothing_of_it() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let config = scene.config(&[(PROXY, 1)], "").without_ipv6();
        applied(&scene, &mounted, &config);
        assert_eq!(routing_of_ipv6(&scene.proxy), Vec::<String>::new());
        captures_ipv4_alone(&scene);
        let change = ebpf::compare(
            &scene.config(&[(PROXY, 1)], ""),
            &scene.node,
            &bpffs(&mounted),
        );
        let steps = change.unwrap().steps;
        let text: Vec<String> = steps.host.iter().map(ToString::to_string).collect();
        let v6 = inside(POD, true).to_string();
        assert!(text.iter().any(|line| line.contains(&v6)), "{text:?}");
        ebpf::remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
    }
}

/// The proxy needs IPv6 only if it has an address of it.
// matrix: every
#[test]
fn a_proxy_of_ipv4_may_disable_ipv6() {
    for (scene, mounted) in builds() {
        let _servers = Servers::start(&scene);
        let dual = scene.config(&[(PROXY, 1)], "");
        let mut config = dual.clone();
        let pods = config.pods.iter_mut().map(|pod| &mut pod.addresses);
        let proxies = config.proxies.iter_mut();
        for addresses in pods.chain(proxies.map(|proxy| &mut proxy.addresses)) {
            addresses.retain(std::net::IpAddr::is_ipv4);
        }
        for name in ["all", "lo"] {
            set(&scene.proxy, &format!("ipv6/conf/{name}/disable_ipv6"), "1");
        }
        applied(&scene, &mounted, &config);
        assert_eq!(
            answer(&scene.pod, web(OUTSIDE, false)),
            "outbound|outside|x"
        );
        let error = ebpf::apply(&dual, &scene.node, &bpffs(&mounted)).unwrap_err();
        assert!(error.to_string().contains("::"), "{error}");
        for name in ["all", "lo"] {
            set(&scene.proxy, &format!("ipv6/conf/{name}/disable_ipv6"), "0");
        }
        let change = ebpf::compare(&config, &scene.node, &bpffs(&mounted)).unwrap();
        let steps: Vec<String> = change.steps.proxy.iter().map(|s| s.to_string()).collect();
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert!(steps[0].contains("route local ::/0"), "{steps:?}");
        applied(&scene, &mounted, &config);
        ebpf::remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
    }
}
