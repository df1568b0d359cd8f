//! Addresses, policy rules and routes beside the rules.

use super::Change;
use crate::compile::{IpFamily, RoutingItem};
use ipnet::IpNet;
use std::net::Ipv6Addr;
use weir_netlink::route::{Family, PolicyRule, RTPROT_WEIR, Route, RouteProtocol, Routing};
use weir_netlink::{Error, Result};

/// The source of the proxy's connections to the application over IPv6.
const PASSTHROUGH: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);

/// Adds what is not there, in order; on failure what was added is taken back.
pub(super) fn add(routing: &Routing, items: &[RoutingItem]) -> Result<Vec<Change>> {
    let mut added = Vec::new();
    for item in items {
        match add_one(routing, item) {
            Ok(true) => added.push(Change::Add(item.clone())),
            Ok(false) => {}
            Err(e) => return Err(take_back(routing, &added, e)),
        }
    }
    Ok(added)
}

/// Removes what was added, last first, and returns the error that was the reason.
pub(super) fn take_back(routing: &Routing, added: &[Change], reason: Error) -> Error {
    for change in added.iter().rev() {
        if let Change::Add(item) = change {
            // The reason is worth more than a second error about the same namespace.
            let _ = remove_one(routing, item);
        }
    }
    reason
}

/// What is not there.
pub(super) fn missing(routing: &Routing, items: &[RoutingItem]) -> Result<Vec<Change>> {
    let mut missing = Vec::new();
    for item in items {
        if !is_there(routing, item)? {
            missing.push(Change::Add(item.clone()));
        }
    }
    Ok(missing)
}

/// Policy rules and routes of ours that are not wished any more.
pub(super) fn stale(routing: &Routing, items: &[RoutingItem]) -> Result<Vec<Change>> {
    let ours = ours(routing)?;
    Ok(ours
        .into_iter()
        .filter(|i| !items.contains(i))
        .map(Change::Remove)
        .collect())
}

/// Removes what is stale.
pub(super) fn remove_stale(routing: &Routing, items: &[RoutingItem]) -> Result<Vec<Change>> {
    let stale = stale(routing, items)?;
    remove(routing, stale)
}

/// Everything of ours.
pub(super) fn all(routing: &Routing) -> Result<Vec<Change>> {
    let address = RoutingItem::Address {
        address: IpNet::from(std::net::IpAddr::from(PASSTHROUGH)),
        device: "lo",
    };
    let mut gone = stale(routing, &[])?;
    if is_there(routing, &address)? {
        gone.push(Change::Remove(address));
    }
    Ok(gone)
}

/// Removes everything of ours.
pub(super) fn remove_all(routing: &Routing) -> Result<Vec<Change>> {
    let gone = all(routing)?;
    remove(routing, gone)
}

/// Tear-down goes on after a failure; the first one is told.
fn remove(routing: &Routing, changes: Vec<Change>) -> Result<Vec<Change>> {
    let mut first = None;
    let mut removed = Vec::new();
    for change in changes {
        let Change::Remove(item) = &change else {
            continue;
        };
        match remove_one(routing, item) {
            Ok(true) => removed.push(change),
            Ok(false) => {}
            Err(e) => first = first.or(Some(e)),
        }
    }
    first.map_or(Ok(removed), Err)
}

/// Policy rules that carry our protocol, and our routes in the tables that they name. A route without its
/// rule is never looked at, so it is enough to begin with the rules.
fn ours(routing: &Routing) -> Result<Vec<RoutingItem>> {
    let mut items = Vec::new();
    let weir = RouteProtocol::Other(RTPROT_WEIR);
    for rule in routing.rules()?.iter().filter(|r| r.protocol == weir) {
        let family = match rule.family {
            Family::V4 => IpFamily::V4,
            Family::V6 => IpFamily::V6,
        };
        let mask = rule.fwmask.unwrap_or(u32::MAX);
        let mark = rule.fwmark.unwrap_or(0);
        items.push(RoutingItem::PolicyRule {
            family,
            mark,
            mask,
            table: rule.table,
        });
        for route in routing.routes(rule.table)? {
            if route.protocol == weir && route.family() == rule.family {
                items.push(RoutingItem::LocalDefault {
                    family,
                    device: "lo",
                    table: rule.table,
                });
            }
        }
    }
    Ok(items)
}

fn add_one(routing: &Routing, item: &RoutingItem) -> Result<bool> {
    match item {
        RoutingItem::Address { address, device } => {
            routing.add_address(routing.link(device)?.index, *address)
        }
        RoutingItem::PolicyRule { .. } => {
            policy_rule(item).map_or(Ok(false), |r| routing.add_rule(&r))
        }
        RoutingItem::LocalDefault { .. } => routing.add_route(&route(routing, item)?),
    }
}

fn remove_one(routing: &Routing, item: &RoutingItem) -> Result<bool> {
    match item {
        RoutingItem::Address { address, device } => {
            routing.del_address(routing.link(device)?.index, *address)
        }
        RoutingItem::PolicyRule { .. } => {
            policy_rule(item).map_or(Ok(false), |r| routing.del_rule(&r))
        }
        RoutingItem::LocalDefault { .. } => routing.del_route(&route(routing, item)?),
    }
}

fn is_there(routing: &Routing, item: &RoutingItem) -> Result<bool> {
    Ok(match item {
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
        RoutingItem::LocalDefault { table, .. } => {
            let route = route(routing, item)?;
            routing.routes(*table)?.iter().any(|r| {
                r.family() == route.family()
                    && (r.dst, r.oif, r.kind) == (route.dst, route.oif, route.kind)
            })
        }
    })
}

fn policy_rule(item: &RoutingItem) -> Option<PolicyRule> {
    let RoutingItem::PolicyRule {
        family,
        mark,
        mask,
        table,
    } = item
    else {
        return None;
    };
    let mut rule = PolicyRule::mark(kernel(*family), *mark, *table);
    rule.fwmask = Some(*mask);
    Some(rule)
}

fn route(routing: &Routing, item: &RoutingItem) -> Result<Route> {
    let (family, table, device) = match item {
        RoutingItem::LocalDefault {
            family,
            device,
            table,
        } => (*family, *table, *device),
        _ => (IpFamily::V4, 0, "lo"),
    };
    Ok(Route::local_default(
        kernel(family),
        routing.link(device)?.index,
        table,
    ))
}

fn kernel(family: IpFamily) -> Family {
    match family {
        IpFamily::V4 => Family::V4,
        IpFamily::V6 => Family::V6,
    }
}
