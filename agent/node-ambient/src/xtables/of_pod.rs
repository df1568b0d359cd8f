//! Exclusions of single pods, as in nf_tables: one chain per pod, and one rule per port, since `multiport` has room for 15 ports.

use super::{PREFIX, mark, of_pods, rule, stop, tcp};
use crate::config::Pod;
use crate::exclude::chain_of;
use crate::node::{Family, Node};
use std::net::IpAddr;
use weir_netfilter::xtables::{Chain, Rule, RuleBuilder, Target};

fn excluding(node: &Node) -> impl Iterator<Item = &Pod> {
    let all = node.config.pods.iter();
    all.filter(|pod| !pod.exclude.is_empty())
}

fn addresses(pod: &Pod, family: Family) -> impl Iterator<Item = IpAddr> {
    let all = pod.addresses.iter().copied();
    all.filter(move |address| family.of(address))
}

fn tcp_of(pod: IpAddr, is_source: bool) -> RuleBuilder {
    match is_source {
        true => tcp().source(pod.into()),
        false => tcp().destination(pod.into()),
    }
}

fn goes_on(rule: RuleBuilder) -> Rule {
    rule.target(Target::Goto(format!("{PREFIX}OUTBOUND")))
}

/// True if any pod has exclusions.
pub(super) fn any(node: &Node) -> bool {
    excluding(node).next().is_some()
}

/// Returns the end of `PREROUTING`: it leads to the chain of the sender, or of the receiver, or to the chain for all others.
pub(super) fn dispatch(node: &Node, family: Family) -> Vec<Rule> {
    let mut rules = Vec::new();
    for is_source in [true, false] {
        for pod in excluding(node) {
            let goto = |own| tcp_of(own, is_source).target(Target::Goto(chain_of(pod)));
            rules.extend(addresses(pod, family).map(goto));
        }
    }
    rules.push(rule().jump(&format!("{PREFIX}OUTBOUND")));
    rules
}

/// Returns the chains of pods and the chains that they lead to. Empty if no pod has exclusions.
pub(super) fn chains(node: &Node, family: Family) -> Vec<Chain> {
    let chain = |name: &str, rules| Chain {
        rules,
        ..Chain::user(name)
    };
    let of_pods = excluding(node).map(|pod| chain(&chain_of(pod), of_pod(node, family, pod)));
    let mut chains: Vec<Chain> = of_pods.collect();
    if !chains.is_empty() {
        chains.push(chain(
            &format!("{PREFIX}OUTBOUND"),
            super::last(node, family),
        ));
        let mut captured = super::excluded_ports(node, family);
        captured.push(stop(super::marked(rule(), node.config.marks.skip)));
        captured.push(super::outbound(node, family));
        chains.push(chain(&format!("{PREFIX}CAPTURED"), captured));
    }
    chains
}

fn of_pod(node: &Node, family: Family, pod: &Pod) -> Vec<Rule> {
    let (mut rules, bits) = (Vec::new(), node.config.marks.conn_skip);
    let exclude = |rules: &mut Vec<Rule>, of: &dyn Fn() -> RuleBuilder, is_source: bool| {
        let of_others = of_pods(of(), family, !is_source);
        rules.push(match is_source {
            true => stop(of_others),
            false => goes_on(of_others),
        });
        rules.push(mark(of(), bits));
        rules.push(stop(of()));
    };
    for own in addresses(pod, family) {
        for (is_source, ports) in [
            (true, &pod.exclude.outbound_ports),
            (false, &pod.exclude.inbound_ports),
        ] {
            for port in ports {
                let of = || tcp_of(own, is_source).tcp_dport((*port).into());
                exclude(&mut rules, &of, is_source);
            }
        }
        for is_source in [true, false] {
            for (net, is_excluded) in pod.exclude.of(own) {
                let peer = || match is_source {
                    true => tcp_of(own, true).destination(net),
                    false => tcp_of(own, false).source(net),
                };
                match is_excluded {
                    true => exclude(&mut rules, &peer, is_source),
                    false => {
                        let captured = Target::Goto(format!("{PREFIX}CAPTURED"));
                        rules.push(peer().target(captured));
                    }
                }
            }
        }
    }
    rules.push(goes_on(rule()));
    rules
}
