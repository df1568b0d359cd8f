//! `nat`: redirection to the proxy's listeners.

use super::super::family::{Family, FamilyDns};
use super::super::{DNS_LISTENER_PORT, DNS_PORT};
use super::{
    Chains, IN_REDIRECT, INBOUND, IS, IS_NOT, ISTIO_OUTPUT, OUTPUT, OUTPUT_DNS, Owner, PREROUTING,
    REDIRECT, Returns, ports, tcp,
};
use crate::config::{Dns, IdRange, Inbound, Intent, OwnerGroups};
use weir_netfilter::xtables::{Nat, Rule, RuleBuilder, Target};

pub(super) fn chains(intent: &Intent, family: &Family) -> Chains {
    let mut chains = Chains::default();
    prerouting(intent, family, &mut chains);
    inbound(intent, &mut chains);
    output(intent, family, &mut chains);
    dns(family, &mut chains);
    chains
}

/// 1. Packets of virtual machines to captured networks go to the outbound listener. Interfaces and
///    networks are in reverse order.
/// 2. Their other packets return.
/// 3. Packets from excluded interfaces return.
/// 4. Other TCP is inbound traffic.
fn prerouting(intent: &Intent, family: &Family, chains: &mut Chains) {
    let from = |name: &str| Rule::builder().in_interface(name);
    let virtual_reversed = || intent.virtual_interfaces.iter().rev();
    match &family.include {
        None => {
            for name in virtual_reversed() {
                chains.add(PREROUTING, from(name.as_str()).jump(REDIRECT));
            }
        }
        Some(networks) => {
            for net in networks.iter().rev() {
                for name in virtual_reversed() {
                    chains.add(
                        PREROUTING,
                        from(name.as_str()).destination(*net).jump(REDIRECT),
                    );
                }
            }
        }
    }
    for name in virtual_reversed() {
        chains.add(PREROUTING, from(name.as_str()).returns());
    }
    for name in &intent.exclude_interfaces {
        chains.add(PREROUTING, from(name.as_str()).returns());
    }
    if intent.inbound != Inbound::Off && intent.tproxy().is_none() {
        chains.add(PREROUTING, tcp().jump(INBOUND));
    }
}

/// `ISTIO_INBOUND`: the rules of `istio-inbound` in [`nft`](super::super::nft), in the same order.
fn inbound(intent: &Intent, chains: &mut Chains) {
    let to_listener = |port| tcp().target(Target::Redirect(Nat::to_ports(port)));
    let tcp_to = |port| Rule::builder().tcp_dport(port);
    let tunnel = intent.inbound_tunnel_port.into();
    chains.add(INBOUND, tcp_to(tunnel).returns());
    match &intent.inbound {
        _ if intent.tproxy().is_some() => {}
        Inbound::Off => {}
        Inbound::All => {
            for port in &intent.inbound_ports_exclude {
                chains.add(INBOUND, tcp_to(ports(port)).returns());
            }
            chains.add(INBOUND, tcp().jump(IN_REDIRECT));
        }
        Inbound::Ports(list) => {
            for port in list {
                chains.add(INBOUND, tcp_to(ports(port)).jump(IN_REDIRECT));
            }
        }
    }
    let (outbound, inbound) = (intent.proxy_port, intent.inbound_capture_port);
    chains.add(REDIRECT, to_listener(outbound..=outbound));
    chains.add(IN_REDIRECT, to_listener(inbound..=inbound));
}

/// `OUTPUT`: packets to excluded interfaces return, the rest is outbound traffic.
///
/// `ISTIO_OUTPUT`: the rules of `istio-output` in [`nft`](super::super::nft), in the same order; rules that exist there
/// once per family are in the tables of the family here.
fn output(intent: &Intent, family: &Family, chains: &mut Chains) {
    for name in &intent.exclude_interfaces {
        let rule = Rule::builder().out_interface(name.as_str()).returns();
        chains.add(OUTPUT, rule);
    }
    chains.add(OUTPUT, Rule::builder().jump(ISTIO_OUTPUT));

    let mut add = |rule| chains.add(ISTIO_OUTPUT, rule);
    for port in &intent.outbound_ports_exclude {
        add(Rule::builder().tcp_dport(ports(port)).returns());
        add(Rule::builder().udp_dport(ports(port)).returns());
    }
    let to_application = Rule::builder()
        .out_interface("lo")
        .source(family.passthrough);
    add(to_application.returns());
    for owner in Owner::all(intent) {
        own_traffic(intent, family, owner)
            .into_iter()
            .for_each(&mut add);
    }
    match &intent.owner_groups {
        OwnerGroups::AllBut(groups) => {
            for group in groups {
                add(Rule::builder().gid(IS, group.0.clone()).returns());
            }
        }
        OwnerGroups::Only(groups) => {
            let outside = |rule: RuleBuilder, group: &IdRange| rule.gid(IS_NOT, group.0.clone());
            add(groups.iter().fold(Rule::builder(), outside).returns());
        }
    }
    if family.dns.is_on() {
        add(Rule::builder().jump(OUTPUT_DNS));
    }
    add(Rule::builder().destination(family.loopback).returns());
    for net in &family.exclude {
        add(Rule::builder().destination(*net).returns());
    }
    for port in &intent.outbound_ports_include {
        add(Rule::builder().tcp_dport(ports(port)).jump(REDIRECT));
    }
    match &family.include {
        None => add(Rule::builder().jump(REDIRECT)),
        Some(networks) => {
            for net in networks {
                add(Rule::builder().destination(*net).jump(REDIRECT));
            }
        }
    }
}

/// The rules for one user or group of the proxy, as in the function of the same name for nf_tables.
fn own_traffic(intent: &Intent, family: &Family, owner: Owner<'_>) -> Vec<Rule> {
    let captures_dns = intent.dns != Dns::Off;
    let over_lo = || Rule::builder().out_interface("lo");
    let tunnel = intent.inbound_tunnel_port.into();
    let to_itself = over_lo().not_destination(family.loopback);
    let to_itself = match owner {
        Owner::User(_) if captures_dns => to_itself.not_tcp_dports(vec![DNS_PORT.into(), tunnel]),
        _ => to_itself.not_tcp_dport(tunnel),
    };
    let mut rules = vec![owner.option(to_itself, IS).jump(IN_REDIRECT)];
    if !intent.includes_loopback() {
        let of_others = if captures_dns {
            over_lo().not_tcp_dport(DNS_PORT.into())
        } else {
            over_lo()
        };
        rules.push(owner.option(of_others, IS_NOT).returns());
    }
    rules.push(owner.option(Rule::builder(), IS).returns());
    rules
}

/// `ISTIO_OUTPUT_DNS`: TCP and then UDP to port 53, of any server or of the known ones, goes to the DNS
/// listener.
fn dns(family: &Family, chains: &mut Chains) {
    let listener = Target::Redirect(Nat::to_ports(DNS_LISTENER_PORT..=DNS_LISTENER_PORT));
    let tcp = Rule::builder().tcp_dport(DNS_PORT.into());
    let udp = Rule::builder().udp_dport(DNS_PORT.into());
    for rule in [tcp, udp] {
        match &family.dns {
            FamilyDns::Off => {}
            FamilyDns::All => chains.add(OUTPUT_DNS, rule.target(listener.clone())),
            FamilyDns::Servers(servers) => {
                for server in servers {
                    let rule = rule.clone().destination(*server);
                    chains.add(OUTPUT_DNS, rule.target(listener.clone()));
                }
            }
        }
    }
}
