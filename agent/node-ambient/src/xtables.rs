//! Rules for the legacy tables with one ipset per family: the chains of the reference.
//!
//! Differences: as in [`crate::nft`], everything that the node itself sends to enrolled pods is exempt, which is saved in the
//! connection mark; other protocols than TCP are left alone. Services of kube-proxy that the node's own processes call are
//! translated after this chain, and reach the proxy; the pod's answers to the proxy have an address of the node as destination and
//! do not reach it. TCP of pod addresses that are not listed passes.

mod of_pod;
mod proxy;

pub use proxy::proxy;

use crate::nft::{ACK, MEMORY, SYN, in_order, set_name};
use crate::node::{Family, Node, ProxyBits};
use crate::objects::carriers;
use ipnet::IpNet;
use std::net::IpAddr;
use weir_ambient::ztunnel;
use weir_netfilter::ipset::{self, Entry, Header, SetFamily, SetType};
use weir_netfilter::xtables::{
    Chain, Comment, Connmark, ConntrackState, Extension, Interface, Mark, Match, Nat, Not,
    Ownership, Protocol, Rule, RuleBuilder, Ruleset, SetMatch, SetRef, Table, Target, Tcp,
    TcpFlags, Xmark, XtFamily,
};

/// The tag of rules in built-in chains. It differs from that of redirections in pods, which the same namespace may have, too.
const TAG: u32 = u32::from_be_bytes(*b"wnod");
/// Chains with this prefix are owned.
pub(crate) const PREFIX: &str = "ztunnel-";

/// Returns which chains and rules belong to this crate.
pub(crate) fn ownership() -> Ownership {
    Ownership {
        prefix: PREFIX.to_owned(),
        tag: TAG,
        // Before the rules of kube-proxy, which translate and reject services.
        first: true,
        ..Ownership::default()
    }
}

fn rule() -> RuleBuilder {
    Rule::builder()
}

fn tcp() -> RuleBuilder {
    rule().protocol(Protocol::TCP)
}

fn not_tcp(rule: Rule) -> Rule {
    Rule {
        protocol: Some((Not(true), Protocol::TCP)),
        ..rule
    }
}

/// Matches a segment that does not open a connection, as in [`crate::nft`].
fn not_first() -> RuleBuilder {
    let flags = TcpFlags {
        mask: SYN | ACK,
        set: SYN,
    };
    tcp().matching(Match::Tcp(Tcp {
        flags: Some((Not(true), flags)),
        ..Tcp::default()
    }))
}

fn masked(value: u32, mask: u32) -> Mark {
    Mark {
        not: Not(false),
        value,
        mask,
    }
}

fn bits(value: u32) -> Mark {
    masked(value, value)
}

fn marked(rule: RuleBuilder, value: u32) -> RuleBuilder {
    rule.matching(Match::Mark(bits(value)))
}

fn connection(rule: RuleBuilder, value: u32) -> RuleBuilder {
    rule.matching(Match::Connmark(bits(value)))
}

fn mark(rule: RuleBuilder, value: u32) -> Rule {
    rule.target(Target::Mark(Xmark { value, mask: value }))
}

fn remember(rule: RuleBuilder, value: u32) -> Rule {
    rule.target(Target::Connmark(Connmark::Set(Xmark {
        value,
        mask: value,
    })))
}

fn stop(rule: RuleBuilder) -> Rule {
    rule.target(Target::Return)
}

fn of_pods(rule: RuleBuilder, family: Family, is_source: bool) -> RuleBuilder {
    rule.matching(Match::Set(SetMatch {
        set: SetRef {
            name: set_name(family),
            source: vec![is_source],
        },
        not: Not(false),
        return_nomatch: false,
        keep_counters: false,
        keep_subcounters: false,
        packets: None,
        bytes: None,
    }))
}

fn xt(family: Family) -> XtFamily {
    match family.is_v6 {
        true => XtFamily::Ip6,
        false => XtFamily::Ip,
    }
}

/// Returns a table in which each built-in chain jumps to its own user chain.
fn table(family: Family, name: &str, chains: Vec<(&str, Vec<Rule>)>) -> Table {
    let mut all = Vec::new();
    for (hook, _) in &chains {
        all.push(Chain {
            rules: vec![rule().jump(&format!("{PREFIX}{hook}"))],
            ..Chain::builtin(hook)
        });
    }
    for (hook, rules) in chains {
        all.push(Chain {
            rules,
            ..Chain::user(&format!("{PREFIX}{hook}"))
        });
    }
    Table {
        chains: all,
        ..Table::new(xt(family), name)
    }
}

