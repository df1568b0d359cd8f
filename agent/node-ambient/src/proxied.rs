//! Foreign policy rules and routes in the proxy's namespace that take redirected packets before the local route does.

use crate::collide::{Collision, wins};
use crate::node::{LocatedProxy, Node};
use crate::objects::{PROXY_CARRIERS, PROXY_MASK, WEIR, address_family, is_local_default};
use std::net::IpAddr;
use weir_netlink::route::{AddressFamily, LOOPBACK_IFINDEX, PolicyRule, Route, Routing};
use weir_netlink::{Netns, Result};

/// `IPPROTO_TCP` and `IPPROTO_UDP`: the protocols that are redirected.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// How redirected packets are routed there: the table of their local route, and each mark with the priority of its rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Redirected<'a> {
    pub(crate) table: u32,
    pub(crate) marks: &'a [(u32, u32)],
}

/// Finds collisions in the namespace of the active proxy.
///
/// # Errors
/// The state of the namespace cannot be read.
pub(crate) fn collisions(node: &Node, of: Redirected<'_>) -> Result<Vec<Collision>> {
    match &node.active {
        Some(active) => Netns::open(&active.proxy.netns)?.run(|| look(node, active, of))?,
        None => Ok(Vec::new()),
    }
}

fn look(node: &Node, active: &LocatedProxy, of: Redirected<'_>) -> Result<Vec<Collision>> {
    let routing = Routing::open()?;
    let families = node.families().into_iter().filter(|f| f.proxy.is_some());
    let families: Vec<AddressFamily> = families.map(address_family).collect();
    let own = families.iter();
    let own = own.map(|family| Route::local_default(*family, LOOPBACK_IFINDEX, of.table));
    let own: Vec<Route> = own.collect();
    let mut found = Vec::new();
    for route in routing.routes(of.table)? {
        if !is_local_default(&route) && wins(&route, own.iter()) {
            found.push(collision(&format!("route {route}")));
        }
    }
    let rules = routing.rules()?;
    let addresses = routing.addresses()?.into_iter();
    let packets = Packets {
        interface: &active.interface,
        addresses: addresses.map(|a| a.net.addr()).collect(),
        has_dns: node.config.dns_capture,
    };
    for (at, rule) in rules.iter().enumerate() {
        if rule.protocol == WEIR || !families.contains(&rule.family) {
            continue;
        }
        for (mark, priority) in of.marks {
            let is_ours = |r: &PolicyRule| {
                let marked = (r.fwmark, r.fwmask) == (Some(*mark), Some(PROXY_MASK));
                marked && r.table == of.table && r.family == rule.family
            };
            let is_before = match rules.iter().position(is_ours) {
                Some(ours) => at < ours,
                None => rule.priority.unwrap_or(0) <= *priority,
            };
            let ours = PolicyRule::mark(rule.family, *mark, of.table).at(*priority);
            if is_before && packets.may_have(rule, *mark) && routing.leads_past(rule, &ours)? {
                found.push(collision(&format!("policy rule {rule}")));
                break;
            }
        }
    }
    Ok(found)
}

fn collision(what: &str) -> Collision {
    Collision {
        found: format!("{what} in the proxy's namespace"),
        effect: "it comes first, and what is redirected to the proxy is lost".to_owned(),
        setting: "of the program that made it: delete it, or give a policy rule a priority above 20003",
        bypasses: true,
    }
}

/// The redirected packets: they have one of the marks, the address of a pod or of its peer as source, and a foreign destination.
struct Packets<'a> {
    interface: &'a str,
    addresses: Vec<IpAddr>,
    has_dns: bool,
}

impl Packets<'_> {
    /// True if the rule may select redirected packets. Rules for other attached networks do not: they select by addresses of the proxy.
    fn may_have(&self, rule: &PolicyRule, mark: u32) -> bool {
        let by = &rule.selectors;
        // An inverted rule (`FIB_RULE_INVERT`) may select any packet.
        if rule.not {
            return true;
        }
        let mask = rule.fwmask.unwrap_or(u32::MAX);
        let is_own = |net: &ipnet::IpNet| {
            net.prefix_len() == net.max_prefix_len() && self.addresses.contains(&net.addr())
        };
        let arrive = |name: &String| {
            *name == *self.interface || PROXY_CARRIERS.iter().any(|carrier| name == carrier)
        };
        let is_redirected = |protocol: u8| protocol == TCP || (protocol == UDP && self.has_dns);
        rule.fwmark.is_none_or(|of| (of ^ mark) & mask == 0)
            && by.oif.is_none()
            && by.iif.as_ref().is_none_or(arrive)
            && !by.from.iter().chain(&by.to).any(is_own)
            && by.ip_proto.is_none_or(is_redirected)
            // The UID of an arriving packet is 0.
            && by.uids.as_ref().is_none_or(|uids| *uids.start() == 0)
    }
}
