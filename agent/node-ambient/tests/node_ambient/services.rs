//! Services of kube-proxy without endpoints.

use crate::ebpf::{applied, bpffs, builds};
use crate::scene::{OUTSIDE, PATIENCE, PROXY, Scene, Servers, connect, inside, tool};
use crate::{carrier, each, lacking, meter, up};
use std::io::ErrorKind;
use std::net::SocketAddr;
use weir_cni::compile::Engine;
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Hook, L4Proto, Reject, Rule, Statement, Table, TableFamily, priority,
    raw,
};
use weir_netlink::Result;
use weir_netlink::route::{Route, Routing};
use weir_node_ambient::{ebpf, remove};

fn service() -> SocketAddr {
    SocketAddr::from(([10, 96, 0, 11], 80))
}

/// The hooks at which the service is rejected, as in nf_tables mode of kube-proxy: prerouting and forward.
const HOOKS: [(Hook, i32); 2] = [
    (Hook::Prerouting, priority::DSTNAT - 10),
    (Hook::Forward, priority::DSTNAT - 10),
];

/// The node has a default route: without one, the pod would get an error from the node.
fn add_default_route(scene: &Scene) {
    let node = Routing::open_in(&scene.node).unwrap();
    let all = "0.0.0.0/0".parse().unwrap();
    let route = Route::unicast(all, Some(inside(OUTSIDE, false)), None);
    node.add_route(&route).unwrap();
}

fn reject(scene: &Scene, (hook, priority): (Hook, i32)) -> Result<()> {
    let rule = Rule::builder()
        .daddr(CmpOp::Eq, service().ip().into())
        .dport(L4Proto::Tcp, CmpOp::Eq, 80..=80);
    // `reject`: port unreachable
    let rule = rule.push(Statement::Reject(Reject {
        kind: Some(raw::NFT_REJECT_ICMP_UNREACH),
        icmp_code: Some(3),
        ..Reject::default()
    }));
    let chain = Chain {
        rules: vec![rule.build()],
        ..Chain::base("reject", ChainType::Filter, hook, priority)
    };
    let table = Table {
        chains: vec![chain],
        ..Table::new(TableFamily::Ip, "kube-proxy")
    };
    meter::add(scene, table)
}

fn refused(scene: &Scene) {
    let error = connect(&scene.pod, service()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

fn reaches_the_proxy(scene: &Scene, servers: &Servers) {
    drop(connect(&scene.pod, service()).unwrap());
    // The proxy may report a failed connection of an earlier test later.
    let mut seen = std::iter::from_fn(|| servers.seen.recv_timeout(PATIENCE).ok());
    let first = seen.find(|seen| seen.who != "no upstream");
    let first = first.map(|seen| (seen.who, seen.to));
    assert_eq!(first, Some(("outbound", service())));
}

/// A rejection in another table is final in nf_tables: as without weir, the connection fails at once instead of hanging.
// matrix: every; variants no-nftables no-xtables
#[test]
fn with_rules_a_service_that_nf_tables_reject_is_refused_as_without_them() {
    for hook in HOOKS {
        each(&["vxlan", "veth"], |scene, engine, name| {
            let servers = Servers::start(scene);
            add_default_route(scene);
            match reject(scene, hook) {
                Err(e) if e.is_unsupported() => {
                    return println!("skipped: {}: {e}", lacking(Engine::Nft));
                }
                made => made.unwrap(),
            }
            refused(scene);
            if !up(scene, engine, &carrier(name)) {
                return;
            }
            refused(scene);
            assert_eq!(servers.drain(), []);
            meter::remove(scene, TableFamily::Ip, "kube-proxy");
            reaches_the_proxy(scene, &servers);
            let config = scene.config(&[(PROXY, 1)], &carrier(name));
            remove(&scene.node, Some(&config)).unwrap();
        });
    }
}

/// kube-proxy in iptables mode with the tools for nf_tables.
#[test]
fn with_rules_a_service_that_iptables_nft_rejects_is_refused_as_without_them() {
    each(&["vxlan"], |scene, engine, name| {
        let servers = Servers::start(scene);
        add_default_route(scene);
        let rule = "-w -A FORWARD -d 10.96.0.11/32 -p tcp --dport 80 -j REJECT";
        let words: Vec<&str> = rule.split(' ').collect();
        let Some(run) = scene.node.run(|| tool("iptables-nft", &words)).unwrap() else {
            return;
        };
        assert!(run.status.success(), "{run:?}");
        refused(scene);
        if !up(scene, engine, &carrier(name)) {
            return;
        }
        refused(scene);
        assert_eq!(servers.drain(), []);
    });
}

/// The programs run before the node's rules.
// matrix: every
#[test]
fn with_programs_it_reaches_the_proxy() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        add_default_route(&scene);
        for hook in HOOKS {
            match reject(&scene, hook) {
                Err(e) if e.is_unsupported() => {
                    return println!("skipped: {}: {e}", lacking(Engine::Nft));
                }
                made => made.unwrap(),
            }
            refused(&scene);
            let config = scene.config(&[(PROXY, 1)], "");
            applied(&scene, &mounted, &config);
            reaches_the_proxy(&scene, &servers);
            servers.drain();
            ebpf::remove(&scene.node, &bpffs(&mounted), Some(&config)).unwrap();
            refused(&scene);
            meter::remove(&scene, TableFamily::Ip, "kube-proxy");
        }
    }
}
