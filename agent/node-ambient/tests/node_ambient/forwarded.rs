//! Connections to an enrolled pod that the node translates: NodePort and hostPort, and what it masquerades. They are others', and
//! go to the proxy although the node's own address may be their source; connections of the node's own processes do not.

use crate::ebpf::{answer, applied, bpffs, builds, web};
use crate::scene::{
    OUTSIDE, PATIENCE, POD, PROXY, Scene, Servers, address, ask, connect, inside, socket,
};
use crate::{carrier, each, lacking, meter, up};
use std::net::{IpAddr, SocketAddr};
use weir_cni::compile::Engine;
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Data, Hook, L4Proto, Masquerade, Match, MetaKey, Nat, NatKind,
    Operand, Rule, Selector, Source, Statement, Table, TableFamily, priority,
};
use weir_netfilter::xtables::{Script, XtEngine, XtFamily};
use weir_netlink::Result;
use weir_testing::BpfFs;

/// Ports of the node that lead to the pod, and to the server outside.
const TO_POD: u16 = 30_080;
const TO_OUTSIDE: u16 = 30_081;
/// As kube-proxy marks what it masquerades.
const MASQUERADED: u32 = 0x4000;

/// What the node does with connections from outside to the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The destination is translated: hostPort, or a NodePort with `externalTrafficPolicy: Local`.
    Port,
    /// The source, too: a NodePort with `externalTrafficPolicy: Cluster`.
    MasqueradedPort,
    /// The source alone, as of a network of Docker.
    Masqueraded,
}

const WAYS: [Way; 3] = [Way::Port, Way::MasqueradedPort, Way::Masqueraded];

impl Way {
    /// Where a client outside connects to.
    fn entry(self, v6: bool) -> SocketAddr {
        match self {
            Self::Masqueraded => web(POD, v6),
            _ => at_node(v6, TO_POD),
        }
    }
}

fn at_node(v6: bool, port: u16) -> SocketAddr {
    SocketAddr::new(address(OUTSIDE, v6, 1), port)
}

fn family(v6: bool) -> TableFamily {
    match v6 {
        false => TableFamily::Ip,
        true => TableFamily::Ip6,
    }
}

fn in_nft(scene: &Scene, way: Way, v6: bool) -> Result<()> {
    let mark = Selector::Meta(MetaKey::Mark);
    let translate = |port: u16, to: IpAddr| {
        let rule = Rule::builder()
            .daddr(CmpOp::Eq, address(OUTSIDE, v6, 1).into())
            .dport(L4Proto::Tcp, CmpOp::Eq, port..=port);
        let marked = Source::Bitwise {
            selector: mark.clone(),
            mask: Data::ne32(!MASQUERADED),
            xor: Data::ne32(MASQUERADED),
        };
        let rule = match way {
            Way::MasqueradedPort => rule.push(Statement::MetaSet(MetaKey::Mark, marked)),
            _ => rule,
        };
        let nat = Nat {
            kind: NatKind::Dnat,
            family: family(v6),
            addrs: Some((to, to)),
            ports: Some(8080..=8080),
            flags: 0,
        };
        rule.push(Statement::Nat(nat)).build()
    };
    let services = || {
        vec![
            translate(TO_POD, inside(POD, v6)),
            translate(TO_OUTSIDE, inside(OUTSIDE, v6)),
        ]
    };
    let masquerade = match way {
        Way::Masqueraded => Rule::builder()
            .saddr(CmpOp::Eq, inside(OUTSIDE, v6).into())
            .daddr(CmpOp::Eq, inside(POD, v6).into()),
        _ => Rule::builder().push(Statement::Match(Match {
            selector: mark.clone(),
            mask: Some(Data::ne32(MASQUERADED)),
            op: CmpOp::Eq,
            operand: Operand::Value(Data::ne32(MASQUERADED)),
        })),
    };
    let masquerade = masquerade.push(Statement::Masquerade(Masquerade::default()));
    let chain = |name, hook, priority, rules| Chain {
        rules,
        ..Chain::base(name, ChainType::Nat, hook, priority)
    };
    let table = Table {
        chains: vec![
            chain("pre", Hook::Prerouting, priority::DSTNAT, services()),
            chain("out", Hook::Output, priority::DSTNAT, services()),
            chain(
                "post",
                Hook::Postrouting,
                priority::SRCNAT,
                vec![masquerade.build()],
            ),
        ],
        ..Table::new(family(v6), "kube-proxy")
    };
    meter::add(scene, table)
}