/// Returns the sets of the pods' addresses.
#[must_use]
pub fn sets(node: &Node) -> Vec<ipset::Set> {
    let set = |family: Family| {
        let of = match family.is_v6 {
            true => SetFamily::Inet6,
            false => SetFamily::Inet,
        };
        let entry = |(address, uid): (IpAddr, &str)| Entry {
            comment: Some(uid.to_owned()),
            ..Entry::new(address.into())
        };
        ipset::Set {
            header: Header {
                comment: true,
                ..Header::new(set_name(family), SetType::HashIp, of)
            },
            entries: node.addresses(family).into_iter().map(entry).collect(),
        }
    };
    node.families().into_iter().map(set).collect()
}

/// Returns a rule that stores a sysctl and its previous value.
fn remembered((key, value): (&str, &str)) -> Rule {
    let text = Match::Comment(Comment(format!("{key}={value}")));
    rule().matching(text).target(Target::Return)
}

/// Returns the tables of the node. `memory`: sysctls and their previous values.
#[must_use]
pub fn host<'a>(node: &Node, memory: impl IntoIterator<Item = (&'a str, &'a str)>) -> Ruleset {
    let marks = &node.config.marks;
    let mut remembered: Vec<Rule> = memory.into_iter().map(remembered).collect();
    let mut tables = Vec::new();
    for family in node.families() {
        // As in nf_tables: the mark of an ICMP error is not saved in the connection that it quotes.
        let mut save = vec![
            not_tcp(stop(rule().ctstate(&[ConntrackState::Related]))),
            remember(marked(rule(), marks.conn_skip), marks.conn_skip),
        ];
        save.extend(node.proxies().map(|located| {
            let ProxyBits {
                connection, mask, ..
            } = node.bits(located);
            let known = rule().matching(Match::Mark(masked(connection, mask)));
            known.target(Target::Connmark(Connmark::Set(Xmark {
                value: connection,
                mask,
            })))
        }));
        let to_pods = || of_pods(rule(), family, false);
        let mut output = Vec::new();
        for of in node.proxies().map(|located| node.bits(located)) {
            let known = || {
                let mark = masked(of.connection, of.mask);
                rule().matching(Match::Connmark(mark))
            };
            output.extend([mark(known(), of.reply), stop(known())]);
        }
        output.extend([
            mark(connection(rule(), marks.conn_skip), marks.conn_skip),
            // As in nf_tables: ICMP errors of the node about connections of a pod.
            mark(rule().ctstate(&[ConntrackState::Related]), marks.skip),
            stop(rule().ctstate(&[ConntrackState::Related])),
            remember(to_pods(), marks.conn_skip),
            mark(to_pods(), marks.conn_skip),
        ]);
        let outbound = || marked(rule(), marks.outbound).target(Target::Accept);
        // As in nf_tables: packets to the node itself are translated, or delivered locally.
        let mut elsewhere = marked(rule(), marks.outbound);
        elsewhere = elsewhere.matching(Match::Extension(Extension::not_to_local(xt(family))));
        let mut nat = vec![elsewhere.target(Target::Accept)];
        if let Some(proxy) = family.proxy.filter(|_| node.config.dns_capture) {
            let query = of_pods(rule(), family, true).udp_dport(53.into());
            nat.push(query.target(Target::Dnat(Nat {
                addresses: Some(proxy..=proxy),
                ports: Some(ztunnel::DNS..=ztunnel::DNS),
                ..Nat::default()
            })));
        }
        let mut mangle = table(
            family,
            "mangle",
            vec![
                ("PREROUTING", prerouting(node, family)),
                ("INPUT", save.clone()),
                ("FORWARD", save),
                ("OUTPUT", output),
                // Empty in the reference; here the IPv4 chain stores the previous values of sysctls.
                ("POSTROUTING", std::mem::take(&mut remembered)),
            ],
        );
        if !node.config.exclude.is_empty() {
            mangle.chains.push(Chain {
                rules: excluded(node, family),
                ..Chain::user(&format!("{PREFIX}EXCLUDE"))
            });
        }
        mangle.chains.extend(of_pod::chains(node, family));
        tables.push(mangle);
        let mut to_proxy = vec![outbound()];
        if let Some(active) = &node.active {
            // As in nf_tables: answers to masqueraded connections would not reach the proxy.
            let [inbound, _] = carriers(active.slot);
            to_proxy.push(rule().out_interface(inbound).target(Target::Accept));
        }
        tables.push(table(
            family,
            "nat",
            vec![("PREROUTING", nat), ("POSTROUTING", to_proxy)],
        ));
        tables.push(table(family, "filter", vec![("FORWARD", vec![outbound()])]));
    }
    Ruleset { tables }
}

