//! Exclusions that apply to all pods.

use super::outbound;
use super::parts::{
    CT_MARK, CT_STATUS, IPS_DST_NAT, MARK, clear, has, lacks, mark, of_pods, rule, stop,
};
use crate::node::{Family, Node};
use weir_netfilter::nft::{CmpOp, L4Proto, Rule, RuleBuilder};

/// Returns the exclusions of all pods, and step 15.
pub(super) fn last(node: &Node, families: &[Family]) -> Vec<Rule> {
    let mut rules = Vec::new();
    if !node.config.exclude.is_empty() {
        rules.push(rule().jump("ztunnel-EXCLUDE"));
        rules.push(stop(has(rule(), MARK, node.config.marks.skip)));
    }
    rules.extend(outbound(node, families));
    rules
}

/// Returns the rules for a packet from a pod to an excluded service that destination NAT translated to another enrolled pod. The
/// exclusion of the sender does not apply there, only exclusions of all pods: the packet is matched by its new destination, as if
/// the pod had sent it there.
pub(super) fn translated(node: &Node, families: &[Family]) -> [Vec<Rule>; 2] {
    let bits = node.config.marks.conn_skip;
    let of_family = |family: &Family| {
        // Connections that already have a mark keep it.
        let new = lacks(has(rule().l4proto(L4Proto::Tcp), MARK, bits), CT_MARK, bits);
        let new = has(new, CT_STATUS, IPS_DST_NAT);
        let of = of_pods(of_pods(new, *family, true), *family, false);
        of.jump("ztunnel-AGAIN")
    };
    let exclude = (!node.config.exclude.is_empty()).then(|| rule().jump("ztunnel-EXCLUDE"));
    let again = [clear(rule(), bits).build()].into_iter().chain(exclude);
    [families.iter().map(of_family).collect(), again.collect()]
}

/// Returns the exclusions. Ports come first, since an exception applies to networks only, and ends the chain. For networks the
/// longest prefix decides. The mark is saved in the connection like that of everything that is skipped.
pub(super) fn excluded(node: &Node, families: &[Family]) -> Vec<Rule> {
    let (exclude, bits) = (&node.config.exclude, node.config.marks.conn_skip);
    let mut rules = excluded_ports(node, families);
    for family in families {
        for is_source in [true, false] {
            let of_pods = || of_pods(rule().l4proto(L4Proto::Tcp), *family, is_source);
            let mut ends = |of: RuleBuilder, is_excluded: bool| {
                if is_excluded {
                    rules.push(mark(of.clone(), bits).build());
                }
                rules.push(stop(of));
            };
            let nets = exclude.ordered().into_iter();
            for (net, is_excluded) in nets.filter(|(net, _)| family.of(&net.addr())) {
                let peer = match is_source {
                    true => of_pods().daddr(CmpOp::Eq, net),
                    false => of_pods().saddr(CmpOp::Eq, net),
                };
                ends(peer, is_excluded);
            }
        }
    }
    rules
}

pub(super) fn excluded_ports(node: &Node, families: &[Family]) -> Vec<Rule> {
    let (exclude, bits) = (&node.config.exclude, node.config.marks.conn_skip);
    let mut rules = Vec::new();
    for family in families {
        for (is_source, ports) in [
            (true, &exclude.outbound_ports),
            (false, &exclude.inbound_ports),
        ] {
            let ports: Vec<u16> = ports.iter().copied().collect();
            if !ports.is_empty() {
                let of_pods = of_pods(rule().l4proto(L4Proto::Tcp), *family, is_source);
                let port = of_pods.dports(L4Proto::Tcp, CmpOp::Eq, &ports);
                rules.push(mark(port, bits).build());
            }
        }
    }
    rules
}
