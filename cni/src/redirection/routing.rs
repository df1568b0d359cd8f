//! Addresses, policy rules and routes of a redirection.
//!
//! An owned item carries weir's protocol number and has exactly the form that weir writes: anything else is foreign.
//! A foreign item with the same effect as a desired one satisfies it, and is never deleted; a foreign item that takes
//! the packets of a desired one blocks it ([`standing`]).
//!
//! A policy rule is added after its route, so that no marked packet is looked up in a table without the route.
//! When routing is removed, nothing marks packets any more: the route is deleted first, and a failure does not
//! stop the rest.

mod standing;

use super::Change;
use super::scheme::Scheme;
use crate::compile::RoutingItem;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv6Addr};
use weir_netlink::route::{
    Address, AddressFamily, LOOPBACK_IFINDEX, PolicyRule, Route, RouteProtocol, Routing,
};
use weir_netlink::{Error, Result};

/// The source of the proxy's connections to the application over IPv6.
const PASSTHROUGH: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);

/// `rtm_protocol`, `FRA_PROTOCOL` and `IFA_PROTO` of every route, policy rule and address that weir adds to a pod's
/// namespace. It identifies owned items.
///
/// The kernel gives no meaning to numbers above `RTPROT_STATIC`. 119 is assigned neither in `linux/rtnetlink.h` nor in
/// iproute2's `rt_protos`.
pub const RTPROT_WEIR: u8 = 119;

const WEIR: RouteProtocol = RouteProtocol::Other(RTPROT_WEIR);

/// The routing of a namespace that concerns a redirection.
pub(super) struct Held {
    scheme: &'static Scheme,
    addresses: Vec<Address>,
    rules: Vec<PolicyRule>,
    /// Routes of the tables of the items and of the tables in which earlier policy rules look up every packet; of other
    /// tables those with weir's protocol number. The routes of each table are in the kernel's order.
    routes: Vec<Route>,
}

/// An owned item in the kernel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ours {
    item: RoutingItem,
    object: Object,
}

/// The item exactly as the kernel lists it, so that no other is deleted in its place.
#[derive(Clone, Debug, PartialEq)]
enum Object {
    Address(IpNet),
    Rule(PolicyRule),
    Route(Route),
}

/// The writer of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Weir,
    Another,
    /// Kernels before 5.18 do not store it.
    Unknown,
}

impl Held {
    /// Reads the routing that concerns these items, and everything owned.
    pub(super) fn read(
        scheme: &'static Scheme,
        routing: &Routing,
        items: &[RoutingItem],
    ) -> Result<Self> {
        Self::beside(scheme, routing.addresses()?, routing, items)
    }

    /// Like [`Held::read`], with addresses that were read already.
    pub(super) fn beside(
        scheme: &'static Scheme,
        addresses: Vec<Address>,
        routing: &Routing,
        items: &[RoutingItem],
    ) -> Result<Self> {
        let adopted = (scheme.routing)();
        let items: Vec<RoutingItem> = items.iter().chain(&adopted).cloned().collect();
        let mut held = Self::of_tables(scheme, routing, &items)?;
        held.addresses = addresses;
        let mut tables = tables(&items);
        tables.extend(held.read_rules(routing, &items)?);
        let others = routing.routes_by(WEIR)?;
        let others = others.into_iter().filter(|r| !tables.contains(&r.table));
        held.routes.extend(others);
        Ok(held)
    }

    /// Reads only what shows whether these items exist.
    pub(super) fn read_of(
        scheme: &'static Scheme,
        routing: &Routing,
        items: &[RoutingItem],
    ) -> Result<Self> {
        let has = |is: fn(&RoutingItem) -> bool| items.iter().any(is);
        let mut held = Self::of_tables(scheme, routing, items)?;
        if has(|i| matches!(i, RoutingItem::Address { .. })) {
            held.addresses = routing.addresses()?;
        }
        if has(|i| matches!(i, RoutingItem::PolicyRule { .. })) {
            held.read_rules(routing, items)?;
        }
        Ok(held)
    }