fn in_legacy(scene: &Scene, way: Way, v6: bool) -> Result<()> {
    let node = address(OUTSIDE, v6, 1);
    let (pod, outside) = (inside(POD, v6), inside(OUTSIDE, v6));
    let bracketed = |address: IpAddr| SocketAddr::new(address, 8080);
    let mut rules = String::new();
    for hook in ["PREROUTING", "OUTPUT"] {
        for (port, to) in [(TO_POD, pod), (TO_OUTSIDE, outside)] {
            let at = format!("-A {hook} -d {node} -p tcp -m tcp --dport {port}");
            if way == Way::MasqueradedPort {
                rules += &format!("{at} -j MARK --set-xmark {MASQUERADED:#x}/{MASQUERADED:#x}\n");
            }
            let to = bracketed(to);
            rules += &format!("{at} -j DNAT --to-destination {to}\n");
        }
    }
    rules += &match way {
        Way::Masqueraded => format!("-A POSTROUTING -s {outside} -d {pod} -j MASQUERADE\n"),
        _ => format!(
            "-A POSTROUTING -m mark --mark {MASQUERADED:#x}/{MASQUERADED:#x} -j MASQUERADE\n"
        ),
    };
    let chains = ["PREROUTING", "OUTPUT", "POSTROUTING"];
    let chains = chains
        .map(|chain| format!(":{chain} ACCEPT [0:0]\n"))
        .concat();
    let text = format!("*nat\n{chains}{rules}COMMIT\n");
    let of = if v6 { XtFamily::Ip6 } else { XtFamily::Ip };
    let script = Script::parse(of, &text).unwrap();
    let restore = || XtEngine::open()?.restore(&script, true).map(drop);
    scene.node.run(restore).unwrap()
}

/// What kube-proxy, portmap or Docker would add, by this engine.
fn translate(scene: &Scene, engine: Engine, way: Way) -> Result<()> {
    [false, true].into_iter().try_for_each(|v6| match engine {
        Engine::Nft => in_nft(scene, way, v6),
        Engine::Xtables => in_legacy(scene, way, v6),
    })
}

/// Connections of others are the proxy's, both ways; those of the node's own processes are not.
fn is_captured(scene: &Scene, servers: &Servers, way: Way) {
    for v6 in [false, true] {
        let entry = way.entry(v6);
        servers.drain();
        let mut open = connect(&scene.outside, entry).unwrap_or_else(|e| panic!("{entry}: {e}"));
        for text in ["a", "b"] {
            let said = ask(&mut open, text).unwrap_or_else(|e| panic!("{entry}: {e}"));
            assert_eq!(said, format!("inbound|pod|{text}"), "{entry}");
        }
        let seen = servers.seen.recv_timeout(PATIENCE).unwrap();
        assert_eq!((seen.who, seen.to), ("inbound", web(POD, v6)));
        // While it is open, probes reach the pod itself, from the address that others have behind the node as well.
        assert_eq!(answer(&scene.node, web(POD, v6)), "pod|x");
        assert_eq!(ask(&mut open, "c").unwrap(), "inbound|pod|c", "{entry}");
    }
}

