//! Policy rules of other writers that come before those of this crate, and packets of enrolled pods that they take.

use crate::node::{Family, Node};
use crate::objects::{CARRIERS, SECOND_CARRIERS, WEIR};
use std::collections::BTreeSet;
use std::net::IpAddr;
use weir_netlink::Result;
use weir_netlink::route::{
    Address, AddressFamily, Link, PolicyRule, RT_TABLE_LOCAL, Route, RouteType, Routing, RuleAction,
};

/// Of IP, the number of TCP: other protocols are not captured.
const TCP: u8 = 6;

/// What the node has, as far as a rule may ask for it.
pub(crate) struct Ahead<'a> {
    pub(crate) node: &'a Node,
    pub(crate) routing: &'a Routing,
    pub(crate) links: &'a [Link],
    pub(crate) addresses: &'a [Address],
}

impl Ahead<'_> {
    /// Whether packets of connections of pods, or to them, leave by this rule before a rule of this crate sees them. What a rule
    /// surely does not select is not among them: packets of the node itself, of other links and other addresses.
    ///
    /// # Errors
    /// The table to which it leads cannot be read.
    pub(crate) fn takes(&self, rule: &PolicyRule) -> Result<bool> {
        let of = |f: &Family| f.is_v6 == (rule.family == AddressFamily::V6);
        let Some(family) = self.node.families().into_iter().find(of) else {
            return Ok(false);
        };
        let first = self.node.config.routing.priority;
        let passes_over = match rule.action {
            // The table of local routes comes first in any case.
            RuleAction::Lookup => rule.table != RT_TABLE_LOCAL,
            RuleAction::Goto => rule.goto.is_some_and(|to| to > first),
            RuleAction::Nop => false,
            _ => true,
        };
        // Those that the node agent makes are for single pods.
        if rule.priority.unwrap_or(0) >= first + 3 || !passes_over || rule.protocol == WEIR {
            return Ok(false);
        }
        let [from_pods, to_pods] = self.selected(rule, family);
        if rule.action != RuleAction::Lookup || !(from_pods || to_pods) {
            return Ok(from_pods || to_pods);
        }
        let pods = self.node.addresses(family);
        let leads = |route: &Route| {
            // By a default route alone, connections to pods of this node go nowhere.
            let is_to_pod = |pod: &IpAddr| route.dst.contains(pod);
            let to_pod = route.dst.prefix_len() > 0 && pods.keys().any(is_to_pod);
            from_pods || to_pod
        };
        let shortest = rule.selectors.suppress_prefixlength;
        let routes = self.routing.routes(rule.table)?.into_iter();
        let mut counting = routes.filter(|route| {
            let is_long = |shortest| u32::from(route.dst.prefix_len()) > shortest;
            let counts = route.kind != RouteType::Throw && shortest.is_none_or(is_long);
            counts && family.of(&route.dst.addr())
        });
        Ok(counting.any(|route| leads(&route)))
    }

    /// Whether it may select packets from pods, and to them.
    fn selected(&self, rule: &PolicyRule, family: Family) -> [bool; 2] {
        let by = &rule.selectors;
        // What the others do not select.
        if rule.not {
            return [true; 2];
        }
        let is_of_root = by.uids.as_ref().is_none_or(|uids| *uids.start() == 0);
        // A packet that is forwarded has no link that it must leave by, and counts as root's.
        if by.oif.is_some() || !is_of_root || by.ip_proto.is_some_and(|p| p != TCP) {
            return [false; 2];
        }
        let pods: BTreeSet<IpAddr> = self.node.addresses(family).into_keys().collect();
        let is_own = |a: &IpAddr| self.addresses.iter().any(|own| own.net.addr() == *a);
        let has_pod = |net: &Option<ipnet::IpNet>| {
            net.is_none_or(|net| pods.iter().any(|pod| net.contains(pod)))
        };
        let is_of_node = by
            .from
            .is_some_and(|net| net.prefix_len() == net.max_prefix_len() && is_own(&net.addr()));
        let [of_pods, elsewhere] = match &by.iif {
            None => [true; 2],
            Some(name) => self.arrival(name),
        };
        let marks = &self.node.config.marks;
        let has_mark = |bits: u32| {
            let mask = rule.fwmask.unwrap_or(u32::MAX);
            rule.fwmark.is_none_or(|mark| mark & mask == bits & mask)
        };
        let reply = marks.proxy_return;
        let mut from_pods = [marks.outbound, reply, reply | marks.second].into_iter();
        [
            of_pods && has_pod(&by.from) && from_pods.any(has_mark),
            elsewhere && !is_of_node && has_pod(&by.to) && has_mark(0),
        ]
    }

    /// Whether packets of pods arrive at this link, and whether others for pods do that no proxy has sent.
    fn arrival(&self, name: &str) -> [bool; 2] {
        let mut devices = self.node.devices.values().flatten();
        let of_pods = devices.any(|device| self.node.arrival(device) == name);
        let mut proxies = self.node.places();
        let carriers = [CARRIERS, SECOND_CARRIERS].concat();
        let is_ours = name == "lo"
            || carriers.contains(&name)
            || proxies.any(|place| self.node.arrival(&place.device) == name);
        let is_there = self.links.iter().any(|link| link.name == name);
        [of_pods, is_there && (of_pods || !is_ours)]
    }
}
