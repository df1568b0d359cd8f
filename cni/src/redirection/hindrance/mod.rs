//! Foreign rules and policies that keep packets from the redirection, though all of it is there.
//!
//! | What | Where | Why |
//! |---|---|---|
//! | `notrack` | a chain that is called before conntrack, also at `ingress` | packets without a connection are not translated |
//! | a zone | the same | the proxy does not find the destination (`SO_ORIGINAL_DST`), answers to UDP are not translated, those of TPROXY are redirected |
//! | `dnat`, `redirect` | a chain of type nat that is called before ours | the first translation counts |
//! | `tproxy` | a chain at prerouting | the packet has another socket than ours |
//! | whatever ends a chain | before our rules in a legacy built-in chain, which is shared | our rules are not reached |
//! | a policy `DROP` | of a chain of type nat at a hook of ours | it drops what ours let through, or all |
//! | a policy rule by `from`, `iif lo`, `ipproto tcp` | before ours | replies do not return to the proxy |
//! | a sysctl by which marks have an effect on other look-ups | with transparent interception | marked packets are dropped, or answers led to `lo` |
//!
//! Both engines are looked at, whichever has our rules: the kernel calls the chains of both. Chains with lower priorities are
//! called first; of equal ones the chain that was registered last. The kernel does not say when that was: a table that is
//! older than ours may have got its chain later. So one with our priority is reported as one that may be before ours.
//!
//! Rules for other protocols or families than are redirected are no hindrance, nor are those that no packet comes to, nor chains that
//! count, mark, filter or drop: a chain is walked for each [`Class`](class::Class) of packets. A verdict map leads to each chain that its elements for
//! them name.

mod class;
mod legacy;
mod routing;
mod tables;

pub(super) use routing::{may_select, past};

use super::engines;
use super::scheme::Scheme;
use crate::compile::{Compiled, Engine, Rules};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use weir_netfilter::nft::{
    self, CmpOp, Data, Hook, MetaKey, Operand, Selector, Statement, priority,
};
use weir_netfilter::xtables::{self, Not, Protocol, Target, XtFamily};
use weir_netlink::route::{Address, Routing};
use weir_netlink::{Error, Result};

/// Conntrack sees a packet at this priority (`NF_IP_PRI_CONNTRACK`).
const CONNTRACK: i32 = -200;
/// Lines that are reported.
const LINES: usize = 16;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// One line for each.
pub(super) fn find(
    desired: &Compiled,
    routing: &Routing,
    addresses: &[Address],
) -> Result<Vec<String>> {
    let ours = Ours::of(desired);
    let mut lines = Vec::new();
    // Without rules programs of eBPF capture.
    if !ours.hooks.is_empty() {
        let found = engines::read_legacy()?;
        if let Rules::Xtables(rules) = &desired.rules {
            lines = legacy::before_ours(&ours, rules, &found)?;
        }
        lines.extend(legacy::elsewhere(&ours, &found));
        lines.extend(tables::find(desired, &ours)?);
    }
    lines.extend(routing::find(desired, routing, addresses)?);
    let more = lines.len().saturating_sub(LINES);
    if more > 0 {
        lines.truncate(LINES);
        lines.push(format!("{more} more foreign rules and policies like these"));
    }
    Ok(lines)
}

/// The line where they cannot be found.
pub(super) fn unknown(why: &Error) -> String {
    format!("whether foreign rules take packets first is not known: {why}")
}

/// How a foreign rule takes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    /// They are not tracked.
    Untracked,
    /// Their connections are in a zone, as only our own rules for DNS may set them.
    Zoned,
    /// Their destination is translated.
    Translated,
    /// They are given to a socket.
    Diverted,
}

impl Taking {
    /// The sentence about the rule.
    fn line(self, rule: &str, is_before: Before) -> String {
        let what = match self {
            Self::Untracked => {
                "exempts packets from connection tracking, so that they are not redirected"
            }
            Self::Zoned => "puts connections into a zone, where their translation is not found",
            _ if is_before == Before::Maybe => {
                "may take packets before ours, since its chain has the same priority"
            }
            Self::Translated => "takes packets before ours",
            Self::Diverted => "gives packets to a socket that is not the proxy's",
        };
        let remedy = match is_before {
            Before::Yes => "remove it",
            Before::Maybe => "remove it, or in nf_tables give its chain a higher priority",
        };
        format!("a foreign rule {what}: {rule}; {remedy}")
    }
}

/// Whether a chain is called before ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Yes,
    Maybe,
}

/// Where the redirection takes packets, and which.
#[derive(Debug, Default, PartialEq)]
struct Ours {
    engine: Option<Engine>,
    /// The kind of redirection. What is its own and not as it should be is drift.
    scheme: Option<&'static Scheme>,
    /// Each hook once, with the priority of the first chain that redirects there.
    hooks: Vec<(Hook, i32)>,
    takes_udp: bool,
    /// IPv6 is redirected.
    has_ipv6: bool,
}

impl Ours {
    fn of(desired: &Compiled) -> Self {
        let ours = match &desired.rules {
            Rules::Nft(rules) => Self::in_tables(rules, desired.leaves_ipv6_alone()),
            Rules::Xtables(rules) => Self::in_legacy(rules),
        };
        Self {
            scheme: Some(desired.scheme()),
            ..ours
        }
    }

    /// Whether the chain of a legacy table, or of one of `iptables-nft`, is of the same kind of redirection; `names` are all of the
    /// table.
    fn owns<'n>(
        &self,
        table: &str,
        chain: &str,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> bool {
        let owns = |scheme: &Scheme| scheme.ownership().owns(table, chain, names);
        self.scheme.is_some_and(owns)
    }

