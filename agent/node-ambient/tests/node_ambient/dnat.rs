//! Connections that the node translates, as kube-proxy, portmap and Docker configure it, by either engine.

use crate::scene::{OUTSIDE, POD, Scene, inside};
use crate::{lacking, meter};
use std::net::SocketAddr;
use weir_cni::compile::Engine;
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Data, Hook, L4Proto, Masquerade, Match, MetaKey, Nat, NatKind,
    Operand, Rule, Selector, Source, Statement, Table, TableFamily, priority,
};
use weir_netfilter::xtables::{Script, XtEngine, XtFamily};
use weir_netlink::Result;

/// The mark of kube-proxy for connections to masquerade.
const MASQUERADED: u32 = 0x4000;

/// How the node translates connections from outside to the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The destination: hostPort, a service, or a NodePort with `externalTrafficPolicy: Local`.
    Port,
    /// The source as well: a NodePort with `externalTrafficPolicy: Cluster`.
    MasqueradedPort,
    /// The source alone, as for a network of Docker.
    Masqueraded,
}

/// Destinations of one family, each with its translation.
pub(crate) type Entries = Vec<(SocketAddr, SocketAddr)>;

fn in_nft(scene: &Scene, way: Way, v6: bool, entries: &Entries) -> Result<()> {
    let family = if v6 {
        TableFamily::Ip6
    } else {
        TableFamily::Ip
    };
    let mark = Selector::Meta(MetaKey::Mark);
    let translate = |(entry, to): &(SocketAddr, SocketAddr)| {
        let rule = Rule::builder().daddr(CmpOp::Eq, entry.ip().into()).dport(
            L4Proto::Tcp,
            CmpOp::Eq,
            entry.port()..=entry.port(),
        );
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
            family,
            addrs: Some((to.ip(), to.ip())),
            ports: Some(to.port()..=to.port()),
            flags: 0,
        };
        rule.push(Statement::Nat(nat)).build()
    };
    let services = || -> Vec<Rule> { entries.iter().map(translate).collect() };
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
    let after = vec![masquerade.build()];
    let table = Table {
        chains: vec![
            chain("pre", Hook::Prerouting, priority::DSTNAT, services()),
            chain("out", Hook::Output, priority::DSTNAT, services()),
            chain("post", Hook::Postrouting, priority::SRCNAT, after),
        ],
        ..Table::new(family, "kube-proxy")
    };
    meter::add(scene, table)
}

fn in_legacy(scene: &Scene, way: Way, v6: bool, entries: &Entries) -> Result<()> {
    let (pod, outside) = (inside(POD, v6), inside(OUTSIDE, v6));
    let mut rules = String::new();
    for hook in ["PREROUTING", "OUTPUT"] {
        for (entry, to) in entries {
            let (of, port) = (entry.ip(), entry.port());
            let at = format!("-A {hook} -d {of} -p tcp -m tcp --dport {port}");
            if way == Way::MasqueradedPort {
                rules += &format!("{at} -j MARK --set-xmark {MASQUERADED:#x}/{MASQUERADED:#x}\n");
            }
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

/// Translates both families with this engine. Prints the reason and returns false if the kernel lacks it.
pub(crate) fn translates(
    scene: &Scene,
    engine: Engine,
    way: Way,
    entries: impl Fn(bool) -> Entries,
) -> bool {
    let mut made = [false, true].into_iter();
    let made = made.try_for_each(|v6| match engine {
        Engine::Nft => in_nft(scene, way, v6, &entries(v6)),
        Engine::Xtables => in_legacy(scene, way, v6, &entries(v6)),
    });
    match made {
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

/// Translates with any engine that this kernel has.
pub(crate) fn translates_by_any(
    scene: &Scene,
    way: Way,
    entries: impl Fn(bool) -> Entries,
) -> bool {
    let mut engines = [Engine::Nft, Engine::Xtables].into_iter();
    engines.any(|engine| translates(scene, engine, way, &entries))
}
