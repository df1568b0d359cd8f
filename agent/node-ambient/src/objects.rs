//! The desired objects of the node's namespace and of the proxy's: links, routes, policy rules, sysctls.
//!
//! Rules are in [`crate::nft`] and [`crate::xtables`]. Numbers and names are those of Istio 1.18 to 1.20.
//!
//! Node:
//! - Table 100 (inbound): each pod's address via `istioin`; the proxy's own address via its device.
//! - Table 101 (outbound): everything via `istioout`. Table 102 (proxy): everything via the proxy's device.
//! - The proxy's address is in all three: the outer packet of a tunnel has the mark of the inner one, and without that
//!   route it would enter the tunnel again.
//! - Each has an additional `unreachable` route with the highest metric (a guard). The kernel deletes routes with their link: when
//!   the proxy's namespace is destroyed, packets of established connections would otherwise fall through to the main table, and leave
//!   the node in plain text.
//! - Policy rules 100 to 103: skip, outbound, proxy, and table 100 for all others.
//! - While a proxy takes over from another one that is still running, the new one has separate carriers, a separate table and a
//!   mark bit: connections of the old one continue, and routes are replaced in place, so that no new connection is refused.
//!
//! If a link is a port of a bridge, routes and sysctls are those of the bridge.
//!
//! Proxy: a local default route in table 100 for the two marks, so that packets to foreign addresses are delivered.

mod spec;

pub use spec::{LinkSpec, Objects, RouteSpec, Sysctl};

use crate::node::{Carrier, Family, LocatedProxy, Node};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;
use weir_cni::redirection::RTPROT_WEIR;
use weir_netlink::route::{
    AddressFamily, PolicyRule, Route, RouteProtocol, RouteScope, RouteType, RuleAction,
    RuleSelectors,
};

/// The protocol number of routes and policy rules of this crate.
pub(crate) const WEIR: RouteProtocol = RouteProtocol::Other(RTPROT_WEIR);

/// True if a policy rule belongs to this crate: a `goto`, one for bits of a mark, one for a mark in the proxy's namespace, or one
/// for every packet. Other rules have the same protocol number: those of redirections in a pod, whose marks are compared under other
/// masks, and the node agent's rules for branch ENIs of AWS, which select by an address or a pod's link.
pub(crate) fn is_own(rule: &PolicyRule) -> bool {
    if rule.protocol != WEIR {
        return false;
    }
    if rule.action == RuleAction::Goto {
        return true;
    }
    let is_of_mark = match (rule.fwmark, rule.fwmask.unwrap_or(u32::MAX)) {
        (None, _) => true,
        (Some(mark), PROXY_MASK) => [TPROXY_MARK, RETURN_MARK].contains(&mark),
        (Some(mark), mask) => mark == mask && mask != u32::MAX,
    };
    rule.only_mark() && is_of_mark
}

/// True if a route with our protocol number belongs to this crate. Redirections in a pod have a local default route, too: it is
/// theirs if one of their policy rules leads to it. If no policy rule leads to it, it belongs to this crate if it is in one of `tables`.
pub(crate) fn is_own_route(route: &Route, rules: &[PolicyRule], tables: &[u32]) -> bool {
    if !is_local_default(route) {
        return true;
    }
    let mut leading = rules
        .iter()
        .filter(|r| r.leads_to(route) && r.protocol == WEIR);
    let first = leading.next().map(is_own);
    first.unwrap_or(tables.contains(&route.table)) && leading.all(is_own)
}

/// True for the route of a table that refuses everything that no other route matches.
pub(crate) fn is_guard_of_all(route: &Route) -> bool {
    route.kind == RouteType::Unreachable && route.dst.prefix_len() == 0
}

/// True for the local default route of a proxy's or a pod's namespace.
pub(crate) fn is_local_default(route: &Route) -> bool {
    let lo = weir_netlink::route::LOOPBACK_IFINDEX;
    route.same_effect(&Route::local_default(route.family(), lo, route.table))
}