    fn in_tables(rules: &nft::Ruleset, leaves_ipv6_alone: bool) -> Self {
        let mut ours = Self {
            engine: Some(Engine::Nft),
            has_ipv6: !leaves_ipv6_alone,
            ..Self::default()
        };
        for table in &rules.tables {
            let all = || table.chains.iter().flat_map(|c| &c.rules);
            let has = |is: fn(&Statement) -> bool| {
                let mut rules = all();
                rules.any(|rule| rule.statements.iter().any(is))
            };
            let diverts = has(|s| matches!(s, Statement::Tproxy(_)));
            for base in table.chains.iter().filter_map(|c| c.base.as_ref()) {
                let takes = match base.chain_type {
                    nft::ChainType::Nat => true,
                    _ => diverts && base.hook == Hook::Prerouting,
                };
                if takes {
                    ours.add(base.hook, base.priority);
                }
            }
            let is_udp = |rule: &nft::Rule| {
                let redirects = |s: &Statement| matches!(s, Statement::Redirect(_));
                let of_udp = Statement::Match(nft::Match {
                    selector: Selector::Meta(MetaKey::L4proto),
                    mask: None,
                    op: CmpOp::Eq,
                    operand: Operand::Value(Data::u8(UDP)),
                });
                rule.statements.iter().any(redirects) && rule.statements.contains(&of_udp)
            };
            ours.takes_udp |= all().any(is_udp);
        }
        ours
    }

    fn in_legacy(rules: &xtables::Ruleset) -> Self {
        let mut ours = Self {
            engine: Some(Engine::Xtables),
            has_ipv6: rules.tables.iter().any(|t| t.family == XtFamily::Ip6),
            ..Self::default()
        };
        for table in &rules.tables {
            let all = || table.chains.iter().flat_map(|c| &c.rules);
            let diverts = all().any(|rule| matches!(rule.target, Some(Target::Tproxy(_))));
            for chain in &table.chains {
                let Some(hook) = legacy::hook(&chain.name) else {
                    continue;
                };
                match table.name.as_str() {
                    "nat" => ours.add(hook, priority::DSTNAT),
                    "mangle" if diverts && hook == Hook::Prerouting => {
                        ours.add(hook, priority::MANGLE);
                    }
                    _ => {}
                }
            }
            let is_udp = |rule: &xtables::Rule| {
                matches!(rule.target, Some(Target::Redirect(_)))
                    && rule.protocol == Some((Not(false), Protocol::UDP))
            };
            ours.takes_udp |= all().any(is_udp);
        }
        ours
    }

    fn add(&mut self, hook: Hook, priority: i32) {
        match self.hooks.iter_mut().find(|(h, _)| *h == hook) {
            Some((_, known)) => *known = priority.min(*known),
            None => self.hooks.push((hook, priority)),
        }
    }

    /// Whether a chain with this priority takes packets from ours. With that of conntrack it may be called before it, too.
    fn is_behind(&self, taking: Taking, hook: Hook, priority: i32) -> Option<Before> {
        let (_, of_ours) = self.hooks.iter().find(|(h, _)| *h == hook)?;
        let order = match taking {
            // What is diverted has its destination, but the proxy's answers look like a connection of their own, too.
            Taking::Untracked | Taking::Zoned => priority.cmp(&CONNTRACK),
            Taking::Translated => priority.cmp(of_ours),
            // The last one that finds a socket counts.
            Taking::Diverted if priority > *of_ours => Ordering::Less,
            Taking::Diverted => priority.cmp(of_ours),
        };
        match order {
            Ordering::Less => Some(Before::Yes),
            Ordering::Equal => Some(Before::Maybe),
            Ordering::Greater => None,
        }
    }

    /// Whether the destination is that of the proxy in chains with this priority.
    fn has_translated(&self, hook: Hook, priority: i32) -> bool {
        let mut hooks = self.hooks.iter();
        hooks.any(|(h, of_ours)| *h == hook && *of_ours == priority::DSTNAT && priority > *of_ours)
    }

    /// Whether a chain of ours is at this hook.
    fn has(&self, hook: Hook) -> bool {
        self.hooks.iter().any(|(of_ours, _)| *of_ours == hook)
    }

    /// Whether packets of this protocol are redirected.
    fn takes(&self, protocol: u8) -> bool {
        protocol == TCP || (protocol == UDP && self.takes_udp)
    }
}

/// The line about a policy `DROP` of a chain of type nat at a hook of ours. Before ours it drops every connection, behind ours
/// those that are not redirected.
fn dropped(policy: &str) -> String {
    format!("a foreign policy DROP of nat drops connections: {policy}; set it to ACCEPT")
}

/// The rules that packets of the redirection may come to from this chain on, each with its chain: `rules` are those of a chain that
/// concern them, with the name it has in the table, and `to` the foreign chains that a rule leads to.
fn reachable<'t, R, C: IntoIterator<Item = &'t str>>(
    from: &'t str,
    rules: impl Fn(&str) -> Option<(&'t str, Vec<&'t R>)>,
    to: impl Fn(&'t R) -> C,
) -> Vec<(&'t str, &'t R)> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    let mut due = vec![from];
    while let Some(name) = due.pop() {
        // Many rules may lead to one chain, whose rules are looked at once.
        if !known.insert(name) {
            continue;
        }
        let Some((name, rules)) = rules(name) else {
            continue;
        };
        for rule in &rules {
            due.extend(to(rule));
        }
        found.extend(rules.into_iter().map(|rule| (name, rule)));
    }
    found
}

#[cfg(test)]
mod tests;
