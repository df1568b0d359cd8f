//! The rules of the proxy's namespace.

use super::parts::{MARK, keeping, matching, nat_of, of_family, rule};
use super::{MEMORY, PROXY_TABLE, regular, remembered};
use crate::node::{Family, Node};
use crate::objects::{PROXY_CARRIERS, PROXY_MASK, RETURN_MARK, TPROXY_MARK};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_ambient::ztunnel::{HBONE, INBOUND, OUTBOUND};
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, Data, Element, Hook, L4Proto, MetaKey, Operand, PayloadBase,
    RuleBuilder, Ruleset, Selector, Statement, Table, TableFamily, Tproxy, Verdict, priority,
};

/// Matches ICMP errors. Neighbour discovery is ICMP, too, and not matched.
fn of_errors(rule: RuleBuilder, family: Family) -> RuleBuilder {
    let (proto, types) = errors(family);
    let types = types.iter().map(|kind| Element::value(Data::u8(*kind)));
    let kind = Selector::Payload {
        base: PayloadBase::Transport,
        offset: 0,
        len: 1,
    };
    let proto = Operand::Value(Data::u8(proto));
    let rule = matching(rule, Selector::Meta(MetaKey::L4proto), CmpOp::Eq, proto);
    matching(rule, kind, CmpOp::Eq, Operand::Anonymous(types.collect()))
}

/// Returns the protocol number and the types of ICMP errors: `linux/icmp.h` and `linux/icmpv6.h`.
pub(crate) fn errors(family: Family) -> (u8, &'static [u8]) {
    match family.is_v6 {
        false => (1, &[3, 11, 12]),
        true => (58, &[1, 2, 3, 4]),
    }
}

/// Returns the table of the proxy's namespace: HBONE, other inbound TCP and outbound TCP each have a listener; replies to
/// sockets with foreign addresses, and ICMP errors about their packets, arrive at the proxy's own interface. `memory`: sysctls and
/// their previous values.
#[must_use]
pub fn proxy<'a>(node: &Node, memory: impl IntoIterator<Item = (&'a str, &'a str)>) -> Ruleset {
    let Some(active) = &node.active else {
        return Ruleset::default();
    };
    let [pistioin, pistioout] = PROXY_CARRIERS;
    let set_mark = |builder: RuleBuilder, value| {
        builder.counter().push(Statement::MetaSet(
            MetaKey::Mark,
            keeping(MARK, value, PROXY_MASK),
        ))
    };
    let mut rules = Vec::new();
    for family in node.families().into_iter().filter(|f| f.proxy.is_some()) {
        let loopback: IpAddr = match family.is_v6 {
            true => Ipv6Addr::LOCALHOST.into(),
            false => Ipv4Addr::LOCALHOST.into(),
        };
        // `tproxy` does not change the mark, so the mark is set first.
        let to = |builder, port| {
            set_mark(of_family(builder, family), TPROXY_MARK)
                .push(Statement::Tproxy(Tproxy {
                    family: nat_of(family),
                    addr: Some(loopback),
                    port: Some(port),
                }))
                .verdict(Verdict::Accept)
        };
        let from = |link| rule().iifname(CmpOp::Eq, link).l4proto(L4Proto::Tcp);
        let hbone = from(pistioin).dport(L4Proto::Tcp, CmpOp::Eq, HBONE..=HBONE);
        rules.push(to(hbone, HBONE));
        rules.push(to(from(pistioout), OUTBOUND));
        rules.push(to(from(pistioin), INBOUND));
        if let Some(address) = family.proxy {
            let reply = from(&active.interface).daddr(CmpOp::Neq, address.into());
            rules.push(set_mark(reply, RETURN_MARK).build());
            let error = of_errors(rule().iifname(CmpOp::Eq, &active.interface), family);
            let error = error.daddr(CmpOp::Neq, address.into());
            rules.push(set_mark(error, RETURN_MARK).build());
        }
    }
    let redirecting = Chain {
        rules,
        ..Chain::base(
            "prerouting",
            ChainType::Filter,
            Hook::Prerouting,
            priority::MANGLE,
        )
    };
    let memory = regular(MEMORY, memory.into_iter().map(remembered).collect());
    let mut chains = vec![redirecting, memory];
    chains.retain(|chain| !chain.rules.is_empty());
    Ruleset {
        tables: vec![Table {
            chains,
            ..Table::new(TableFamily::Inet, PROXY_TABLE)
        }],
    }
}
