//! Exclusions of single pods: one chain per pod, for packets from and to its addresses.
//!
//! A pod decides about its own traffic only. Packets to another enrolled pod of the node are captured on the way to that pod,
//! and packets from another enrolled pod on the way from there.

use super::parts::{MARK, address, has, mark, matching, of_family, rule, set_name, stop};
use super::regular;
use crate::config::Pod;
use crate::exclude::chain_of;
use crate::node::{Family, Node};
use std::net::IpAddr;
use weir_netfilter::nft::{Chain, CmpOp, Data, L4Proto, Operand, Rule, RuleBuilder, Verdict};

/// The chain for packets that match no exclusion or exception of a pod.
const REST: &str = "ztunnel-OUTBOUND";
/// The chain for packets that match an exception of a pod: the networks that all pods exclude are not tested.
const CAPTURED: &str = "ztunnel-CAPTURED";

fn excluding(node: &Node) -> impl Iterator<Item = &Pod> {
    node.config
        .pods
        .iter()
        .filter(|pod| !pod.exclude.is_empty())
}

/// True if any pod has exclusions.
pub(super) fn any(node: &Node) -> bool {
    excluding(node).next().is_some()
}

fn family_of(families: &[Family], pod: IpAddr) -> Option<Family> {
    families.iter().copied().find(|family| family.of(&pod))
}

/// Matches TCP from the address if `is_source`, otherwise to it.
fn tcp(family: Family, pod: IpAddr, is_source: bool) -> RuleBuilder {
    let own = Operand::Value(Data::addr(pod));
    let of = of_family(rule().l4proto(L4Proto::Tcp), family);
    matching(of, address(family, is_source), CmpOp::Eq, own)
}

/// Returns the end of `prerouting`: it leads to the chain of the sender, or of the receiver, or to [`REST`].
pub(super) fn dispatch(node: &Node, families: &[Family]) -> Vec<Rule> {
    let mut rules = Vec::new();
    for is_source in [true, false] {
        for pod in excluding(node) {
            for own in &pod.addresses {
                let Some(family) = family_of(families, *own) else {
                    continue;
                };
                let goto = Verdict::Goto(chain_of(pod));
                rules.push(tcp(family, *own, is_source).verdict(goto));
            }
        }
    }
    rules.push(rule().jump(REST));
    rules
}

/// Returns the chains of pods and the chains that they lead to. Empty if no pod has exclusions.
pub(super) fn chains(node: &Node, families: &[Family]) -> Vec<Chain> {
    if !any(node) {
        return Vec::new();
    }
    let of_pods = excluding(node).map(|pod| regular(&chain_of(pod), of_pod(node, families, pod)));
    let rest = regular(REST, super::exclude::last(node, families));
    let mut captured = super::exclude::excluded_ports(node, families);
    captured.push(stop(has(rule(), MARK, node.config.marks.skip)));
    captured.extend(super::outbound(node, families));
    let captured = regular(CAPTURED, captured);
    of_pods.chain([rest, captured]).collect()
}

fn goes_on() -> Verdict {
    Verdict::Goto(REST.to_owned())
}

/// Excludes the packets from capture, unless the peer is another enrolled pod.
fn exclude(rules: &mut Vec<Rule>, bits: u32, of: RuleBuilder, (family, is_source): (Family, bool)) {
    let pods = Operand::Named {
        set: set_name(family),
        turned: false,
    };
    let of_others = matching(of.clone(), address(family, !is_source), CmpOp::Eq, pods);
    rules.push(match is_source {
        true => stop(of_others),
        false => of_others.verdict(goes_on()),
    });
    rules.push(mark(of.clone(), bits).build());
    rules.push(stop(of));
}

/// Returns the chain of a pod: ports first, then the longest prefixes, as in the exclusions of all pods.
fn of_pod(node: &Node, families: &[Family], pod: &Pod) -> Vec<Rule> {
    let (mut rules, bits) = (Vec::new(), node.config.marks.conn_skip);
    for own in &pod.addresses {
        let Some(family) = family_of(families, *own) else {
            continue;
        };
        for (is_source, ports) in [
            (true, &pod.exclude.outbound_ports),
            (false, &pod.exclude.inbound_ports),
        ] {
            let ports: Vec<u16> = ports.iter().copied().collect();
            if !ports.is_empty() {
                let of = tcp(family, *own, is_source).dports(L4Proto::Tcp, CmpOp::Eq, &ports);
                exclude(&mut rules, bits, of, (family, is_source));
            }
        }
        for is_source in [true, false] {
            for (net, is_excluded) in pod.exclude.of(*own) {
                let of = tcp(family, *own, is_source);
                let peer = match is_source {
                    true => of.daddr(CmpOp::Eq, net),
                    false => of.saddr(CmpOp::Eq, net),
                };
                match is_excluded {
                    true => exclude(&mut rules, bits, peer, (family, is_source)),
                    false => rules.push(peer.verdict(Verdict::Goto(CAPTURED.to_owned()))),
                }
            }
        }
    }
    rules.push(rule().verdict(goes_on()));
    rules
}
