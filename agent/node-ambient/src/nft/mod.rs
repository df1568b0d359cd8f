//! Rules for nf_tables: one `inet` table per namespace for both families.
//!
//! Differences from the reference, which uses chains of iptables:
//! - `accept` in a nat chain of this table would not stop kube-proxy's nat chain: the kernel evaluates one after the other until
//!   one sets up a NAT binding. So captured packets get a binding that changes nothing, one step before the usual priorities.
//! - Everything that the node itself sends to enrolled pods is exempt, independent of its source address and with or without a
//!   socket (the last acknowledgement of a closed connection has none); this is saved in the connection mark. It is tested before and
//!   after destination NAT, so that a service of kube-proxy counts as the pod that it is translated to.
//! - Connections to enrolled pods that the node forwards are not masqueraded, even if kube-proxy marks them: the proxy sees the client.
//! - All other protocols than TCP, not only UDP, are left alone in both directions.
//! - TCP that is forwarded from or to a pod's link with an address that is not captured is dropped.
//! - A reject in another table cannot be overruled: that of kube-proxy for services without endpoints stays in force, and the pod
//!   gets its error as without these rules.

mod exclude;
mod of_pod;
mod parts;
mod proxy;

use exclude::{excluded, last, translated};
pub(crate) use parts::{
    ACK, MARK, SYN, address, at_links, links, mark, masked, matching, named, rule, set, set_name,
};
use parts::{CT_MARK, has, keeping, nat_of, not_first};
use parts::{not_of_pods, not_tcp, of_family, of_pods, remember, stop};
pub(crate) use proxy::errors;
pub use proxy::proxy;

use crate::node::{Family, LocatedProxy, Node};
use crate::objects::carriers;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_ambient::ztunnel;
use weir_netfilter::nft::raw::ct_state::RELATED;
use weir_netfilter::nft::raw::{NF_NAT_RANGE_NETMAP, NFTA_FIB_F_DADDR};
use weir_netfilter::nft::{
    Chain, ChainType, CmpOp, CtKey, Data, FibResult, Hook, L4Proto, Nat, NatKind, Operand, Rule,
    RuleBuilder, Ruleset, Selector, Statement, Table, TableFamily, Verdict, priority,
};
use weir_netlink::route::RouteType;

/// The table in the node's namespace.
pub const HOST_TABLE: &str = "istio-ambient-node";
/// The table in the proxy's namespace.
pub const PROXY_TABLE: &str = "istio-ambient-proxy";
/// The set of the pods' addresses, with `-v6` for IPv6.
pub const SET: &str = "ztunnel-pods-ips";
/// The chain that stores the previous values of sysctls, as the comment of one rule each.
pub const MEMORY: &str = "ztunnel-POSTROUTING";

/// The set of the host ends of pods' links that are not ports of a bridge.
pub(crate) const LINKS: &str = "ztunnel-pods-links";

/// A base chain: its name, type, hook, priority, and the chain with its rules.
type Base = (&'static str, ChainType, Hook, i32, &'static str);

#[rustfmt::skip]
const BASES: [Base; 7] = [
    ("mangle-prerouting", ChainType::Filter, Hook::Prerouting, priority::MANGLE, "ztunnel-PREROUTING"),
    ("mangle-input", ChainType::Filter, Hook::Input, priority::MANGLE, "ztunnel-INPUT"),
    ("mangle-forward", ChainType::Filter, Hook::Forward, priority::MANGLE, "ztunnel-FORWARD"),
    ("mangle-output", ChainType::Route, Hook::Output, priority::MANGLE, "ztunnel-OUTPUT"),
    ("after-dstnat-output", ChainType::Route, Hook::Output, priority::DSTNAT + 10, "ztunnel-OUTPUT"),
    ("nat-prerouting", ChainType::Nat, Hook::Prerouting, priority::DSTNAT - 1, "ztunnel-nat-PREROUTING"),
    ("nat-postrouting", ChainType::Nat, Hook::Postrouting, priority::SRCNAT - 1, "ztunnel-nat-POSTROUTING"),
];
/// Only if the rules of pods, or exclusions, test the destination after its translation.
#[rustfmt::skip]
const AFTER_DSTNAT: Base =
    ("after-dstnat-prerouting", ChainType::Filter, Hook::Prerouting, priority::DSTNAT + 10, "ztunnel-TRANSLATED");

