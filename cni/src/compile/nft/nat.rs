//! `istio-proxy-nat`: redirection to the proxy's listeners.

use super::super::family::{Family, FamilyDns};
use super::super::{DNS_LISTENER_PORT, DNS_PORT};
use super::{
    Chains, End, IN_REDIRECT, INBOUND, ISTIO_OUTPUT, NOT_PROXY, OTHER_GROUPS, OUTPUT, OUTPUT_DNS,
    Owner, PREROUTING, REDIRECT, Semantics, tcp,
};
use crate::config::{Dns, IdRange, Inbound, Intent, OwnerGroups};
use weir_netfilter::nft::{self, ChainType, CmpOp, L4Proto, Rule, RuleBuilder, Verdict, priority};

pub(super) fn chains(intent: &Intent, semantics: Semantics, families: &[Family]) -> Chains {
    let types = [ChainType::Nat, ChainType::Nat];
    let regular = [
        INBOUND,
        REDIRECT,
        IN_REDIRECT,
        ISTIO_OUTPUT,
        OUTPUT_DNS,
        NOT_PROXY,
        OTHER_GROUPS,
    ];
    let mut chains = Chains::new(types, priority::DSTNAT, &regular);
    prerouting(intent, semantics, families, &mut chains);
    inbound(intent, &mut chains);
    output(intent, semantics, families, &mut chains);
    dns(families, &mut chains);
    chains
}

/// 1. Packets of virtual machines to captured networks go to the outbound listener. Interfaces and
///    networks are in reverse order, IPv6 first.
/// 2. Their other packets return.
/// 3. Packets from excluded interfaces return.
/// 4. Other TCP is inbound traffic.
fn prerouting(intent: &Intent, semantics: Semantics, families: &[Family], chains: &mut Chains) {
    let mut add = |rule| chains.add(PREROUTING, rule);
    let from = |name: &str| semantics.iifname(name);
    let virtual_reversed = || intent.virtual_interfaces.iter().rev();
    for family in families.iter().rev() {
        for net in family.include.iter().flatten().rev() {
            for name in virtual_reversed() {
                add(from(name.as_str())
                    .daddr(CmpOp::Eq, *net)
                    .count_jump(REDIRECT));
            }
        }
    }
    if families.iter().all(|f| f.include.is_none()) {
        for name in virtual_reversed() {
            add(from(name.as_str()).count_jump(REDIRECT));
        }
    }
    for name in virtual_reversed().chain(&intent.exclude_interfaces) {
        add(from(name.as_str()).count_return());
    }
    if intent.inbound != Inbound::Off && intent.tproxy().is_none() {
        add(tcp().count_jump(INBOUND));
    }
}

/// `istio-inbound`:
/// 1. The tunnel port returns: the proxy listens there itself.
/// 2. All ports captured: excluded ones return, the rest goes to the inbound listener.
/// 3. Ports listed: only these go there.
///
/// When inbound traffic is proxied transparently, 2 and 3 are in `istio-proxy-mangle` instead.
fn inbound(intent: &Intent, chains: &mut Chains) {
    let tcp_to = |ports| Rule::builder().dport(L4Proto::Tcp, CmpOp::Eq, ports);
    let tunnel = intent.inbound_tunnel_port;
    chains.add(INBOUND, tcp_to(tunnel..=tunnel).count_return());
    match &intent.inbound {
        _ if intent.tproxy().is_some() => {}
        Inbound::Off => {}
        Inbound::All => {
            for ports in &intent.inbound_ports_exclude {
                chains.add(INBOUND, tcp_to(ports.0.clone()).count_return());
            }
            chains.add(INBOUND, tcp().count_jump(IN_REDIRECT));
        }
        Inbound::Ports(list) => {
            for ports in list {
                chains.add(INBOUND, tcp_to(ports.0.clone()).count_jump(IN_REDIRECT));
            }
        }
    }
    chains.add(
        REDIRECT,
        tcp().counter().redirect(intent.proxy_port).build(),
    );
    chains.add(
        IN_REDIRECT,
        tcp()
            .counter()
            .redirect(intent.inbound_capture_port)
            .build(),
    );
}

