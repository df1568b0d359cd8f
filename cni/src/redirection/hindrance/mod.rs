//! Foreign rules and policies that keep packets from a redirection that is otherwise in sync.
//!
//! | What | Where | Why |
//! |---|---|---|
//! | `notrack` | a chain called before conntrack, including `ingress` | packets without a connection are not translated |
//! | a zone | the same | `SO_ORIGINAL_DST` fails, UDP replies are not translated, replies of TPROXY are redirected |
//! | zone 0 for UDP | before our zones for DNS | the first rule that sets a zone decides: queries of the proxy match entries of the application |
//! | `dnat`, `redirect` | a chain of type nat called before ours | the first translation wins |
//! | `tproxy` | a chain at prerouting | the packet is assigned to another socket |
//! | a terminal verdict or target | before our rules in a legacy built-in chain, which is shared | our rules are not reached |
//! | a policy `DROP` | of a chain of type nat at one of our hooks | it drops the packets that our chains do not redirect, or all |
//! | a policy rule by `from`, `iif lo`, `ipproto tcp` | before ours | replies do not return to the proxy |
//! | a sysctl that makes marks affect other lookups | TPROXY, eBPF programs in a pod | marked packets are dropped, or replies are routed to `lo` |
//! | `lo` is down | outbound packets, which rules redirect to `127.0.0.1` or `::1`, and programs to `lo` | they are lost |
//!
//! Both engines are searched, whichever has our rules: the kernel calls the chains of both. It calls chains with lower
//! priorities first; of equal ones the chain that was registered last. The kernel does not report the time of
//! registration: a table older than ours may have got its chain later. So a chain with our priority is reported as one
//! that may be called before ours.
//!
//! Rules for protocols or families that are not redirected are no hindrance. Neither are unreachable rules, nor chains that
//! count, mark, filter or drop: a chain is walked for each [`Class`](class::Class) of packets. A verdict map leads to each
//! chain that its elements for the class name.

mod class;
mod legacy;
mod routing;
mod tables;

pub(super) use routing::{marked_answers, may_select, past};

use super::engines;
use super::scheme::{SIDECAR, Scheme};
use crate::compile::{Compiled, Engine, Rules};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use weir_netfilter::nft::{
    self, CmpOp, Data, Hook, MetaKey, Operand, Selector, Statement, priority,
};
use weir_netfilter::xtables::{self, Not, Protocol, Target, XtFamily};
use weir_netlink::route::{Address, LOOPBACK_IFINDEX, Routing};
use weir_netlink::{Error, Result};

/// The priority of conntrack (`NF_IP_PRI_CONNTRACK`).
const CONNTRACK: i32 = -200;
/// Maximum number of reported lines.
const LINES: usize = 16;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Returns one line for each hindrance.
pub(super) fn find(
    desired: &Compiled,
    routing: &Routing,
    addresses: &[Address],
) -> Result<Vec<String>> {
    let ours = Ours::of(desired);
    let mut lines = Vec::new();
    // Without rules, eBPF programs capture the traffic.
    if !ours.hooks.is_empty() {
        let found = engines::read_legacy()?;
        if let Rules::Xtables(rules) = &desired.rules {
            lines = legacy::before_ours(&ours, rules, &found)?;
        }
        lines.extend(legacy::elsewhere(&ours, &found));
        lines.extend(tables::find(desired, &ours)?);
    }
    // Beside a sidecar that is for the loopback plugin to report: CHECK of this plugin is about what it has made.
    if ours.has(Hook::Output) && desired.scheme() != &SIDECAR {
        let lo = lo_is_down(routing, addresses);
        extend(&mut lines, lo.map(|line| line.into_iter().collect()))?;
    }
    extend(&mut lines, routing::find(desired, routing, addresses))?;
    let more = lines.len().saturating_sub(LINES);
    if more > 0 {
        lines.truncate(LINES);
        lines.push(format!("{more} more foreign rules and policies like these"));
    }
    Ok(lines)
}

/// Reports that `lo` is down: redirected outbound packets go there. A namespace without an address of another interface has none.
///
/// # Errors
/// The link cannot be read, and may be down.
pub(super) fn lo_is_down(routing: &Routing, addresses: &[Address]) -> Result<Option<String>> {
    if addresses.iter().all(|a| a.index == LOOPBACK_IFINDEX) || routing.is_up("lo")? {
        return Ok(None);
    }
    let line = "`lo` is down, so that the pod's outbound connections are lost; `ip link set lo up`";
    Ok(Some(line.to_owned()))
}