fn base((name, kind, hook, priority, to): Base) -> Chain {
    Chain {
        rules: vec![rule().jump(to)],
        ..Chain::base(name, kind, hook, priority)
    }
}

fn regular(name: &str, rules: Vec<Rule>) -> Chain {
    Chain {
        rules,
        ..Chain::regular(name)
    }
}

/// Returns the tables of the node. `memory`: sysctls and their previous values.
#[must_use]
pub fn host<'a>(node: &Node, memory: impl IntoIterator<Item = (&'a str, &'a str)>) -> Ruleset {
    let families = node.families();
    let remembered = memory.into_iter().map(remembered);
    let save = saving(node);
    let bridge = crate::bridge::table(node);
    let mut chains: Vec<Chain> = BASES.map(base).into();
    chains.extend([
        regular("ztunnel-PREROUTING", prerouting(node, &families)),
        regular("ztunnel-INPUT", save.clone()),
        regular(
            "ztunnel-FORWARD",
            unlisted(node, &families).chain(save).collect(),
        ),
        regular("ztunnel-OUTPUT", output(node, &families)),
        regular("ztunnel-nat-PREROUTING", nat_prerouting(node, &families)),
        regular("ztunnel-nat-POSTROUTING", nat_postrouting(node, &families)),
        regular(MEMORY, remembered.collect()),
    ]);
    if !node.config.exclude.is_empty() {
        chains.push(regular("ztunnel-EXCLUDE", excluded(node, &families)));
    }
    if !node.config.exclude.is_empty() || of_pod::any(node) {
        let [translated, again] = translated(node, &families);
        chains.extend([
            base(AFTER_DSTNAT),
            regular("ztunnel-TRANSLATED", translated),
            regular("ztunnel-AGAIN", again),
        ]);
    }
    chains.extend(of_pod::chains(node, &families));
    let sets = (families.iter())
        .map(|f| set(&set_name(*f), *f, node.addresses(*f)))
        .chain([links(LINKS, node.devices_of_pods(None))]);
    let routed = Table {
        sets: sets.collect(),
        chains,
        ..Table::new(TableFamily::Inet, HOST_TABLE)
    };
    Ruleset {
        tables: [routed].into_iter().chain(bridge).collect(),
    }
}

/// Returns a table that stores sysctls and their previous values, and has no hooks.
pub(crate) fn only_memory<'a>(memory: impl Iterator<Item = (&'a str, &'a str)>) -> Ruleset {
    let chain = regular(MEMORY, memory.map(remembered).collect());
    Ruleset {
        tables: vec![Table {
            chains: vec![chain],
            ..Table::new(TableFamily::Inet, HOST_TABLE)
        }],
    }
}

/// Returns a rule that stores a sysctl and its previous value.
fn remembered((key, value): (&str, &str)) -> Rule {
    Rule {
        comment: Some(format!("{key}={value}")),
        ..rule().verdict(Verdict::Return)
    }
}

