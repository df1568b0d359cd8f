//! Addresses, policy rules and routes of a redirection.
//!
//! An owned item carries weir's protocol number, has exactly the form that weir writes and belongs to the kind of
//! redirection in question ([`Scheme`]): anything else is foreign.
//! A foreign item with the same effect as a desired one satisfies it, and is never deleted; a foreign item that takes
//! the packets of a desired one blocks it ([`standing`]).
//!
//! A policy rule is added after its route, so that no marked packet is looked up in a table without the route.
//! When routing is removed, no rule marks packets any more: the route is deleted first, and a failure does not
//! stop the removal of the rest.

mod standing;

pub(super) use standing::leads_away;

use super::Change;
use super::scheme::Scheme;
use crate::compile::{PASSTHROUGH_V6, RoutingItem};
use ipnet::IpNet;
use nix::errno::Errno;
use std::net::IpAddr;
use weir_netlink::route::{Address, LOOPBACK_IFINDEX, PolicyRule, Route, RouteProtocol, Routing};
use weir_netlink::{Error, Result};

/// `rtm_protocol`, `FRA_PROTOCOL` and `IFA_PROTO` of every route, policy rule and address that weir adds to a pod's
/// network namespace. It identifies owned items.
///
/// The kernel does not interpret numbers above `RTPROT_STATIC`. 119 is assigned neither in `linux/rtnetlink.h` nor in
/// iproute2's `rt_protos`.
pub const RTPROT_WEIR: u8 = 119;

/// The kernel refuses to add an IPv6 address to an interface with `disable_ipv6` set.
const EACCES: i32 = Errno::EACCES as i32;

pub(crate) const WEIR: RouteProtocol = RouteProtocol::Other(RTPROT_WEIR);

/// The part of a namespace's routing that concerns a redirection.
pub(super) struct Held {
    scheme: &'static Scheme,
    addresses: Vec<Address>,
    pub(super) rules: Vec<PolicyRule>,
    /// All routes of the tables of the items and of the tables in which earlier policy rules look up every packet; routes
    /// of other tables only if they carry weir's protocol number. The routes of each table are in the kernel's order.
    routes: Vec<Route>,
    /// Tables of the items.
    tables: Vec<u32>,
    /// Foreign policy rules that lead replies past the proxy; new rules are placed before them.
    pub(super) past: Vec<PolicyRule>,
}

/// The writer of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Weir,
    Another,
    /// Kernels before 5.18 do not store the writer.
    Unknown,
}

impl Held {
    /// Reads the routing that concerns these items, and all owned objects.
    pub(super) fn read(
        scheme: &'static Scheme,
        routing: &Routing,
        items: &[RoutingItem],
    ) -> Result<Self> {
        Self::beside(scheme, routing.addresses()?, routing, items)
    }

    /// Uses objects that were read for another purpose.
    pub(super) fn listed(
        scheme: &'static Scheme,
        addresses: Vec<Address>,
        rules: Vec<PolicyRule>,
        routes: Vec<Route>,
    ) -> Self {
        Self {
            scheme,
            addresses,
            rules,
            routes,
            tables: Vec::new(),
            past: Vec::new(),
        }
    }

    /// Like [`Held::read`], with addresses that were already read.
    pub(super) fn beside(
        scheme: &'static Scheme,
        addresses: Vec<Address>,
        routing: &Routing,
        items: &[RoutingItem],
    ) -> Result<Self> {
        let adopted = (scheme.routing)();
        let desired = tables(items);
        let items: Vec<RoutingItem> = items.iter().chain(&adopted).cloned().collect();
        let mut held = Self::of_tables(scheme, routing, &items)?;
        (held.addresses, held.tables) = (addresses, desired);
        let mut tables = tables(&items);
        tables.extend(held.read_rules(routing, &items)?);
        let others = routing.routes_by(WEIR)?;
        let others = others.into_iter().filter(|r| !tables.contains(&r.table));
        held.routes.extend(others);
        Ok(held)
    }

    /// Reads only the objects that show whether these items exist.
    pub(super) fn read_of(
        scheme: &'static Scheme,
        routing: &Routing,
        items: &[RoutingItem],
    ) -> Result<Self> {
        let has = |is: fn(&RoutingItem) -> bool| items.iter().any(is);
        let mut held = Self::of_tables(scheme, routing, items)?;
        if has(|i| matches!(i, RoutingItem::Address(_))) {
            held.addresses = routing.addresses()?;
        }
        if has(|i| rule_of(i).is_some()) {
            held.read_rules(routing, items)?;
        }
        Ok(held)
    }

