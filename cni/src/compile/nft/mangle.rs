//! `istio-proxy-mangle`: transparent proxying, and packets that conntrack finds invalid.

use super::super::OUTBOUND_MARK;
use super::super::family::Family;
use super::{
    Chains, DIVERT, DROP, End, INBOUND, OUTPUT, Owner, PREROUTING, Semantics, TPROXY, tcp,
};
use crate::config::{Inbound, Intent};
use weir_netfilter::nft::raw::ct_state::{ESTABLISHED, INVALID, RELATED};
use weir_netfilter::nft::{self, ChainType, CmpOp, L4Proto, Rule, RuleBuilder, Verdict, priority};

/// States of packets of known and related connections.
const KNOWN: u32 = ESTABLISHED | RELATED;

pub(super) fn chains(intent: &Intent, semantics: Semantics, families: &[Family]) -> Chains {
    // Type route: an outgoing packet whose mark changes here must be routed again.
    let types = [ChainType::Filter, ChainType::Route];
    let regular = [DIVERT, TPROXY, INBOUND, DROP];
    let mut chains = Chains::new(types, priority::MANGLE, &regular);
    let mark = intent.tproxy().map(|t| t.mark);
    prerouting(intent, semantics, mark, &mut chains);
    if intent.drop_invalid {
        chains.add(DROP, Rule::builder().counter().verdict(Verdict::Drop));
    }
    let Some(mark) = mark else { return chains };
    output(intent, semantics, families, mark, &mut chains);
    inbound(intent, families, mark, &mut chains);
    if intent.inbound != Inbound::Off {
        divert(mark, &mut chains);
        tproxy(intent, semantics, families, mark, &mut chains);
    }
    chains
}

/// 1. Transparent: packets from excluded interfaces return.
/// 2. Invalid packets are dropped, if configured; with [`Semantics::Nft`] only TCP.
/// 3. Transparent: other TCP is inbound traffic.
/// 4. Transparent: the mark of the proxy's connections is saved in conntrack.
fn prerouting(intent: &Intent, semantics: Semantics, mark: Option<u32>, chains: &mut Chains) {
    if mark.is_some() {
        for name in &intent.exclude_interfaces {
            let rule = semantics.iifname(name.as_str());
            chains.add(PREROUTING, rule.count_return());
        }
    }
    if intent.drop_invalid {
        let packets = match semantics {
            Semantics::Nft => tcp(),
            Semantics::Xtables => Rule::builder(),
        };
        chains.add(PREROUTING, packets.ct_state(INVALID).count_jump(DROP));
    }
    let Some(mark) = mark else { return };
    if intent.inbound != Inbound::Off {
        chains.add(PREROUTING, tcp().count_jump(INBOUND));
    }
    let save = tcp()
        .mark(CmpOp::Eq, mark)
        .counter()
        .set_ct_mark_from_mark();
    chains.add(PREROUTING, save.build());
}

/// 1. Packets to excluded interfaces return.
/// 2. The proxy's marked packets over `lo` return.
/// 3. Its packets to the pod's own addresses over `lo` get the second mark: one rule per user of the proxy,
///    then one per group.
/// 4. Replies of the proxy's connections get the mark back, so that they are routed to `lo`.
fn output(
    intent: &Intent,
    semantics: Semantics,
    families: &[Family],
    mark: u32,
    chains: &mut Chains,
) {
    for name in &intent.exclude_interfaces {
        let rule = semantics.oifname(name.as_str());
        chains.add(OUTPUT, rule.count_return());
    }
    let over_lo = || {
        Rule::builder()
            .oifname(CmpOp::Eq, "lo")
            .l4proto(L4Proto::Tcp)
    };
    chains.add(OUTPUT, over_lo().mark(CmpOp::Eq, mark).count_return());
    for owner in Owner::all(intent) {
        for family in families {
            let to_itself = over_lo().daddr(CmpOp::Neq, family.loopback);
            let own = owner.matching(to_itself, CmpOp::Eq);
            chains.add(OUTPUT, own.counter().set_mark(OUTBOUND_MARK).build());
        }
    }
    let restore = tcp().ct_mark(CmpOp::Eq, mark).counter().set_mark_from_ct();
    chains.add(OUTPUT, restore.build());
}

/// `istio-inbound`:
/// 1. The proxy's own marked packets return.
/// 2. The proxy's connections to the application return. With IPv6, its rule is here and that of
///    IPv4 after rule 3. The order changes no verdict; upstream's rule sets have this order.
/// 3. Other packets over `lo` return, unless the proxy sends them to its own pod.
/// 4. All ports captured: excluded ones return. Packets of known connections are diverted to their
///    socket, others go to the inbound listener.
/// 5. Ports listed: as 4, for each listed port.
fn inbound(intent: &Intent, families: &[Family], mark: u32, chains: &mut Chains) {
    let mut add = |rule| chains.add(INBOUND, rule);
    let over_lo = || {
        Rule::builder()
            .iifname(CmpOp::Eq, "lo")
            .l4proto(L4Proto::Tcp)
    };
    let to_application = |f: &Family| over_lo().saddr(CmpOp::Eq, f.passthrough).count_return();
    add(tcp().mark(CmpOp::Eq, mark).count_return());
    let mut passthrough = families.iter().rev().map(to_application);
    passthrough.next().into_iter().for_each(&mut add);
    add(over_lo().mark(CmpOp::Neq, OUTBOUND_MARK).count_return());
    passthrough.for_each(&mut add);
    match &intent.inbound {
        Inbound::Off => {}
        Inbound::All => {
            for ports in &intent.inbound_ports_exclude {
                let to_port = Rule::builder().dport(L4Proto::Tcp, CmpOp::Eq, ports.0.clone());
                add(to_port.count_return());
            }
            add(tcp().ct_state(KNOWN).count_jump(DIVERT));
            add(tcp().count_jump(TPROXY));
        }
        Inbound::Ports(list) => {
            for ports in list {
                let to_port = |r: RuleBuilder| r.dport(L4Proto::Tcp, CmpOp::Eq, ports.0.clone());
                add(to_port(tcp().ct_state(KNOWN)).count_jump(DIVERT));
                add(to_port(tcp()).count_jump(TPROXY));
            }
        }
    }
}

/// `istio-divert`: sets the mark that selects the local table, and accepts.
fn divert(mark: u32, chains: &mut Chains) {
    chains.add(DIVERT, Rule::builder().counter().set_mark(mark).build());
    chains.add(DIVERT, Rule::builder().counter().verdict(Verdict::Accept));
}

/// `istio-tproxy`: packets that are not for loopback go to the inbound listener unchanged. The tproxy
/// statement does not end the evaluation, so an accept follows; the counter is before the accept. If there is no listener,
/// or it is not transparent, the statement ends the rule (`NFT_BREAK`), where the legacy target drops the packet: with
/// [`Semantics::Xtables`] rules follow that drop it.
fn tproxy(
    intent: &Intent,
    semantics: Semantics,
    families: &[Family],
    mark: u32,
    chains: &mut Chains,
) {
    let captured = |family: &Family| tcp().daddr(CmpOp::Neq, family.loopback);
    for family in families {
        let kind = if family.is_v6 {
            nft::TableFamily::Ip6
        } else {
            nft::TableFamily::Ip
        };
        let rule = captured(family)
            .tproxy(kind, intent.inbound_capture_port)
            .set_mark(mark);
        chains.add(TPROXY, rule.counter().verdict(Verdict::Accept));
    }
    if semantics == Semantics::Xtables {
        for family in families {
            chains.add(TPROXY, captured(family).counter().verdict(Verdict::Drop));
        }
    }
}