/// Returns the rules of section 6.2 of the reference's behaviour, in its order.
fn prerouting(node: &Node, families: &[Family]) -> Vec<Rule> {
    let marks = &node.config.marks;
    let skip = |builder| mark(builder, marks.skip).build();
    let mut rules = Vec::new();
    // 1 to 4: packets that arrive by a tunnel are routed normally.
    for link in carriers(node.active.as_ref().map_or(0, |active| active.slot)) {
        let from = || rule().iifname(CmpOp::Eq, link);
        rules.extend([skip(from()), stop(from())]);
    }
    // 5: the inner packet inherits the mark of the outer one. Outer packets from the tunnel's other end are for the node.
    if let Some((host, port)) = node.tunnel() {
        let to_node = rule().daddr(CmpOp::Eq, host.into());
        rules.push(stop(to_node.dport(L4Proto::Udp, CmpOp::Eq, port..=port)));
    }
    let skipped = || stop(has(rule(), MARK, marks.skip));
    // 6 and 7
    rules.push(skip(has(rule(), CT_MARK, marks.conn_skip)));
    rules.push(skipped());
    // 8 and 9. Connection tracking keeps the entry of a reset connection for some seconds: if the port is reused in that time, the
    // first packet of the new connection has that entry, but is not a reply of the old one.
    let mut replies = Vec::new();
    for located in node.proxies() {
        let bits = node.bits(located);
        // Packets that the proxy sends by a bridge are already skipped.
        let elsewhere = || match node.bridges.contains_key(&located.device) {
            true => rule(),
            false => rule().iifname(CmpOp::Neq, &located.device),
        };
        for known in [not_first(elsewhere()), not_tcp(elsewhere())] {
            let known = masked(known, CT_MARK, bits.connection, bits.mask);
            replies.push(mark(known, bits.reply).build());
        }
    }
    if node.proxies().next().is_none() {
        replies.push(mark(has(rule(), CT_MARK, marks.proxy), marks.proxy_return).build());
    }
    replies.push(stop(has(rule(), MARK, marks.proxy_return)));
    // 10 to 12; for ports of a bridge, the bridge rules do this
    let mut own = Vec::new();
    let is_routed = |located: &&LocatedProxy| !node.bridges.contains_key(&located.device);
    for located in node.proxies().filter(is_routed) {
        let from = || rule().iifname(CmpOp::Eq, &located.device);
        for address in families.iter().filter_map(|f| located.address(*f)) {
            let foreign = from().saddr(CmpOp::Neq, address.into());
            own.push(mark(foreign, node.bits(located).connection).build());
        }
        own.push(skipped());
        own.push(mark(from(), marks.conn_skip).build());
    }
    rules.extend(in_order(node, replies, own));
    // 13 and 14
    rules.push(mark(not_tcp(rule()), marks.conn_skip).build());
    rules.push(skipped());
    match of_pod::any(node) {
        true => rules.extend(of_pod::dispatch(node, families)),
        false => rules.extend(last(node, families)),
    }
    rules
}

/// Returns step 15.
fn outbound(node: &Node, families: &[Family]) -> impl Iterator<Item = Rule> {
    let from_pods = |family: &Family| {
        let tcp = of_pods(rule().l4proto(L4Proto::Tcp), *family, true);
        mark(tcp, node.config.marks.outbound).build()
    };
    families.iter().map(from_pods)
}

/// Orders the rules: those for replies to proxies come before those for the proxies' own packets. While one proxy takes over from
/// another, the second may use a port that the first had a moment ago: connection tracking assigns its packets to the older
/// connection, and they would count as replies to the first. So with two proxies their own packets come first.
pub(crate) fn in_order<T>(node: &Node, replies: Vec<T>, own: Vec<T>) -> impl Iterator<Item = T> {
    let (first, then) = match node.proxies().nth(1) {
        None => (replies, own),
        Some(_) => (own, replies),
    };
    first.into_iter().chain(then)
}

/// Returns the rules that drop TCP forwarded from or to a link of a pod with an address that is not captured: it would pass in plain
/// text. Only the bridge rules see ports of bridges, and mark the packets that arrive there.
fn unlisted(node: &Node, families: &[Family]) -> impl Iterator<Item = Rule> {
    let drop = |of: RuleBuilder| of.counter().verdict(Verdict::Drop);
    let of_family = move |family: &Family| {
        let other = |is_source| not_of_pods(rule().l4proto(L4Proto::Tcp), *family, is_source);
        let by_link = |is_source| drop(at_links(other(is_source), LINKS, is_source));
        let marked = drop(has(other(true), MARK, node.config.marks.outbound));
        let marked = Some(marked).filter(|_| !node.bridges.is_empty());
        [by_link(true), by_link(false)].into_iter().chain(marked)
    };
    families
        .iter()
        .flat_map(of_family)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Returns the rules that save packet marks in connection marks, after NAT and routing. An ICMP error has the connection of the
/// packet that it quotes, and any host can send one: it passes, and its mark is not saved.
fn saving(node: &Node) -> Vec<Rule> {
    let marks = &node.config.marks;
    let save = |value, mask| {
        let source = keeping(CT_MARK, value, mask);
        masked(rule(), MARK, value, mask).push(Statement::CtSet(CtKey::Mark, None, source))
    };
    let mut rules = vec![
        stop(not_tcp(rule()).ct_state(RELATED)),
        save(marks.conn_skip, marks.conn_skip).build(),
    ];
    let proxies = node.proxies().map(|located| node.bits(located));
    rules.extend(proxies.map(|bits| save(bits.connection, bits.mask).build()));
    rules
}

fn output(node: &Node, families: &[Family]) -> Vec<Rule> {
    let bits = node.config.marks.conn_skip;
    let mut rules = Vec::new();
    // The node's answers to the proxy, and its ICMP errors about packets of the proxy, have the address of a pod as destination.
    for of in node.proxies().map(|located| node.bits(located)) {
        let known = || masked(rule(), CT_MARK, of.connection, of.mask);
        rules.extend([mark(known(), of.reply).build(), stop(known())]);
    }
    let known = has(rule(), CT_MARK, bits);
    rules.push(mark(known, bits).build());
    // An ICMP error of the node about a connection of a pod goes to the pod directly; on the carrier it would be lost. Its mark is not
    // saved, because it does not tell who opened the connection: without a proxy it is the pod's own, which must not be exempt from
    // then on.
    let error = || rule().ct_state(RELATED);
    rules.extend([mark(error(), node.config.marks.skip).build(), stop(error())]);
    for family in families {
        let to_pods = of_pods(rule(), *family, false);
        rules.push(remember(mark(to_pods, bits), bits).build());
    }
    rules
}

fn everything(family: Family) -> (IpAddr, IpAddr) {
    match family.is_v6 {
        true => (
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::from([0xff; 16]).into(),
        ),
        false => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()),
    }
}