/// `output`: packets to excluded interfaces return, the rest is outbound traffic.
///
/// `istio-output`:
/// 1. Excluded ports return, for TCP and UDP.
/// 2. The proxy's connections to the application, identified by their source, return.
/// 3. For each of the proxy's users, then for each of its groups, see [`own_traffic`].
/// 4. Traffic of excluded groups, or of all groups that are not included, returns.
/// 5. Jump to the DNS chain, if it has rules.
/// 6. Loopback returns.
/// 7. Excluded networks return.
/// 8. Included ports go to the outbound listener, for every address.
/// 9. Included networks, or everything, go to the outbound listener.
fn output(intent: &Intent, semantics: Semantics, families: &[Family], chains: &mut Chains) {
    for name in &intent.exclude_interfaces {
        let rule = semantics.oifname(name.as_str());
        chains.add(OUTPUT, rule.count_return());
    }
    chains.add(OUTPUT, Rule::builder().count_jump(ISTIO_OUTPUT));
    if semantics == Semantics::Xtables {
        others(intent, chains);
    }

    let mut add = |rule| chains.add(ISTIO_OUTPUT, rule);
    let to = |net| Rule::builder().daddr(CmpOp::Eq, net);
    for ports in &intent.outbound_ports_exclude {
        for proto in [L4Proto::Tcp, L4Proto::Udp] {
            add(Rule::builder()
                .dport(proto, CmpOp::Eq, ports.0.clone())
                .count_return());
        }
    }
    for family in families {
        let over_lo = Rule::builder().oifname(CmpOp::Eq, "lo");
        add(over_lo.saddr(CmpOp::Eq, family.passthrough).count_return());
    }
    let mut others = match semantics {
        Semantics::Nft => Others::Each,
        Semantics::Xtables => Others::First,
    };
    for owner in Owner::all(intent) {
        own_traffic(intent, others, families, owner)
            .into_iter()
            .for_each(&mut add);
        if others == Others::First {
            others = Others::Gone;
        }
    }
    owner_groups(&intent.owner_groups, semantics)
        .into_iter()
        .for_each(&mut add);
    if families.iter().any(|f| f.dns.is_on()) {
        add(Rule::builder().count_jump(OUTPUT_DNS));
    }
    for family in families {
        add(to(family.loopback).count_return());
    }
    for net in families.iter().flat_map(|f| &f.exclude) {
        add(to(*net).count_return());
    }
    for ports in &intent.outbound_ports_include {
        let tcp = Rule::builder().dport(L4Proto::Tcp, CmpOp::Eq, ports.0.clone());
        add(tcp.count_jump(REDIRECT));
    }
    if families.iter().all(|f| f.include.is_none()) {
        add(Rule::builder().count_jump(REDIRECT));
    }
    for net in families.iter().filter_map(|f| f.include.as_ref()).flatten() {
        add(to(*net).count_jump(REDIRECT));
    }
}

/// How [`own_traffic`] matches packets over `lo` that are not the proxy's own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// By a negated match of each owner.
    Each,
    /// In a separate chain: see [`others`].
    First,
    /// Not at all: such packets were already accepted.
    Gone,
}

/// Chains that select packets of other owners than these. `meta skuid != U` does not match a packet without a socket, so
/// the chain returns the packets of these owners and accepts the rest: no rule follows the jump in `output`.
///
/// `istio-not-proxy`: packets of the proxy's first user or group return. `istio-other-groups`: those of included groups
/// return.
fn others(intent: &Intent, chains: &mut Chains) {
    let accept = || Rule::builder().counter().verdict(Verdict::Accept);
    let first = Owner::all(intent).next();
    if let Some(owner) = first.filter(|_| !intent.includes_loopback()) {
        let own = owner.matching(Rule::builder(), CmpOp::Eq);
        chains.add(NOT_PROXY, own.count_return());
        chains.add(NOT_PROXY, accept());
    }
    if let OwnerGroups::Only(groups) = &intent.owner_groups
        && !groups.is_empty()
    {
        for group in groups {
            let of_group = Rule::builder().skgid(CmpOp::Eq, group.0.clone());
            chains.add(OTHER_GROUPS, of_group.count_return());
        }
        chains.add(OTHER_GROUPS, accept());
    }
}