/// Adds what a further search found. An error of that does not invalidate the lines found so far.
///
/// # Errors
/// The search failed, and nothing was found so far.
fn extend(lines: &mut Vec<String>, found: Result<Vec<String>>) -> Result<()> {
    match found {
        Ok(found) => lines.extend(found),
        Err(e) if lines.is_empty() => return Err(e),
        Err(e) => lines.push(unknown(&e)),
    }
    Ok(())
}

/// The line reported if the search failed.
pub(super) fn unknown(why: &Error) -> String {
    format!("whether foreign rules take packets first is not known: {why}")
}

/// How a foreign rule takes packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taking {
    /// It exempts them from connection tracking.
    Untracked,
    /// It puts their connections into a zone, which only our own rules for DNS may do.
    Zoned,
    /// It keeps them in the default zone: the first rule that sets a zone decides.
    Unzoned,
    /// It translates their destination.
    Translated,
    /// It assigns them to a socket.
    Diverted,
}

impl Taking {
    /// The line that describes the rule.
    fn line(self, rule: &str, is_before: Before) -> String {
        let what = match self {
            Self::Untracked => {
                "exempts packets from connection tracking, so that they are not redirected"
            }
            Self::Zoned => "puts connections into a zone, where their translation is not found",
            Self::Unzoned if is_before == Before::Yes => {
                "keeps DNS in the default zone, so that a query of the proxy may return to the proxy"
            }
            Self::Unzoned => {
                "may keep DNS in the default zone, since its chain has the same priority as ours"
            }
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

/// The hooks at which the redirection takes packets, and the packets that it takes.
#[derive(Debug, Default, PartialEq)]
struct Ours {
    engine: Option<Engine>,
    /// The kind of redirection. Its own objects are not hindrances: those that are not desired are drift.
    scheme: Option<&'static Scheme>,
    /// Each hook once, with the priority of the first chain called there that redirects.
    hooks: Vec<(Hook, i32)>,
    takes_udp: bool,
    /// True if IPv6 is redirected.
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

    /// True if the chain of a legacy table, or of a table of `iptables-nft`, belongs to the same kind of redirection; `names` are
    /// all chains of the table.
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

    /// Determines whether a chain with this priority takes packets before ours; `None` if not. For tracking and zones the
    /// priority is compared with that of conntrack: a chain with an equal priority may be called before conntrack.
    fn is_behind(&self, taking: Taking, hook: Hook, priority: i32) -> Option<Before> {
        let (_, of_ours) = self.hooks.iter().find(|(h, _)| *h == hook)?;
        let order = match taking {
            // Diverted packets keep their destination, but without tracking the proxy's replies look like a new connection.
            Taking::Untracked | Taking::Zoned => priority.cmp(&CONNTRACK),
            Taking::Unzoned => priority.cmp(&priority::RAW),
            Taking::Translated => priority.cmp(of_ours),
            // The last `tproxy` that finds a socket wins.
            Taking::Diverted if priority > *of_ours => Ordering::Less,
            Taking::Diverted => priority.cmp(of_ours),
        };
        match order {
            Ordering::Less => Some(Before::Yes),
            Ordering::Equal => Some(Before::Maybe),
            Ordering::Greater => None,
        }
    }

    /// True if chains with this priority see the proxy as the destination.
    fn has_translated(&self, hook: Hook, priority: i32) -> bool {
        let mut hooks = self.hooks.iter();
        hooks.any(|(h, of_ours)| *h == hook && *of_ours == priority::DSTNAT && priority > *of_ours)
    }

    /// True if one of our chains is at this hook.
    fn has(&self, hook: Hook) -> bool {
        self.hooks.iter().any(|(of_ours, _)| *of_ours == hook)
    }

    /// True if packets of this protocol are redirected.
    fn takes(&self, protocol: u8) -> bool {
        protocol == TCP || (protocol == UDP && self.takes_udp)
    }
}

/// The line about a policy `DROP` of a chain of type nat at one of our hooks. Called before ours it drops every connection,
/// behind ours those that are not redirected.
fn dropped(policy: &str) -> String {
    format!("a foreign policy DROP of nat drops connections: {policy}; set it to ACCEPT")
}

/// The rules that packets of the redirection may reach from chain `from`, each with its chain. `rules` returns the rules of
/// a chain that concern these packets, with the chain's name as stored in the table; `to` the foreign chains that a rule
/// leads to.
fn reachable<'t, R, C: IntoIterator<Item = &'t str>>(
    from: &'t str,
    rules: impl Fn(&str) -> Option<(&'t str, Vec<&'t R>)>,
    to: impl Fn(&'t R) -> C,
) -> Vec<(&'t str, &'t R)> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    let mut due = vec![from];
    while let Some(name) = due.pop() {
        // Many rules may lead to one chain; visit its rules once.
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