/// Adds a NAT binding that changes nothing: `dnat ip prefix to 0.0.0.0-255.255.255.255` replaces no bit of the address. The kernel
/// rejects a binding without an address.
fn unchanged(rule: RuleBuilder, family: Family, kind: NatKind) -> Rule {
    rule.counter()
        .push(Statement::Nat(Nat {
            kind,
            family: nat_of(family),
            addrs: Some(everything(family)),
            ports: None,
            flags: NF_NAT_RANGE_NETMAP,
        }))
        .build()
}

/// Keeps the addresses of connections from and to pods on the way to the proxy. If connections to pods were masqueraded, as kube-proxy
/// does for NodePorts, they would have an address of the node: the proxy would not see the client, and the pod's answers to the proxy
/// would be delivered to the node.
fn nat_postrouting(node: &Node, families: &[Family]) -> Vec<Rule> {
    let of_pods = |family: &Family| {
        let outbound = has(of_family(rule(), *family), MARK, node.config.marks.outbound);
        unchanged(outbound, *family, NatKind::Snat)
    };
    let mut rules: Vec<Rule> = families.iter().map(of_pods).collect();
    if let Some(active) = &node.active {
        let [inbound, _] = carriers(active.slot);
        let of = |family: &Family| {
            let to_proxy = of_family(rule().oifname(CmpOp::Eq, inbound), *family);
            unchanged(to_proxy, *family, NatKind::Snat)
        };
        rules.extend(families.iter().map(of));
    }
    rules
}

fn nat_prerouting(node: &Node, families: &[Family]) -> Vec<Rule> {
    // Packets of a pod to the node itself are delivered locally and not routed by their mark. They leave the node only if translated,
    // such as those to a NodePort, and then reach the proxy with their new destination.
    let of = |family: &Family| {
        let outbound = has(of_family(rule(), *family), MARK, node.config.marks.outbound);
        let of_destination = Selector::Fib {
            flags: NFTA_FIB_F_DADDR,
            result: FibResult::Type,
        };
        let local = Operand::Value(Data::ne32(u8::from(RouteType::Local).into()));
        let elsewhere = matching(outbound, of_destination, CmpOp::Neq, local);
        unchanged(elsewhere, *family, NatKind::Dnat)
    };
    let mut rules: Vec<Rule> = families.iter().map(of).collect();
    if node.config.dns_capture {
        let with_proxy = families.iter().filter_map(|f| Some((f, f.proxy?)));
        rules.extend(with_proxy.map(|(family, proxy)| {
            of_pods(rule(), *family, true)
                .dport(L4Proto::Udp, CmpOp::Eq, 53..=53)
                .counter()
                .push(Statement::Nat(Nat {
                    kind: NatKind::Dnat,
                    family: nat_of(*family),
                    addrs: Some((proxy, proxy)),
                    ports: Some(ztunnel::DNS..=ztunnel::DNS),
                    flags: 0,
                }))
                .build()
        }));
    }
    rules
}
