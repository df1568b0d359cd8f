//! Foreign policy rules that come before those of this crate, and the packets of enrolled pods that they select.

use crate::node::{Family, Node};
use crate::objects::{CARRIERS, SECOND_CARRIERS, WEIR};
use std::collections::BTreeSet;
use std::net::IpAddr;
use weir_netlink::Result;
use weir_netlink::route::{
    Address, AddressFamily, Link, PolicyRule, RT_TABLE_LOCAL, Route, RouteType, Routing, RuleAction,
};

/// `IPPROTO_TCP`: other protocols are not captured.
const TCP: u8 = 6;

/// State of the node that the selectors of a rule are compared with.
pub(crate) struct Ahead<'a> {
    pub(crate) node: &'a Node,
    pub(crate) routing: &'a Routing,
    pub(crate) links: &'a [Link],
    pub(crate) addresses: &'a [Address],
}

impl Ahead<'_> {
    /// True if this rule routes packets from or to pods before a rule of this crate sees them. Rules that certainly select no
    /// such packets are left out: those for packets of the node itself, of other links or of other addresses.
    ///
    /// # Errors
    /// The table that the rule looks up cannot be read.
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
        // The node agent's own rules are for single pods.
        if rule.priority.unwrap_or(0) >= first + 3 || !passes_over || rule.protocol == WEIR {
            return Ok(false);
        }
        let [from_pods, to_pods] = self.selected(rule, family);
        if rule.action != RuleAction::Lookup || !(from_pods || to_pods) {
            return Ok(from_pods || to_pods);
        }
        let pods = self.node.addresses(family);
        let leads = |route: &Route| {
            // A default route alone does not divert connections to pods of this node.
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

    /// Returns whether the rule may select packets from pods, and packets to pods.
    fn selected(&self, rule: &PolicyRule, family: Family) -> [bool; 2] {
        let by = &rule.selectors;
        // An inverted rule (`FIB_RULE_INVERT`) may select any packet.
        if rule.not {
            return [true; 2];
        }
        let is_of_root = by.uids.as_ref().is_none_or(|uids| *uids.start() == 0);
        // A forwarded packet has no output interface yet, and its UID is 0.
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

    /// Returns whether packets from pods arrive at this link, and whether packets to pods arrive there that no proxy has sent.
    fn arrival(&self, name: &str) -> [bool; 2] {
        let mut devices = self.node.devices.values().flatten();
        let of_pods = devices.any(|device| self.node.arrival(device) == name);
        let mut proxies = self.node.proxies();
        let carriers = [CARRIERS, SECOND_CARRIERS].concat();
        let is_ours = name == "lo"
            || carriers.contains(&name)
            || proxies.any(|located| self.node.arrival(&located.device) == name);
        let is_there = self.links.iter().any(|link| link.name == name);
        [of_pods, is_there && (of_pods || !is_ours)]
    }
}
