//! The rules of the proxy's namespace.

use super::{remembered, rule, table, tcp, xt};
use crate::nft::{MEMORY, errors};
use crate::node::{Family, Node};
use crate::objects::{PROXY_CARRIERS, PROXY_MASK, RETURN_MARK, TPROXY_MARK};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_ambient::ztunnel::{HBONE, INBOUND, OUTBOUND};
use weir_netfilter::xtables::{
    Chain, Extension, Match, Not, Protocol, Rule, RuleBuilder, Ruleset, Target, Tproxy, Xmark,
};

/// Returns the tables of the proxy's namespace. `memory`: sysctls and their previous values.
#[must_use]
pub fn proxy<'a>(node: &Node, memory: impl IntoIterator<Item = (&'a str, &'a str)>) -> Ruleset {
    let Some(active) = &node.active else {
        return Ruleset::default();
    };
    let [pistioin, pistioout] = PROXY_CARRIERS;
    let mut memory: Vec<Rule> = memory.into_iter().map(remembered).collect();
    let of = |family: Family| {
        let loopback: IpAddr = match family.is_v6 {
            true => Ipv6Addr::LOCALHOST.into(),
            false => Ipv4Addr::LOCALHOST.into(),
        };
        let to = |builder: RuleBuilder, port| {
            builder.target(Target::Tproxy(Tproxy {
                on_port: port,
                on_ip: loopback,
                mark: TPROXY_MARK,
                mask: PROXY_MASK,
            }))
        };
        let mut reply = tcp()
            .in_interface(&active.interface)
            .target(Target::Mark(Xmark {
                value: RETURN_MARK,
                mask: PROXY_MASK,
            }));
        reply.destination = family.proxy.map(|a| (Not(true), IpNet::from(a).into()));
        let hbone = rule().in_interface(pistioin).tcp_dport(HBONE.into());
        let (proto, types) = errors(family);
        let errors = types.iter().map(|kind| {
            let kind = Match::Extension(Extension::icmp_type(xt(family), *kind));
            let error = rule().protocol(Protocol(proto)).matching(kind);
            let mut error = error
                .in_interface(&active.interface)
                .target(Target::Mark(Xmark {
                    value: RETURN_MARK,
                    mask: PROXY_MASK,
                }));
            error.destination = reply.destination;
            error
        });
        let mut rules = vec![
            to(hbone, HBONE),
            to(tcp().in_interface(pistioout), OUTBOUND),
            to(tcp().in_interface(pistioin), INBOUND),
            reply.clone(),
        ];
        rules.extend(errors);
        let mut mangle = table(family, "mangle", vec![("PREROUTING", rules)]);
        // As at the node, the IPv4 table stores the values.
        if !family.is_v6 && !memory.is_empty() {
            let rules = std::mem::take(&mut memory);
            mangle.chains.push(Chain {
                rules,
                ..Chain::user(MEMORY)
            });
        }
        mangle
    };
    let families = node.families().into_iter();
    let families = families.filter(|f| f.proxy.is_some());
    Ruleset {
        tables: families.map(of).collect(),
    }
}