// matrix: every
#[test]
fn rules_capture_what_the_node_translates_for_others() {
    for way in WAYS {
        each(&crate::CARRIERS, |scene, engine, name| {
            let servers = Servers::start(scene);
            match translate(scene, engine, way) {
                Err(e) if e.is_unsupported() => {
                    return println!("skipped: {}: {e}", lacking(engine));
                }
                made => made.unwrap(),
            }
            for v6 in [false, true] {
                let said = answer(&scene.outside, way.entry(v6));
                assert_eq!(said, "pod|x", "{way:?} works without rules");
            }
            if !up(scene, engine, &carrier(name)) {
                return;
            }
            println!("{way:?}");
            is_captured(scene, &servers, way);
            for v6 in [false, true] {
                // What the node translates for an enrolled pod is captured as well.
                if way != Way::Masqueraded {
                    let said = answer(&scene.pod, at_node(v6, TO_OUTSIDE));
                    assert_eq!(said, "outbound|outside|x", "{way:?}");
                }
                let refused = connect(&scene.pod, at_node(v6, 9)).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
            }
        });
    }
}

/// Rules of netfilter that translate, by whichever engine this kernel has.
fn translated(scene: &Scene, way: Way) -> bool {
    let by = [Engine::Nft, Engine::Xtables].into_iter();
    let mut by = by.map(|engine| (engine, translate(scene, engine, way)));
    by.any(|(engine, made)| match made {
        Err(e) if e.is_unsupported() => {
            println!("skipped: {}: {e}", lacking(engine));
            false
        }
        made => {
            made.unwrap();
            true
        }
    })
}

// matrix: every
#[test]
fn programs_capture_what_the_node_translates_for_others() {
    for way in WAYS {
        for (scene, mounted) in builds() {
            let servers = Servers::start(&scene);
            if !translated(&scene, way) {
                return;
            }
            for v6 in [false, true] {
                let said = answer(&scene.outside, way.entry(v6));
                assert_eq!(said, "pod|x", "{way:?} works without programs");
            }
            applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
            println!("{way:?}");
            is_captured(&scene, &servers, way);
            // What the node's own processes send there is not captured either, and a pod gets its answers.
            for v6 in [false, true] {
                if way != Way::Masqueraded {
                    assert_eq!(answer(&scene.node, way.entry(v6)), "pod|x", "{way:?}");
                    let said = answer(&scene.pod, at_node(v6, TO_OUTSIDE));
                    assert_eq!(said, "outside|x", "{way:?}");
                }
                let refused = connect(&scene.pod, at_node(v6, 9)).unwrap_err();
                assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
            }
        }
    }
}

/// First packets that were captured on their way to a pod.
fn inbound(scene: &Scene, mounted: &BpfFs) -> u64 {
    let counters = weir_ebpf::node::Node::of(&scene.node, &bpffs(mounted)).counters();
    let mut counters = counters.unwrap().into_iter();
    counters
        .find(|(name, _)| name.starts_with("inbound"))
        .unwrap()
        .1
}

/// At a bridge the first packet of another pod may still have that pod's socket when it comes to this one.
#[test]
fn programs_capture_what_another_pod_sends_with_the_address_of_the_node() {
    let has_links = || weir_bpf::attached(1, weir_bpf::BPF_TCX_INGRESS).is_ok();
    for mounted in BpfFs::each(has_links) {
        let Some(scene) = Scene::bridged() else {
            return;
        };
        let servers = Servers::start(&scene);
        applied(&scene, &mounted, &scene.config(&[(PROXY, 1)], ""));
        for v6 in [false, true] {
            let from = SocketAddr::new(address(POD, v6, 1), 0);
            let connect = || {
                let socket = socket(web(POD, v6), true);
                socket.bind(&from.into()).unwrap();
                let limit = std::time::Duration::from_millis(100);
                drop(socket.connect_timeout(&web(POD, v6).into(), limit));
            };
            // The first packet may be lost while the address is asked for.
            let begun = std::time::Instant::now();
            let before = inbound(&scene, &mounted);
            while inbound(&scene, &mounted) == before {
                assert!(begun.elapsed() < PATIENCE, "it is not captured");
                scene.second.run(connect).unwrap();
            }
        }
        // The node answers that this connection is none of its own, so that the application sees none.
        assert!(servers.drain().iter().all(|seen| seen.who != "pod"));
        assert_eq!(answer(&scene.node, web(POD, false)), "pod|x");
    }
}