    /// Reads the policy rules, and the routes of tables that only those before the items look up; returns these tables.
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
            tables: Vec::new(),
            past: Vec::new(),
        })
    }

    /// All owned items in the order of removal, exactly as the kernel lists them, so that no other item is deleted instead.
    /// On a kernel that does not store the protocol of addresses this includes the passthrough address: only a redirection
    /// uses it.
    pub(super) fn ours(&self) -> Vec<RoutingItem> {
        let routes = self.routes.iter().filter(|r| self.owns_route(r));
        let rules = self.rules.iter().filter(|r| self.owns_rule(r));
        let address = self.passthrough().filter(|_| self.scheme.passthrough);
        let address = address.filter(|(_, o)| *o != Owner::Another);
        let routes = routes.cloned().map(RoutingItem::LocalDefault);
        let rules = rules.cloned().map(RoutingItem::PolicyRule);
        let address = address.map(|(net, _)| RoutingItem::Address(net));
        routes.chain(rules).chain(address).collect()
    }

    /// True if the rule belongs to this kind: it carries weir's number, or upstream wrote it.
    fn owns_rule(&self, rule: &PolicyRule) -> bool {
        match rule.protocol {
            WEIR => (self.scheme.rule)(rule, &self.rules),
            _ => self.adopts(rule),
        }
    }

    /// True if upstream wrote the rule. Upstream's rules and routes carry no protocol number of their own.
    fn adopts(&self, rule: &PolicyRule) -> bool {
        let adopted = (self.scheme.routing)();
        let mut adopted = adopted.iter().filter_map(rule_of);
        is_unsigned(rule.protocol) && adopted.any(|a| is_exactly(rule, a))
    }

    /// True if the route belongs to this kind: policy rules of this kind lead to its table, and none of another kind does.
    fn owns_route(&self, route: &Route) -> bool {
        let family = route.family();
        if !route.same_effect(&Route::local_default(family, LOOPBACK_IFINDEX, route.table)) {
            return false;
        }
        let mut leading = self.rules.iter().filter(|r| r.leads_to(route));
        if leading
            .clone()
            .any(|r| r.protocol == WEIR && !self.owns_rule(r))
        {
            return false;
        }
        let (scheme, table) = (self.scheme, route.table);
        match route.protocol {
            WEIR => {
                let is_known = (scheme.table)(table) || self.tables.contains(&table);
                is_known || leading.any(|r| self.owns_rule(r))
            }
            by => is_unsigned(by) && leading.any(|r| self.adopts(r)),
        }
    }

    fn on_lo(&self) -> impl Iterator<Item = &Address> {
        self.addresses
            .iter()
            .filter(|a| a.index == LOOPBACK_IFINDEX)
    }

    /// The passthrough address and its owner. The owner is known if the kernel stores the protocol of addresses: then
    /// the kernel's own address `::1` on `lo` has one.
    fn passthrough(&self) -> Option<(IpNet, Owner)> {
        let net = IpNet::from(IpAddr::from(PASSTHROUGH_V6));
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
    pub(super) fn stale(&self, items: &[RoutingItem]) -> Vec<RoutingItem> {
        let mut desired = self.placed(items);
        let is_known =
            |o: &RoutingItem| !matches!(o, RoutingItem::Address(_)) || self.owns_passthrough();
        let mut ours = self.ours();
        ours.retain(|o| match desired.iter().position(|item| is(o, item)) {
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

    /// Owned items that were added after `before` was read.
    pub(super) fn since(&self, before: &Self) -> Vec<RoutingItem> {
        let before = before.ours();
        let mut ours = self.ours();
        ours.retain(|o| !before.contains(o));
        ours
    }
}

/// True if both rules are equal, priority included; ignores the protocol number.
fn is_exactly(rule: &PolicyRule, desired: &PolicyRule) -> bool {
    rule.same_effect(desired) && rule.priority == desired.priority
}

fn rule_of(item: &RoutingItem) -> Option<&PolicyRule> {
    match item {
        RoutingItem::PolicyRule(rule) => Some(rule),
        _ => None,
    }
}

/// True if an owned item is this desired one. If the desired rule has no priority, the kernel chose one.
fn is(found: &RoutingItem, desired: &RoutingItem) -> bool {
    match (found, desired) {
        (RoutingItem::Address(found), RoutingItem::Address(desired)) => found == desired,
        (RoutingItem::PolicyRule(found), RoutingItem::PolicyRule(desired)) => {
            // The kernel does not report priority 0.
            let is_placed =
                desired.priority.is_none() || desired.priority == Some(found.priority.unwrap_or(0));
            is_placed && found.same_effect(desired)
        }
        (RoutingItem::LocalDefault(found), RoutingItem::LocalDefault(desired)) => {
            found.same_effect(desired)
        }
        _ => false,
    }
}

/// The item that a change adds.
fn to_add(change: &Change) -> Option<&RoutingItem> {
    match change {
        Change::Add(item) | Change::Overtake(item, _) => Some(item),
        _ => None,
    }
}

/// True if an owned item is one that these changes add.
pub(super) fn is_of(found: &RoutingItem, changes: &[Change]) -> bool {
    changes
        .iter()
        .filter_map(to_add)
        .any(|desired| is(found, desired))
}

/// True for the protocol of a writer without a number of its own: none, or that of `ip` (`RTPROT_BOOT`).
fn is_unsigned(protocol: RouteProtocol) -> bool {
    matches!(protocol, RouteProtocol::Unspec | RouteProtocol::Boot)
}

/// Adds the missing items in order. An item that another writer adds at the same time is found when routing is read back.
///
/// # Errors
/// The item that could not be added, and why. If a foreign item blocks one, nothing is added.
pub(super) fn add(routing: &Routing, missing: &[Change], scheme: &Scheme) -> Result<Vec<Change>> {
    refuse_blocked(missing, scheme)?;
    let mut added = Vec::new();
    for change in missing {
        if let Some(item) = to_add(change)
            && add_one(routing, item)?
        {
            added.push(change.clone());
        }
    }
    Ok(added)
}

/// Adds the missing items that are not blocked; continues after a failure and returns all errors.
pub(super) fn add_rest(routing: &Routing, missing: &[Change]) -> Vec<Error> {
    let items = missing.iter().filter_map(to_add);
    items
        .filter_map(|item| add_one(routing, item).err())
        .collect()
}

/// Fails if a foreign object blocks an item.
///
/// # Errors
/// The item, and the foreign object that blocks it.
pub(super) fn refuse_blocked(changes: &[Change], scheme: &Scheme) -> Result<()> {
    let blocked = changes.iter().find_map(|change| match change {
        Change::Blocked(item, by) => Some((item, by)),
        _ => None,
    });
    let Some((item, by)) = blocked else {
        return Ok(());
    };
    let reason = format!("a foreign {by}; remove that, or {}", scheme.remedy);
    Err(Error::refused("add", format!("`{item}`"), reason))
}

/// Removes these items; continues after a failure and returns all errors.
pub(super) fn remove(routing: &Routing, these: Vec<RoutingItem>) -> (Vec<Change>, Vec<Error>) {
    let (mut removed, mut failures) = (Vec::new(), Vec::new());
    for item in these {
        let done = match &item {
            RoutingItem::Address(net) => routing.del_address(LOOPBACK_IFINDEX, *net),
            RoutingItem::PolicyRule(rule) => routing.del_rule(rule),
            RoutingItem::LocalDefault(route) => routing.del_route(route),
        };
        match done {
            Ok(true) => removed.push(removal(&item)),
            Ok(false) => {}
            Err(e) => failures.push(e),
        }
    }
    (removed, failures)
}

/// The change that removes an owned item, without its priority: the kernel may have chosen it.
pub(super) fn removal(item: &RoutingItem) -> Change {
    let mut item = item.clone();
    if let RoutingItem::PolicyRule(rule) = &mut item {
        rule.priority = None;
    }
    Change::Remove(item)
}

/// One error per item that is kept because rules may need it.
pub(super) fn kept(these: &[RoutingItem]) -> Vec<Error> {
    let reason = "rules that may need it could not be removed";
    these.iter().map(|item| not_removed(item, reason)).collect()
}

/// One error per item that was to be added, if reading failed: it is unknown whether the item exists, or whether rules
/// of another process need it.
pub(super) fn in_doubt(these: &[Change]) -> Vec<Error> {
    let reason = "whether it is there and needed could not be read; apply or clean again";
    let items = these.iter().filter_map(to_add);
    items.map(|item| not_removed(item, reason)).collect()
}

fn not_removed(item: &RoutingItem, reason: &str) -> Error {
    Error::refused("delete", format!("`{}`", removal(item)), reason)
}

fn add_one(routing: &Routing, item: &RoutingItem) -> Result<bool> {
    match item {
        RoutingItem::Address(net) => {
            let added = routing.add_address_by(LOOPBACK_IFINDEX, *net, Some(RTPROT_WEIR));
            added.map_err(|e| match e.errno() {
                Some(EACCES) => {
                    let reason = "IPv6 is switched off on lo; set net.ipv6.conf.lo.disable_ipv6=0 there, or redirect IPv4 alone \
                                  (enable_ipv6: false)";
                    Error::refused("add", format!("`{item}`"), reason)
                }
                _ => e,
            })
        }
        RoutingItem::PolicyRule(rule) => routing.add_rule(rule),
        RoutingItem::LocalDefault(route) => routing.add_route(route),
    }
}

/// The tables of the routes among the items.
fn tables(items: &[RoutingItem]) -> Vec<u32> {
    let table = |item: &RoutingItem| match item {
        RoutingItem::LocalDefault(route) => Some(route.table),
        _ => None,
    };
    let mut tables: Vec<u32> = items.iter().filter_map(table).collect();
    tables.dedup();
    tables
}