/// Host ends of the carriers, for connections to pods and of pods.
pub const CARRIERS: [&str; 2] = ["istioin", "istioout"];
/// [`CARRIERS`] of the second of two proxies, while one takes over from the other.
pub const SECOND_CARRIERS: [&str; 2] = ["istioin2", "istioout2"];
/// Network identifiers of [`SECOND_CARRIERS`].
pub(crate) const SECOND_VNIS: [u32; 2] = [1002, 1003];
/// The proxy's ends of the carriers.
pub const PROXY_CARRIERS: [&str; 2] = ["pistioin", "pistioout"];
/// Network identifiers of [`CARRIERS`].
pub(crate) const VNIS: [u32; 2] = [1000, 1001];
/// Metric of the guards: any other route comes first.
pub(crate) const GUARD: u32 = u32::MAX;
/// The priority of the policy rule for the main table (`fib_default_rules_init()`, net/ipv4/fib_rules.c).
pub(crate) const MAIN_RULE: u32 = 32_766;
/// Mark in the proxy's namespace of a packet that TPROXY delivers.
pub const TPROXY_MARK: u32 = 0x400;
/// Mark in the proxy's namespace of a reply to a socket with a foreign address.
pub const RETURN_MARK: u32 = 0x4d3;
/// Bits of both marks that are set and compared.
pub const PROXY_MASK: u32 = 0xfff;
/// Priorities of the policy rules for [`TPROXY_MARK`] and [`RETURN_MARK`].
pub const PROXY_PRIORITIES: [u32; 2] = [20_000, 20_003];

/// Returns the desired objects of the node's namespace. Empty if nothing is captured.
#[must_use]
pub fn host(node: &Node) -> Objects {
    if !node.is_capturing() {
        return Objects::default();
    }
    let mut objects = Objects::default();
    for family in node.families() {
        host_routes(node, family, &mut objects.routes);
        objects.rules.extend(host_rules(node, family));
    }
    let mut devices: BTreeSet<&str> = node.proxies().map(|p| node.arrival(&p.device)).collect();
    if let Some(active) = &node.active {
        let carriers = carriers(active.slot);
        objects.links = links(node, carriers, node.remote(), 0);
        if node.carrier == Carrier::Veth {
            for (link, peer) in objects.links.iter_mut().zip(PROXY_CARRIERS) {
                link.peer = Some(peer.to_owned());
            }
        }
        devices.extend(carriers);
    }
    objects
        .sysctls
        .extend(devices.into_iter().flat_map(accepting));
    // New links copy the value of `default`: the link of a new pod carries traffic before its enrolment is complete.
    let all = ["all", "default"].into_iter();
    let devices: BTreeSet<&str> = node
        .devices
        .values()
        .flatten()
        .map(|device| node.arrival(device))
        .collect();
    let known: BTreeSet<Sysctl> = objects.sysctls.iter().cloned().collect();
    let loose = all.chain(devices).map(rp_filter);
    objects.sysctls.extend(loose.filter(|s| !known.contains(s)));
    objects
}

/// Returns the desired objects of the active proxy's namespace.
#[must_use]
pub fn proxy(node: &Node) -> Objects {
    let Some(active) = &node.active else {
        return Objects::default();
    };
    let mut objects = Objects {
        links: links(node, PROXY_CARRIERS, Some(active.host), 1),
        ..Objects::default()
    };
    let table = node.config.routing.inbound_table;
    for family in node.families().into_iter().filter(|f| f.proxy.is_some()) {
        let of = address_family(family);
        let lo = weir_netlink::route::LOOPBACK_IFINDEX;
        objects.routes.push(RouteSpec {
            route: Route {
                oif: None,
                ..Route::local_default(of, lo, table).by(WEIR)
            },
            device: Some("lo".to_owned()),
        });
        for (priority, mark) in PROXY_PRIORITIES.into_iter().zip([TPROXY_MARK, RETURN_MARK]) {
            let mut rule = PolicyRule::mark(of, mark, table).at(priority).by(WEIR);
            rule.fwmask = Some(PROXY_MASK);
            objects.rules.push(rule);
        }
    }
    let names = [
        "all",
        "default",
        PROXY_CARRIERS[0],
        PROXY_CARRIERS[1],
        &active.interface,
    ];
    let zero = |name| [rp_filter(name), src_valid_mark(name)];
    objects.sysctls.extend(names.into_iter().flat_map(zero));
    objects
}

