//! Connections between two enrolled pods of the node that the node translates, as kube-proxy does, and those of pods to the proxy itself.

use crate::ebpf::{answer, applied, builds, web};
use crate::scene::{OUTSIDE, PROXY, SECOND, Scene, Servers, address, inside};
use crate::{each, lacking, meter, up};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use weir_cni::compile::Engine;
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Hook, L4Proto, Nat, NatKind, Rule, Statement, Table, TableFamily,
    priority,
};
use weir_netfilter::xtables::{Script, XtEngine, XtFamily};
use weir_netlink::Result;
use weir_node_ambient::{Config, Exclude, Pod};

/// A port of the node that leads to the second pod.
const PORT: u16 = 30_080;

/// A service that leads there.
fn service(v6: bool) -> SocketAddr {
    let address: IpAddr = match v6 {
        false => Ipv4Addr::new(10, 96, 0, 2).into(),
        true => Ipv6Addr::new(0xfd96, 0, 0, 0, 0, 0, 0, 2).into(),
    };
    SocketAddr::new(address, 80)
}

fn at_node(v6: bool) -> SocketAddr {
    SocketAddr::new(address(OUTSIDE, v6, 1), PORT)
}

fn translate(scene: &Scene, engine: Engine, v6: bool) -> Result<()> {
    let to = inside(SECOND, v6);
    let entries = [at_node(v6), service(v6)];
    if engine == Engine::Nft {
        let family = if v6 {
            TableFamily::Ip6
        } else {
            TableFamily::Ip
        };
        let translate = |entry: SocketAddr| {
            let rule = Rule::builder().daddr(CmpOp::Eq, entry.ip().into());
            let rule = rule.dport(L4Proto::Tcp, CmpOp::Eq, entry.port()..=entry.port());
            let nat = Nat {
                kind: NatKind::Dnat,
                family,
                addrs: Some((to, to)),
                ports: Some(8080..=8080),
                flags: 0,
            };
            rule.push(Statement::Nat(nat)).build()
        };
        let pre = Chain::base("pre", ChainType::Nat, Hook::Prerouting, priority::DSTNAT);
        // The answers of what has no rule of its own are translated as well.
        let table = Table {
            chains: vec![Chain {
                rules: entries.map(translate).to_vec(),
                ..pre
            }],
            ..Table::new(family, "kube-proxy")
        };
        return meter::add(scene, table);
    }
    let rule = |entry: SocketAddr| {
        let (of, port, to) = (entry.ip(), entry.port(), SocketAddr::new(to, 8080));
        format!(
            "-A PREROUTING -d {of} -p tcp -m tcp --dport {port} -j DNAT --to-destination {to}\n"
        )
    };
    let text = format!(
        "*nat\n:PREROUTING ACCEPT [0:0]\n{}COMMIT\n",
        entries.map(rule).concat()
    );
    let of = if v6 { XtFamily::Ip6 } else { XtFamily::Ip };
    let script = Script::parse(of, &text).unwrap();
    let restore = || XtEngine::open()?.restore(&script, true).map(drop);
    scene.node.run(restore).unwrap()
}

/// By this engine, in both families. False, with the reason printed, where the kernel lacks it.
fn translated(scene: &Scene, engine: Engine) -> bool {
    let mut made = [false, true].into_iter();
    match made.try_for_each(|v6| translate(scene, engine, v6)) {
        Err(e) if e.is_unsupported() => {
            println!("skipped: {}: {e}", lacking(engine));
            false
        }
        made => {
            made.unwrap();
            true
        }
    }
}