/// For one user or group of the proxy:
/// 1. Its connections to the pod's own addresses over `lo` go to the inbound listener, except to the
///    tunnel port and, for a user when DNS is captured, to port 53.
/// 2. Packets of other sockets over `lo` return: an application that calls itself. When DNS is
///    captured only TCP and not port 53, because DNS over `lo` goes to the proxy. No such rule when a
///    loopback network is captured.
/// 3. Its other traffic returns, or it would loop.
fn own_traffic(
    intent: &Intent,
    others: Others,
    families: &[Family],
    owner: Owner<'_>,
) -> Vec<Rule> {
    let captures_dns = intent.dns != Dns::Off;
    let over_lo = || Rule::builder().oifname(CmpOp::Eq, "lo");
    let tunnel = intent.inbound_tunnel_port;
    let mut rules = Vec::new();
    for family in families {
        let to_itself = over_lo()
            .l4proto(L4Proto::Tcp)
            .daddr(CmpOp::Neq, family.loopback);
        let to_itself = match owner {
            Owner::User(_) if captures_dns => {
                to_itself.dports(L4Proto::Tcp, CmpOp::Neq, &[DNS_PORT, tunnel])
            }
            _ => to_itself.dport(L4Proto::Tcp, CmpOp::Neq, tunnel..=tunnel),
        };
        rules.push(owner.matching(to_itself, CmpOp::Eq).count_jump(IN_REDIRECT));
    }
    if !intent.includes_loopback() {
        let of_others = if captures_dns {
            over_lo().dport(L4Proto::Tcp, CmpOp::Neq, DNS_PORT..=DNS_PORT)
        } else {
            over_lo()
        };
        match others {
            Others::Each => rules.push(owner.matching(of_others, CmpOp::Neq).count_return()),
            Others::First => rules.push(of_others.count_jump(NOT_PROXY)),
            Others::Gone => {}
        }
    }
    rules.push(owner.matching(Rule::builder(), CmpOp::Eq).count_return());
    rules
}

/// Excluded groups: one rule per group. Included groups: one rule that returns packets of all other groups. A rule
/// has at most 128 expressions, which 64 groups exceed: then the rule looks the group up in an anonymous set.
///
/// With [`Semantics::Xtables`] a separate chain matches included groups: see [`others`].
fn owner_groups(groups: &OwnerGroups, semantics: Semantics) -> Vec<Rule> {
    let skgid = |rule: RuleBuilder, op, group: &IdRange| rule.skgid(op, group.0.clone());
    match groups {
        OwnerGroups::AllBut(groups) => {
            let excluded = |g| skgid(Rule::builder(), CmpOp::Eq, g).count_return();
            groups.iter().map(excluded).collect()
        }
        OwnerGroups::Only(groups) if semantics == Semantics::Xtables && !groups.is_empty() => {
            vec![Rule::builder().count_jump(OTHER_GROUPS)]
        }
        OwnerGroups::Only(groups) => {
            let outside = |rule, group| skgid(rule, CmpOp::Neq, group);
            let listed = groups.iter().fold(Rule::builder(), outside).count_return();
            if listed.expressions(nft::TableFamily::Inet).len() <= Rule::MAX_EXPRESSIONS {
                return vec![listed];
            }
            let groups = groups.iter().map(|g| g.0.clone());
            vec![Rule::builder().skgids(CmpOp::Neq, groups).count_return()]
        }
    }
}

/// `istio-output-dns`: TCP and then UDP to port 53, of any server or of the known ones, goes to the DNS
/// listener.
fn dns(families: &[Family], chains: &mut Chains) {
    for proto in [L4Proto::Tcp, L4Proto::Udp] {
        let to_listener = |rule: RuleBuilder| {
            let rule = rule.dport(proto, CmpOp::Eq, DNS_PORT..=DNS_PORT).counter();
            rule.redirect(DNS_LISTENER_PORT).build()
        };
        if families.iter().any(|f| matches!(f.dns, FamilyDns::All)) {
            chains.add(OUTPUT_DNS, to_listener(Rule::builder()));
        }
        for family in families {
            let FamilyDns::Servers(servers) = &family.dns else {
                continue;
            };
            for server in servers {
                let to_server = Rule::builder().daddr(CmpOp::Eq, *server);
                chains.add(OUTPUT_DNS, to_listener(to_server));
            }
        }
    }
}