fn prerouting(node: &Node, family: Family) -> Vec<Rule> {
    let marks = &node.config.marks;
    let mut rules = Vec::new();
    for link in carriers(node.active.as_ref().map_or(0, |active| active.slot)) {
        let from = || rule().in_interface(link);
        rules.extend([mark(from(), marks.skip), stop(from())]);
    }
    if let Some((host, port)) = node.tunnel().filter(|(host, _)| family.of(host)) {
        let mut outer = stop(rule().udp_dport(port.into()));
        outer.destination = Some((Not(false), IpNet::from(host).into()));
        rules.push(outer);
    }
    let skipped = || stop(marked(rule(), marks.skip));
    rules.push(mark(connection(rule(), marks.conn_skip), marks.skip));
    rules.push(skipped());
    let (mut replies, mut own) = (Vec::new(), Vec::new());
    for located in node.proxies() {
        let bits = node.bits(located);
        let reply = |known: RuleBuilder| {
            let known = known.matching(Match::Connmark(masked(bits.connection, bits.mask)));
            Rule {
                in_interface: Some((Not(true), Interface::from(located.device.as_str()))),
                ..mark(known, bits.reply)
            }
        };
        replies.extend([reply(not_first()), not_tcp(reply(rule()))]);
    }
    if node.proxies().next().is_none() {
        replies.push(mark(connection(rule(), marks.proxy), marks.proxy_return));
    }
    replies.push(stop(marked(rule(), marks.proxy_return)));
    for located in node.proxies() {
        let from = || rule().in_interface(&located.device);
        if let Some(address) = located.address(family) {
            let mut foreign = mark(from(), node.bits(located).connection);
            foreign.source = Some((Not(true), IpNet::from(address).into()));
            own.push(foreign);
        }
        own.push(skipped());
        own.push(mark(from(), marks.conn_skip));
    }
    rules.extend(in_order(node, replies, own));
    rules.push(not_tcp(mark(rule(), marks.conn_skip)));
    rules.push(skipped());
    match of_pod::any(node) {
        true => rules.extend(of_pod::dispatch(node, family)),
        false => rules.extend(last(node, family)),
    }
    rules
}

/// Returns the exclusions of all pods and the rule that captures the rest.
fn last(node: &Node, family: Family) -> Vec<Rule> {
    let mut rules = Vec::new();
    if !node.config.exclude.is_empty() {
        rules.push(rule().jump(&format!("{PREFIX}EXCLUDE")));
        rules.push(stop(marked(rule(), node.config.marks.skip)));
    }
    rules.push(outbound(node, family));
    rules
}

fn outbound(node: &Node, family: Family) -> Rule {
    let bits = node.config.marks.outbound;
    mark(of_pods(tcp(), family, true), bits)
}

/// Returns the exclusions as for nf_tables, but one rule per port, since `multiport` has room for 15 ports.
fn excluded(node: &Node, family: Family) -> Vec<Rule> {
    let (exclude, bits) = (&node.config.exclude, node.config.marks.conn_skip);
    let mut rules = excluded_ports(node, family);
    for is_source in [true, false] {
        let nets = exclude.ordered().into_iter();
        for (net, is_excluded) in nets.filter(|(net, _)| family.of(&net.addr())) {
            let peer = || match is_source {
                true => of_pods(tcp().destination(net), family, true),
                false => of_pods(tcp().source(net), family, false),
            };
            rules.extend(is_excluded.then(|| mark(peer(), bits)));
            rules.push(stop(peer()));
        }
    }
    rules
}

fn excluded_ports(node: &Node, family: Family) -> Vec<Rule> {
    let (exclude, bits) = (&node.config.exclude, node.config.marks.conn_skip);
    let mut rules = Vec::new();
    for (is_source, ports) in [
        (true, &exclude.outbound_ports),
        (false, &exclude.inbound_ports),
    ] {
        let of = |port: &u16| of_pods(rule().tcp_dport((*port).into()), family, is_source);
        rules.extend(ports.iter().map(|port| mark(of(port), bits)));
    }
    rules
}

/// Returns a chain that stores sysctls and their previous values, and that no rule leads to.
pub(crate) fn only_memory<'a>(memory: impl Iterator<Item = (&'a str, &'a str)>) -> Ruleset {
    let chain = Chain {
        rules: memory.map(remembered).collect(),
        ..Chain::user(MEMORY)
    };
    Ruleset {
        tables: vec![Table {
            chains: vec![chain],
            ..Table::new(XtFamily::Ip, "mangle")
        }],
    }
}

/// Returns the stored sysctls of a ruleset.
pub(crate) fn memory(rules: &Ruleset) -> Vec<&str> {
    let chains = rules.tables.iter().flat_map(|t| &t.chains);
    let chains = chains.filter(|c| c.name == MEMORY);
    let matches = chains.flat_map(|c| &c.rules).flat_map(|r| &r.matches);
    let texts = matches.filter_map(|m| match m {
        Match::Comment(Comment(text)) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}
