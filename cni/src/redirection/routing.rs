//! Addresses, policy rules and routes beside the rules.
//!
//! What is ours carries weir's protocol number and has exactly the form that weir gives it: anything else belongs to
//! another writer. What is foreign and has the same effect as a desired item is as good as ours, and is never
//! deleted; what is foreign and takes the packets away from a desired item blocks it ([`standing`]).
//!
//! A policy rule is added after its route, so that no marked packet is looked up in a table without it. Nothing marks
//! packets any more when routing is removed: then the route goes first, and after a failure the rest goes all the same.

mod standing;

use super::Change;
use crate::compile::{IpFamily, RoutingItem};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv6Addr};
use weir_netlink::route::{
    Address, Family, LOOPBACK_IFINDEX, PolicyRule, Route, RouteProtocol, Routing,
};
use weir_netlink::{Error, Result};

/// The source of the proxy's connections to the application over IPv6.
const PASSTHROUGH: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);

/// `rtm_protocol`, `FRA_PROTOCOL` and `IFA_PROTO` of every route, policy rule and address that weir adds to a pod's
/// namespace: who made it, so that it is found again.
///
/// The kernel gives no meaning to numbers above `RTPROT_STATIC`. 119 is assigned neither in `linux/rtnetlink.h` nor in
/// iproute2's `rt_protos`.
pub const RTPROT_WEIR: u8 = 119;

const WEIR: RouteProtocol = RouteProtocol::Other(RTPROT_WEIR);

/// What a namespace holds of routing, as far as it concerns a redirection.
pub(super) struct Held {
    addresses: Vec<Address>,
    rules: Vec<PolicyRule>,
    /// Of the tables that were asked about, of those that policy rules before ours lead every packet to, and of others
    /// those with our protocol; of each in the kernel's order.
    routes: Vec<Route>,
}

/// Something of ours that the kernel holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ours {
    item: RoutingItem,
    object: Object,
}

/// Exactly as the kernel lists it, so that nothing else is deleted in its place.
#[derive(Clone, Debug, PartialEq)]
enum Object {
    Address(IpNet),
    Rule(PolicyRule),
    Route(Route),
}

/// Who added an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Weir,
    Another,
    /// Kernels before 5.18 do not keep it.
    Unknown,
}

impl Held {
    /// What concerns these items, and everything of ours.
    pub(super) fn read(routing: &Routing, items: &[RoutingItem]) -> Result<Self> {
        Self::beside(routing.addresses()?, routing, items)
    }

    /// The same beside addresses that were read already.
    pub(super) fn beside(
        addresses: Vec<Address>,
        routing: &Routing,
        items: &[RoutingItem],
    ) -> Result<Self> {
        let mut held = Self::of_tables(routing, items)?;
        held.addresses = addresses;
        let mut tables = tables(items);
        tables.extend(held.read_rules(routing, items)?);
        let others = routing.routes_by(WEIR)?;
        let others = others.into_iter().filter(|r| !tables.contains(&r.table));
        held.routes.extend(others);
        Ok(held)
    }

    /// Only what tells whether these items are there.
    pub(super) fn read_of(routing: &Routing, items: &[RoutingItem]) -> Result<Self> {
        let has = |is: fn(&RoutingItem) -> bool| items.iter().any(is);
        let mut held = Self::of_tables(routing, items)?;
        if has(|i| matches!(i, RoutingItem::Address { .. })) {
            held.addresses = routing.addresses()?;
        }
        if has(|i| matches!(i, RoutingItem::PolicyRule { .. })) {
            held.read_rules(routing, items)?;
        }
        Ok(held)
    }

    /// The policy rules, and the routes of tables that only they lead to; which those are.
    fn read_rules(&mut self, routing: &Routing, items: &[RoutingItem]) -> Result<Vec<u32>> {
        self.rules = routing.rules()?;
        let tables = self.tables_before(items);
        for table in &tables {
            self.routes.extend(routing.routes(*table)?);
        }
        Ok(tables)
    }

    fn of_tables(routing: &Routing, items: &[RoutingItem]) -> Result<Self> {
        let mut routes = Vec::new();
        for table in tables(items) {
            routes.extend(routing.routes(table)?);
        }
        Ok(Self {
            addresses: Vec::new(),
            rules: Vec::new(),
            routes,
        })
    }

