//! Such rules in legacy tables.

use super::super::legacy::CHAIN;
use super::{Ahead, Does, Packets, Rules, taken};
use std::net::IpAddr;
use weir_netfilter::xtables::{Match, Network, Not, Protocol, Rule, Table, Target, Tcp};

/// Adds a rule of `nat` that translates the packets before ours.
pub(super) fn translates(table: &Table, packets: Vec<Packets>, found: &mut Ahead) {
    let Some(hook) = table.chain("POSTROUTING") else {
        return;
    };
    let is_ours = |rule: &Rule| matches!(&rule.target, Some(Target::Jump(to)) if to == CHAIN);
    let ours = hook.rules.iter().position(is_ours).unwrap_or(0);
    found.is_behind |= ours > 0;
    let before = hook.rules.get(..ours).unwrap_or_default();
    let of = Of {
        table,
        is_nat: true,
    };
    if let Some(at) = taken(&of, (&hook.name, before), packets) {
        found.takes_in_table = true;
        found.takes.push(line(table, at));
    }
}

/// Returns the rule of `raw` that exempts the packets from connection tracking.
pub(super) fn untracked(table: &Table, packets: Vec<Packets>) -> Option<String> {
    let hook = table.chain("OUTPUT")?;
    let of = Of {
        table,
        is_nat: false,
    };
    let at = taken(&of, (&hook.name, &hook.rules), packets)?;
    Some(line(table, at))
}

fn line(table: &Table, (chain, rule): (&str, &Rule)) -> String {
    format!("{} -t {} -A {chain}{rule}", table.family, table.name)
}

struct Of<'t> {
    table: &'t Table,
    /// It has our jump: a packet that does not return to the built-in chain does not reach our rules.
    is_nat: bool,
}

impl<'t> Rules<'t> for Of<'t> {
    type Rule = Rule;

    fn keeps(&self) -> bool {
        self.is_nat
    }

    fn chain(&self, name: &str) -> Option<(&'t str, &'t [Rule])> {
        let chain = self.table.chain(name)?;
        Some((chain.name.as_str(), chain.rules.as_slice()))
    }

    fn does(&self, rule: &'t Rule) -> Does<'t> {
        match &rule.target {
            Some(Target::Jump(to)) => Does::Jump(to),
            Some(Target::Goto(to)) => Does::Goto(to),
            Some(Target::Return) => Does::Return,
            Some(Target::Accept | Target::Drop) if !self.is_nat => Does::Leaves,
            Some(Target::Accept | Target::Drop | Target::Masquerade(_) | Target::Snat(_)) => {
                Does::Takes
            }
            Some(target) if target.name() == "NETMAP" || untracks(target) => Does::Takes,
            _ => Does::Nothing,
        }
    }

    fn holds(&self, rule: &'t Rule, packets: Packets) -> Option<bool> {
        let protocol = rule.protocol.as_ref();
        let is_tcp = protocol.is_none_or(|(Not(not), of)| (*of == Protocol::TCP) != *not);
        let is_to = match (&rule.destination, packets.to) {
            (None, _) => Some(true),
            (Some((Not(not), to)), _) if to.is_any() => Some(!not),
            (Some((Not(not), to)), Some(address)) => Some(contains(to, address) != *not),
            (Some(_), None) => None,
        };
        match is_to {
            _ if !is_tcp => Some(false),
            Some(true) => is_plain(rule).then_some(true),
            is_to => is_to,
        }
    }
}

/// True if the rule has no conditions but those on protocol and destination.
fn is_plain(rule: &Rule) -> bool {
    let plain = |m: &Match| match m {
        Match::Comment(_) => true,
        Match::Tcp(tcp) => *tcp == Tcp::default(),
        _ => false,
    };
    rule.source.is_none()
        && (&rule.in_interface, &rule.out_interface) == (&None, &None)
        && (&rule.fragment, &rule.header) == (&None, &None)
        && rule.matches.iter().all(plain)
}

/// True if the target exempts packets from connection tracking.
pub(super) fn untracks(target: &Target) -> bool {
    match target {
        Target::Ct(ct) => ct.notrack,
        target => target.extension() == Some("NOTRACK"),
    }
}

fn contains(network: &Network, address: IpAddr) -> bool {
    Network::new(address, network.mask).is_some_and(|of| of.address == network.address)
}