/// Disables `src_valid_mark`. With it, the mark would select the table of the local route for source validation; there every
/// address is the proxy's own, so the packet would be refused. The kernel takes the larger value of `all` and of the interface.
fn src_valid_mark(device: &str) -> Sysctl {
    Sysctl {
        key: format!("ipv4/conf/{device}/src_valid_mark"),
        value: "0",
    }
}

/// Disables `rp_filter`. The kernel takes the larger value of `all` and of the interface.
pub(crate) fn rp_filter(device: &str) -> Sysctl {
    Sysctl {
        key: format!("ipv4/conf/{device}/rp_filter"),
        value: "0",
    }
}

/// Accepts packets from the proxy whose source is an address of the node.
pub(crate) fn accepting(device: &str) -> [Sysctl; 2] {
    let accept_local = Sysctl {
        key: format!("ipv4/conf/{device}/accept_local"),
        value: "1",
    };
    [rp_filter(device), accept_local]
}

fn links(node: &Node, names: [&str; 2], remote: Option<IpAddr>, end: usize) -> Vec<LinkSpec> {
    let tunnel = node.carrier != Carrier::Veth;
    let of = |(i, name): (usize, &str)| LinkSpec {
        name: name.to_owned(),
        carrier: node.carrier,
        vni: vnis(node).get(i).copied().unwrap_or_default(),
        remote: remote.filter(|_| tunnel),
        peer: None,
        addresses: node
            .families()
            .iter()
            .filter(|f| f.proxy.is_some())
            .filter_map(|f| {
                if i == 0 {
                    f.inbound.get(end)
                } else {
                    f.outbound.get(end)
                }
            })
            .copied()
            .collect(),
    };
    names.into_iter().enumerate().map(of).collect()
}

/// Returns the host ends of the carriers of a proxy in this slot.
pub(crate) fn carriers(slot: usize) -> [&'static str; 2] {
    match slot {
        0 => CARRIERS,
        _ => SECOND_CARRIERS,
    }
}

fn vnis(node: &Node) -> [u32; 2] {
    match node.active.as_ref().map_or(0, |active| active.slot) {
        0 => VNIS,
        _ => SECOND_VNIS,
    }
}

pub(crate) fn address_family(family: Family) -> AddressFamily {
    match family.is_v6 {
        true => AddressFamily::V6,
        false => AddressFamily::V4,
    }
}

fn default_of(family: Family) -> IpNet {
    match family.is_v6 {
        true => ipnet::Ipv6Net::default().into(),
        false => ipnet::Ipv4Net::default().into(),
    }
}

fn unicast(dst: IpNet, gateway: Option<IpAddr>, device: &str, table: u32) -> RouteSpec {
    let route = Route {
        table,
        ..Route::unicast(dst, gateway, None).by(WEIR)
    };
    RouteSpec {
        route,
        device: Some(device.to_owned()),
    }
}

fn guard(dst: IpNet, table: u32) -> RouteSpec {
    let route = Route {
        kind: RouteType::Unreachable,
        scope: RouteScope::Universe,
        priority: Some(GUARD),
        table,
        ..Route::unicast(dst, None, None).by(WEIR)
    };
    RouteSpec {
        route,
        device: None,
    }
}

