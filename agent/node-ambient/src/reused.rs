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
///
/// A change that was not completed leaves rules with two sequences of priorities, in which a rule may have one of two roles. It is refused
/// only if each of them would be.
pub(crate) fn reused(marks: &Marks, numbers: &Numbers, rules: &[PolicyRule]) -> Option<String> {
    let own: Vec<&PolicyRule> = rules.iter().filter(|rule| is_own(rule)).collect();
    own.iter().find_map(|rule| {
        let roles = roles(rule, &own).into_iter();
        let conflicts: Option<Vec<String>> = roles
            .map(|role| conflict(rule, role, marks, numbers))
            .collect();
        conflicts?.into_iter().next()
    })
}

/// Returns the number of a rule with this role that the configuration uses for something else.
fn conflict(rule: &PolicyRule, role: Role, marks: &Marks, numbers: &Numbers) -> Option<String> {
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
}

/// Returns what an own policy rule may be for: it follows from its distance to the first rule of a sequence.
fn roles(rule: &PolicyRule, own: &[&PolicyRule]) -> Vec<Role> {
    let mark = match (rule.action, rule.fwmark) {
        (RuleAction::Goto, Some(_)) => return vec![Role::Skip],
        (RuleAction::Lookup, None) => return vec![Role::Inbound],
        (RuleAction::Lookup, Some(mark)) => mark,
        _ => return Vec::new(),
    };
    let is_first = |r: &&&PolicyRule| r.action == RuleAction::Goto && r.fwmark.is_some();
    let of_family = own.iter().filter(|r| r.family == rule.family);
    let role = |first: &&PolicyRule| {
        let distance = rule.priority?.checked_sub(first.priority?)?;
        match (distance, mark.count_ones()) {
            (1, 1) => Some(Role::Outbound),
            (1, _) => Some(Role::SecondReply),
            (2, _) => Some(Role::Reply),
            _ => None,
        }
    };
    of_family.filter(is_first).filter_map(role).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Carrier, LocatedProxy};
    use crate::objects;
    use crate::tests::{BOTH, node};

    /// The rules of this configuration of numbers, with two proxies, in the order of their priorities.
    fn rules(marks: Marks, numbers: Numbers) -> Vec<PolicyRule> {
        let mut node = node(BOTH, Carrier::Veth);
        (node.config.marks, node.config.routing) = (marks, numbers);
        let before = node.active.clone().into_iter();
        node.before = before.map(|it| LocatedProxy { slot: 1, ..it }).collect();
        let mut rules = objects::host(&node).rules;
        rules.sort_by_key(|rule| rule.priority);
        assert_eq!(rules.len(), 10, "five of each family");
        rules
    }

    /// However many of the former rules a killed process left.
    #[test]
    fn another_priority_is_no_other_meaning() {
        let (marks, now) = (Marks::default(), Numbers::default());
        for priority in 95..106 {
            let before = Numbers { priority, ..now };
            let (there, new) = (rules(marks, before), rules(marks, now));
            for left in 0..=there.len() {
                for added in 0..=new.len() {
                    let rules = [&there[..left], &new[..added]].concat();
                    let found = reused(&marks, &now, &rules);
                    assert_eq!(found, None, "{priority}, {left} and {added}");
                }
            }
        }
    }

    #[test]
    fn each_number_of_another_rule_is_found() {
        let (marks, numbers) = (Marks::default(), Numbers::default());
        let there = rules(marks, numbers);
        let tables = [100, 101, 102, 103];
        for first in 0..4_usize {
            let mut now = tables;
            now.rotate_left(first);
            let [inbound_table, outbound_table, proxy_table, second_table] = now;
            let now = Numbers {
                inbound_table,
                outbound_table,
                proxy_table,
                second_table,
                ..numbers
            };
            assert_eq!(reused(&marks, &now, &there).is_some(), first > 0, "{now:?}");
        }
        let now = Marks {
            outbound: marks.skip,
            skip: marks.outbound,
            ..marks
        };
        assert!(reused(&now, &numbers, &there).is_some());
    }
}