    /// Everything of ours, in the order in which it is removed. On a kernel that does not keep the owners of addresses
    /// the passthrough address is among it: nothing but a redirection has a use for it.
    pub(super) fn ours(&self) -> Vec<Ours> {
        let rules = self.rules.iter().filter(|r| is_ours(r)).map(|r| Ours {
            item: RoutingItem::PolicyRule {
                family: ip_family(r.family),
                // Without a mark it is for every packet: none of its bits are compared.
                mark: r.fwmark.unwrap_or(0),
                mask: r.fwmask.unwrap_or(0),
                table: r.table,
            },
            object: Object::Rule(r.clone()),
        });
        let routes = self.routes.iter().filter_map(|r| {
            let family = ip_family(r.family());
            let is_ours = r.protocol == WEIR && r.same_effect(&route(family, r.table));
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

    /// The passthrough address as weir adds it. Its owner is known where the kernel keeps owners at all: then the `::1`
    /// that the kernel itself gives to `lo` has one.
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

    /// What is ours beyond doubt and not desired any more.
    pub(super) fn stale(&self, items: &[RoutingItem]) -> Vec<Ours> {
        let mut desired: Vec<&RoutingItem> = items.iter().collect();
        let is_known =
            |o: &Ours| !matches!(o.item, RoutingItem::Address { .. }) || self.owns_passthrough();
        let mut ours = self.ours();
        ours.retain(|o| match desired.iter().position(|item| **item == o.item) {
            // The second one of the same kind is one too many.
            Some(n) => {
                desired.swap_remove(n);
                false
            }
            None => is_known(o),
        });
        ours
    }

    /// The passthrough address is there, and beyond doubt ours.
    pub(super) fn owns_passthrough(&self) -> bool {
        matches!(self.passthrough(), Some((_, Owner::Weir)))
    }

    /// What came since.
    pub(super) fn since(&self, before: &Self) -> Vec<Ours> {
        let before = before.ours();
        let mut ours = self.ours();
        ours.retain(|o| !before.contains(o));
        ours
    }
}

/// It bears our number and looks a table up by nothing but the mark, if by that.
fn is_ours(rule: &PolicyRule) -> bool {
    rule.protocol == WEIR && rule.only_mark()
}

/// Adds what is missing, in order. What is added meanwhile by another writer is seen when it is read back.
///
/// # Errors
/// What was not added, and why; an item that something foreign blocks, before anything is added.
pub(super) fn add(routing: &Routing, missing: &[Change]) -> Result<Vec<Change>> {
    for change in missing {
        if let Change::Blocked(item, by) = change {
            return Err(blocked(item, by));
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

fn blocked(item: &RoutingItem, by: &str) -> Error {
    let reason = format!(
        "a foreign {by}; remove that, or choose another mark and table \
         (inbound_tproxy_mark, inbound_tproxy_route_table)"
    );
    Error::refused("add", format!("`{item}`"), reason)
}

/// Removes these; goes on after a failure and returns all of them.
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

/// One error for each of these, which stay because rules may need them.
pub(super) fn kept(these: &[Ours]) -> Vec<Error> {
    let kept = |ours: &Ours| {
        let reason = "rules that may need it could not be removed";
        Error::refused("delete", format!("`{}`", ours.item.removal()), reason)
    };
    these.iter().map(kept).collect()
}

impl Ours {
    /// Its removal.
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

/// The tables of the routes among them.
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
    } = item
    else {
        return None;
    };
    let mut rule = PolicyRule::mark(kernel(*family), *mark, *table).by(WEIR);
    rule.fwmask = Some(*mask);
    Some(rule)
}

fn route(family: IpFamily, table: u32) -> Route {
    Route::local_default(kernel(family), LOOPBACK_IFINDEX, table).by(WEIR)
}

fn kernel(family: IpFamily) -> Family {
    match family {
        IpFamily::V4 => Family::V4,
        IpFamily::V6 => Family::V6,
    }
}

fn ip_family(family: Family) -> IpFamily {
    match family {
        Family::V4 => IpFamily::V4,
        Family::V6 => IpFamily::V6,
    }
}
