//! Tables and marks in force that a configuration uses for something else.
//!
//! New policy rules and routes are added while the former ones are in force. If a number had both meanings, packets would be routed by a
//! table of the other one meanwhile, and longer if the change fails.

use crate::config::{Marks, Numbers};
use crate::objects::is_own;
use std::fmt;
use weir_netlink::route::{PolicyRule, RuleAction};

/// What a policy rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Skip,
    Outbound,
    Inbound,
    Reply,
    SecondReply,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Skip => "packets that are not captured",
            Self::Outbound => "connections of pods",
            Self::Inbound => "connections to pods",
            Self::Reply => "replies to the proxy",
            Self::SecondReply => "replies to the second of two proxies",
        })
    }
}

/// Returns a number of a policy rule in force that has another meaning in the configuration, as text.
pub(crate) fn reused(marks: &Marks, numbers: &Numbers, rules: &[PolicyRule]) -> Option<String> {
    let own: Vec<&PolicyRule> = rules.iter().filter(|rule| is_own(rule)).collect();
    own.iter().find_map(|rule| {
        let role = role(rule, &own)?;
        let of_table = [
            (Role::Inbound, numbers.inbound_table),
            (Role::Outbound, numbers.outbound_table),
            (Role::Reply, numbers.proxy_table),
            (Role::SecondReply, numbers.second_table),
        ];
        let is_lookup = rule.action == RuleAction::Lookup;
        let mut other = of_table.into_iter().filter(|(now, _)| *now != role);
        if is_lookup && other.any(|(_, table)| table == rule.table) {
            return Some(format!("table {} is in force for {role}", rule.table));
        }
        let kept = match role {
            Role::Skip => marks.skip,
            Role::Outbound => marks.outbound,
            Role::Inbound => 0,
            Role::Reply => marks.proxy_return,
            Role::SecondReply => marks.proxy_return | marks.second,
        };
        let mark = rule.fwmark.unwrap_or(0);
        let is_reused = mark & marks.all() & !kept != 0;
        is_reused.then(|| format!("mark {mark:#x} is in force for {role}"))
    })
}

/// Returns what an own policy rule is for: their order follows from the priority of the first one. `None` for a rule without a number.
fn role(rule: &PolicyRule, own: &[&PolicyRule]) -> Option<Role> {
    let is_skip = |r: &PolicyRule| r.action == RuleAction::Goto && r.fwmark.is_some();
    let mark = match (rule.action, rule.fwmark) {
        (RuleAction::Goto, Some(_)) => return Some(Role::Skip),
        (RuleAction::Lookup, None) => return Some(Role::Inbound),
        (RuleAction::Lookup, Some(mark)) => mark,
        _ => return None,
    };
    let mut of_family = own.iter().filter(|r| r.family == rule.family);
    let first = of_family.find(|r| is_skip(r))?.priority?;
    match (rule.priority?.checked_sub(first)?, mark.count_ones()) {
        (1, 1) => Some(Role::Outbound),
        (1, _) => Some(Role::SecondReply),
        (2, _) => Some(Role::Reply),
        _ => None,
    }
}
