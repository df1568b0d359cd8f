//! Addresses, policy rules and routes beside the rules.

use weir_netlink::Result;
use weir_netlink::route::{Family, PolicyRule, Route, Routing};

use crate::compile::{IpFamily, RoutingItem};

/// Adds what is not there yet, in order; the number of things added.
pub(super) fn add(routing: &Routing, items: &[RoutingItem]) -> Result<usize> {
    let mut added = 0;
    for item in items {
        let changed = match item {
            RoutingItem::Address { address, device } => {
                routing.add_address(routing.link(device)?.index, *address)?
            }
            RoutingItem::PolicyRule { .. } => match policy_rule(item) {
                Some(rule) => routing.add_rule(&rule)?,
                None => false,
            },
            RoutingItem::LocalDefault {
                family,
                device,
                table,
            } => {
                let oif = routing.link(device)?.index;
                routing.add_route(&Route::local_default(kernel(*family), oif, *table))?
            }
        };
        added += usize::from(changed);
    }
    Ok(added)
}

/// What of it is not there, as the command that would add it.
pub(super) fn missing(routing: &Routing, items: &[RoutingItem]) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for item in items {
        let there = match item {
            RoutingItem::Address { address, device } => {
                let index = routing.link(device)?.index;
                routing
                    .addresses()?
                    .iter()
                    .any(|a| a.index == index && a.net == *address)
            }
            RoutingItem::PolicyRule { .. } => match policy_rule(item) {
                Some(rule) => routing
                    .rules()?
                    .iter()
                    .any(|other| other.same_effect(&rule)),
                None => true,
            },
            RoutingItem::LocalDefault {
                family,
                device,
                table,
            } => {
                let oif = routing.link(device)?.index;
                let route = Route::local_default(kernel(*family), oif, *table);
                let same = |r: &Route| {
                    r.family() == route.family()
                        && (r.dst, r.oif, r.kind) == (route.dst, route.oif, route.kind)
                };
                routing.routes(*table)?.iter().any(same)
            }
        };
        if !there {
            missing.push(format!("needs: {item}"));
        }
    }
    Ok(missing)
}

fn policy_rule(item: &RoutingItem) -> Option<PolicyRule> {
    match item {
        RoutingItem::PolicyRule {
            family,
            mark,
            mask,
            table,
        } => {
            let mut rule = PolicyRule::mark(kernel(*family), *mark, *table);
            rule.fwmask = Some(*mask);
            Some(rule)
        }
        _ => None,
    }
}

fn kernel(family: IpFamily) -> Family {
    match family {
        IpFamily::V4 => Family::V4,
        IpFamily::V6 => Family::V6,
    }
}