/// Appends the routes of the node. Guards come first, so that no packet sees a table without them.
fn host_routes(node: &Node, family: Family, routes: &mut Vec<RouteSpec>) {
    let [inbound, outbound, proxy, second] = node.config.routing.tables();
    let pods = node.addresses(family);
    let second = node.is_split().then_some(second);
    let guarded = [outbound, proxy].into_iter().chain(second);
    routes.extend(guarded.map(|table| guard(default_of(family), table)));
    routes.extend(pods.keys().map(|pod| guard(Family::alone(*pod), inbound)));
    for before in &node.before {
        to_proxy(node, before, family, routes);
    }
    let (Some(active), Some(address)) = (&node.active, family.proxy) else {
        return;
    };
    let [by_inbound, by_outbound] = carriers(active.slot);
    for table in [inbound, outbound] {
        let device = node.arrival(&active.device);
        let mut outer = unicast(Family::alone(address), None, device, table);
        // The proxy's tunnels take packets of this source only.
        outer.route.prefsrc = Some(active.host).filter(|host| family.of(host));
        routes.push(outer);
    }
    to_proxy(node, active, family, routes);
    let [_, far] = family.outbound;
    routes.push(unicast(
        default_of(family),
        Some(far.addr()),
        by_outbound,
        outbound,
    ));
    let [_, far] = family.inbound;
    let stated = node.config.host_addresses.iter().find(|a| family.of(a));
    for pod in pods.keys() {
        let mut route = unicast(Family::alone(*pod), Some(far.addr()), by_inbound, inbound);
        // Never the carrier's: it is deleted with the carrier, and connections would end.
        route.route.prefsrc = stated.or_else(|| node.sources.get(pod)).copied();
        routes.push(route);
    }
}

/// Appends the routes of the table for replies to a proxy.
fn to_proxy(node: &Node, active: &LocatedProxy, family: Family, routes: &mut Vec<RouteSpec>) {
    let tables = node.config.routing.proxy_tables();
    let table = tables.get(active.slot);
    if let (Some(table), Some(address)) = (table, active.address(family)) {
        let device = node.arrival(&active.device);
        routes.push(unicast(Family::alone(address), None, device, *table));
        let mut all = unicast(default_of(family), Some(address), device, *table);
        all.route.onlink = true;
        routes.push(all);
    }
}

/// Returns the policy rules of the node. Without a proxy, the table for connections to pods has only guards; packets of the node
/// itself then skip it, because no probe would reach a pod otherwise.
fn host_rules(node: &Node, family: Family) -> Vec<PolicyRule> {
    let (marks, numbers) = (&node.config.marks, &node.config.routing);
    let of = address_family(family);
    let [inbound, outbound, proxy, second] = numbers.tables();
    let marked = |mark: u32, table, index| {
        let mut rule = PolicyRule::mark(of, mark, table).at(numbers.priority + index);
        rule.fwmask = Some(mark);
        rule.by(WEIR)
    };
    let skip = PolicyRule {
        action: RuleAction::Goto,
        goto: Some(MAIN_RULE),
        ..marked(marks.skip, 0, 0)
    };
    let all = PolicyRule {
        fwmark: None,
        fwmask: None,
        selectors: RuleSelectors::default(),
        ..marked(0, inbound, 3)
    };
    let own = PolicyRule {
        action: RuleAction::Goto,
        goto: Some(MAIN_RULE),
        ..PolicyRule::iif(of, "lo", 0)
    };
    let own = own.at(numbers.priority + 2).by(WEIR);
    let mut rules = vec![
        skip,
        marked(marks.outbound, outbound, 1),
        marked(marks.proxy_return, proxy, 2),
        all,
    ];
    rules.extend(node.active.is_none().then_some(own));
    // Packets of the second proxy also match the rule for the first, so this rule comes before it.
    let of_second = marked(marks.proxy_return | marks.second, second, 1);
    rules.extend(node.is_split().then_some(of_second));
    rules
}