    /// Reads the policy rules, and the routes of tables that only these rules look up; returns the tables.
    fn read_rules(&mut self, routing: &Routing, items: &[RoutingItem]) -> Result<Vec<u32>> {
        self.rules = routing.rules()?;
        let tables = self.tables_before(items);
        for table in &tables {
            self.routes.extend(routing.routes(*table)?);
        }
        Ok(tables)
    }

    fn of_tables(
        scheme: &'static Scheme,
        routing: &Routing,
        items: &[RoutingItem],
    ) -> Result<Self> {
        let mut routes = Vec::new();
        for table in tables(items) {
            routes.extend(routing.routes(table)?);
        }
        Ok(Self {
            scheme,
            addresses: Vec::new(),
            rules: Vec::new(),
            routes,
        })
    }

    /// Everything owned, in the order of removal. On a kernel that does not store the protocol of addresses this
    /// includes the passthrough address: only a redirection uses it.
    pub(super) fn ours(&self) -> Vec<Ours> {
        let adopted = (self.scheme.routing)();
        let is_ours =
            |rule: &&PolicyRule| is_ours(rule) || adopted.iter().any(|item| is_exactly(rule, item));
        let rules = self.rules.iter().filter(is_ours).map(|r| Ours {
            item: RoutingItem::PolicyRule {
                family: r.family,
                // Without a mark it is for every packet: none of its bits are compared.
                mark: r.fwmark.unwrap_or(0),
                mask: r.fwmask.unwrap_or(0),
                table: r.table,
                priority: None,
            },
            object: Object::Rule(r.clone()),
        });
        let routes = self.routes.iter().filter_map(|r| {
            let family = r.family();
            let is_ours = r.protocol == WEIR || tables(&adopted).contains(&r.table);
            let is_ours = is_ours && r.same_effect(&route(family, r.table));
            let item = RoutingItem::LocalDefault {
                family,
                table: r.table,
            };
            let object = Object::Route(r.clone());
            is_ours.then_some(Ours { item, object })
        });
        let address = self.passthrough().filter(|(_, o)| *o != Owner::Another);
        let address = address.map(|(net, _)| Ours {
            item: RoutingItem::Address { address: net },
            object: Object::Address(net),
        });
        routes.chain(rules).chain(address).collect()
    }

    fn on_lo(&self) -> impl Iterator<Item = &Address> {
        self.addresses
            .iter()
            .filter(|a| a.index == LOOPBACK_IFINDEX)
    }

    /// The passthrough address as weir adds it. Its owner is known if the kernel stores the protocol of addresses: then
    /// the kernel's own address `::1` on `lo` has one.
    fn passthrough(&self) -> Option<(IpNet, Owner)> {
        let net = IpNet::from(IpAddr::from(PASSTHROUGH));
        let found = self.on_lo().find(|a| a.net == net)?;
        let keeps_owners = self.addresses.iter().any(|a| a.protocol.is_some());
        let owner = match found.protocol {
            Some(RTPROT_WEIR) => Owner::Weir,
            None if !keeps_owners => Owner::Unknown,
            _ => Owner::Another,
        };
        Some((net, owner))
    }

    /// Items that are certainly owned and no longer desired.
    pub(super) fn stale(&self, items: &[RoutingItem]) -> Vec<Ours> {
        let mut desired: Vec<&RoutingItem> = items.iter().collect();
        let is_known =
            |o: &Ours| !matches!(o.item, RoutingItem::Address { .. }) || self.owns_passthrough();
        let mut ours = self.ours();
        ours.retain(|o| match desired.iter().position(|item| o.is(item)) {
            // Each desired item keeps one owned item; a duplicate is stale.
            Some(n) => {
                desired.swap_remove(n);
                false
            }
            None => is_known(o),
        });
        ours
    }

    /// True if the passthrough address exists and is certainly owned.
    pub(super) fn owns_passthrough(&self) -> bool {
        matches!(self.passthrough(), Some((_, Owner::Weir)))
    }

    /// Owned items that were added since `before`.
    pub(super) fn since(&self, before: &Self) -> Vec<Ours> {
        let before = before.ours();
        let mut ours = self.ours();
        ours.retain(|o| !before.contains(o));
        ours
    }
}

/// It is exactly this item, priority included, whoever wrote it.
fn is_exactly(rule: &PolicyRule, item: &RoutingItem) -> bool {
    let wanted = policy_rule(item);
    wanted.is_some_and(|w| rule.same_effect(&w) && rule.priority == w.priority)
}