/// Both pods are enrolled, and the first one excludes this.
fn both(scene: &Scene, of_first: &str, of_all: &str) -> Config {
    let more = format!(r#", "carrier": "veth", "exclude": {{{of_all}}}"#);
    let mut config = scene.config(&[(PROXY, 1)], &more);
    let text = format!("{{{of_first}}}");
    config.pods[0].exclude = Exclude::from_annotation(&text, "test").unwrap();
    config.pods.push(Pod {
        uid: "pod-b".to_owned(),
        addresses: [false, true].map(|v6| inside(SECOND, v6)).to_vec(),
        netns: Some(scene.second.path()),
        ..Pod::default()
    });
    config
}

const NETWORKS: &str = r#""peers": ["10.96.0.0/16", "fd96::/16"]"#;

/// What the first pod excludes, what all exclude, and who gets what it sends to the service, by programs: what the second pod does not
/// exclude is captured on its way there. The proxy knows the translated destination alone, which the first pod may exclude or not.
const EXCLUDED: [(&str, &str, &str); 4] = [
    (r#""outbound_ports": [80]"#, "", "outbound"),
    (NETWORKS, "", "outbound"),
    (r#""peers": ["0.0.0.0/0", "::/0"]"#, "", "inbound"),
    ("", NETWORKS, "outbound"),
];

fn says(scene: &Scene, to: SocketAddr, expected: &str, case: &str) {
    assert_eq!(answer(&scene.pod, to), expected, "{to}: {case}");
}

// matrix: every
#[test]
fn programs_capture_what_the_node_translates_between_pods() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        servers.echo(&scene.second, "neighbour");
        if ![Engine::Nft, Engine::Xtables]
            .into_iter()
            .any(|e| translated(&scene, e))
        {
            return;
        }
        applied(&scene, &mounted, &both(&scene, "", ""));
        for v6 in [false, true] {
            let said = "outbound|neighbour|x";
            says(&scene, at_node(v6), said, "a port of the node");
            says(&scene, web(SECOND, v6), said, "the pod");
            // The proxy sends it on to the service, which the node translates: it is captured once more.
            let said = "outbound|outbound|neighbour|x";
            says(&scene, service(v6), said, "a service");
        }
        for (of_first, of_all, by) in EXCLUDED {
            applied(&scene, &mounted, &both(&scene, of_first, of_all));
            let case = format!("{of_first} {of_all}");
            for v6 in [false, true] {
                for to in [service(v6), at_node(v6)] {
                    says(&scene, to, &format!("{by}|neighbour|x"), &case);
                }
            }
        }
    }
}

// matrix: every
#[test]
fn rules_capture_what_the_node_translates_between_pods() {
    each(&["veth"], |scene, engine, _| {
        let servers = Servers::start(scene);
        servers.echo(&scene.second, "neighbour");
        if !translated(scene, engine) || !up(scene, engine, r#", "carrier": "veth""#) {
            return;
        }
        for (of_first, of_all, _) in EXCLUDED {
            let config = both(scene, of_first, of_all);
            weir_node_ambient::apply(&config, &scene.node, Some(engine), false).unwrap();
            let left = weir_node_ambient::compare(&config, &scene.node, Some(engine)).unwrap();
            assert!(left.is_empty(), "{:#?}", left.host);
            // Legacy tables have no hook behind the translation where the route can still be chosen.
            let said = match engine {
                Engine::Nft => "inbound|neighbour|x",
                Engine::Xtables => "neighbour|x",
            };
            let case = format!("{of_first} {of_all}");
            for v6 in [false, true] {
                says(scene, service(v6), said, &case);
            }
        }
        // Where all exclude the pods themselves nothing is captured.
        let pods = r#""peers": ["10.1.0.0/16", "10.96.0.0/16", "fd00:1::/32", "fd96::/16"]"#;
        let config = both(scene, "", pods);
        weir_node_ambient::apply(&config, &scene.node, Some(engine), false).unwrap();
        for v6 in [false, true] {
            says(scene, service(v6), "neighbour|x", "all");
        }
    });
}

/// A scraper of its metrics, for example.
// matrix: every
#[test]
fn a_pod_reaches_the_proxy_itself() {
    for (scene, mounted) in builds() {
        let servers = Servers::start(&scene);
        servers.echo(&scene.proxy, "proxy");
        for dns in ["false", "true"] {
            let more = format!(r#", "dns_capture": {dns}"#);
            applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], &more));
            for v6 in [false, true] {
                says(&scene, web(PROXY, v6), "proxy|x", "its own address");
                assert_eq!(answer(&scene.proxy, web(crate::POD, v6)), "pod|x");
                says(&scene, web(OUTSIDE, v6), "outbound|outside|x", "another");
            }
        }
        // Nor is it captured once no proxy is active.
        applied(&scene, &mounted, &scene.config(&[], ""));
        assert!(!crate::connects(&scene.pod, web(OUTSIDE, false)));
    }
}