/// It bears our number and looks a table up by nothing but the mark, if by that.
fn is_ours(rule: &PolicyRule) -> bool {
    rule.protocol == WEIR && rule.only_mark()
}

/// Adds what is missing, in order. What is added meanwhile by another writer is seen when it is read back.
///
/// # Errors
/// The item that could not be added, and why. A foreign item blocks one: nothing is added then.
pub(super) fn add(routing: &Routing, missing: &[Change], scheme: &Scheme) -> Result<Vec<Change>> {
    for change in missing {
        if let Change::Blocked(item, by) = change {
            return Err(blocked(item, by, scheme.remedy));
        }
    }
    let mut added = Vec::new();
    for change in missing {
        if let Change::Add(item) = change
            && add_one(routing, item)?
        {
            added.push(change.clone());
        }
    }
    Ok(added)
}

fn blocked(item: &RoutingItem, by: &str, remedy: &str) -> Error {
    let reason = format!("a foreign {by}; remove that, or {remedy}");
    Error::refused("add", format!("`{item}`"), reason)
}

/// Removes these items; continues after a failure and returns all errors.
pub(super) fn remove(routing: &Routing, these: Vec<Ours>) -> (Vec<Change>, Vec<Error>) {
    let (mut removed, mut failures) = (Vec::new(), Vec::new());
    for ours in these {
        match ours.delete(routing) {
            Ok(true) => removed.push(ours.change()),
            Ok(false) => {}
            Err(e) => failures.push(e),
        }
    }
    (removed, failures)
}

/// One error per item, for items that are kept because rules may need them.
pub(super) fn kept(these: &[Ours]) -> Vec<Error> {
    let kept = |ours: &Ours| {
        let reason = "rules that may need it could not be removed";
        Error::refused("delete", format!("`{}`", ours.item.removal()), reason)
    };
    these.iter().map(kept).collect()
}

impl Ours {
    /// Whether it is this item. Without a priority the kernel chose one.
    fn is(&self, item: &RoutingItem) -> bool {
        match (&self.object, item) {
            (
                Object::Rule(rule),
                RoutingItem::PolicyRule {
                    priority: Some(_), ..
                },
            ) => is_exactly(rule, item),
            _ => self.item == *item,
        }
    }

    /// The change that removes it.
    pub(super) fn change(&self) -> Change {
        Change::Remove(self.item.clone())
    }

    fn delete(&self, routing: &Routing) -> Result<bool> {
        match &self.object {
            Object::Address(net) => routing.del_address(LOOPBACK_IFINDEX, *net),
            Object::Rule(rule) => routing.del_rule(rule),
            Object::Route(route) => routing.del_route(route),
        }
    }
}

fn add_one(routing: &Routing, item: &RoutingItem) -> Result<bool> {
    match item {
        RoutingItem::Address { address, .. } => {
            routing.add_address_by(LOOPBACK_IFINDEX, *address, Some(RTPROT_WEIR))
        }
        RoutingItem::PolicyRule { .. } => {
            policy_rule(item).map_or(Ok(false), |r| routing.add_rule(&r))
        }
        RoutingItem::LocalDefault { family, table, .. } => {
            routing.add_route(&route(*family, *table))
        }
    }
}

/// The tables of the routes among the items.
fn tables(items: &[RoutingItem]) -> Vec<u32> {
    let table = |item: &RoutingItem| match item {
        RoutingItem::LocalDefault { table, .. } => Some(*table),
        _ => None,
    };
    let mut tables: Vec<u32> = items.iter().filter_map(table).collect();
    tables.dedup();
    tables
}

fn policy_rule(item: &RoutingItem) -> Option<PolicyRule> {
    let RoutingItem::PolicyRule {
        family,
        mark,
        mask,
        table,
        priority,
    } = item
    else {
        return None;
    };
    let mut rule = PolicyRule::mark(*family, *mark, *table).by(WEIR);
    rule.fwmask = Some(*mask);
    rule.priority = *priority;
    Some(rule)
}

fn route(family: AddressFamily, table: u32) -> Route {
    Route::local_default(family, LOOPBACK_IFINDEX, table).by(WEIR)
}
