//! The desired state, and the sysctls, routes and rules that it needs in the namespaces of the node and of its proxy.

use super::exclude::Exclusions;
use super::parts::TPROXY_MARK;
use super::programs::NodeTraits;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use weir_cni::redirection::RTPROT_WEIR;
use weir_netlink::Result;
use weir_netlink::route::{
    AddressFamily, LOOPBACK_IFINDEX, PolicyRule, Route, RouteProtocol, Routing,
};

const WEIR: RouteProtocol = RouteProtocol::Other(RTPROT_WEIR);
/// In the proxy's namespace: the table with the local route, and the priority of its rule.
const TABLE: u32 = 100;
const PRIORITY: u32 = 20_000;
/// Bits of marks that the rule compares.
const MASK: u32 = 0xfff;

/// The desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Host ends of the links of enrolled pods, by address.
    pub pods: BTreeMap<IpAddr, String>,
    /// Every address of the node.
    pub addresses: BTreeSet<IpAddr>,
    /// Every address of the node's proxies: packets of a pod to these are for the proxy itself.
    pub proxies: BTreeSet<IpAddr>,
    /// The active proxy; without one, TCP of enrolled pods is dropped.
    pub proxy: Option<Proxy>,
    /// Host ends of the links of the node's other proxies: those that were active before keep their connections.
    pub others: BTreeSet<String>,
    /// True if the kernel has IPv6.
    pub has_ipv6: bool,
    /// True if DNS over UDP of enrolled pods goes to port 15053 of the proxy.
    pub dns: bool,
    /// Traffic of all pods that is not captured.
    pub exclude: Exclusions,
    /// Traffic of single pods that is not captured, by their addresses.
    pub exclude_of: BTreeMap<IpAddr, Exclusions>,
}

impl Wanted {
    /// True if anything is excluded.
    pub(super) fn excludes(&self) -> bool {
        let mut of_pods = self.exclude_of.values();
        !self.exclude.is_empty() || of_pods.any(|of_pod| !of_pod.is_empty())
    }

    pub(super) fn traits(&self, events: bool) -> NodeTraits {
        NodeTraits {
            dual: self.has_ipv6,
            dns: self.dns,
            exclude: self.excludes(),
            events,
        }
    }
}

/// The proxy with its link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// Its namespace.
    pub netns: PathBuf,
    /// Its own end of the link.
    pub interface: String,
    /// The host's end.
    pub device: String,
    /// Its addresses for DNS queries: at most one per family.
    pub addresses: BTreeSet<IpAddr>,
}

/// `net.ipv4.conf.DEVICE.rp_filter`: with 1 the kernel drops packets that the proxy sends with addresses of pods.
pub(super) fn rp_filter(device: &str) -> String {
    format!("ipv4/conf/{device}/rp_filter")
}

/// `rp_filter` in loose mode: the source must have any route. At a link without an IPv4 address, as with Calico, the kernel
/// still drops packets if the route to their source is not by that link (`no_addr` in `__fib_validate_source()`, net/ipv4/fib_frontend.c);
/// only 0 lets them pass there. An address would help, too, but the kernel deletes all routes of a link with its last address.
pub(super) const LOOSE: u32 = 2;

/// Returns the sysctls that are set to 0 in the proxy's namespace. Forwarding is off: redirected packets are for ztunnel or dropped.
/// With `src_valid_mark`, the mark would select the table of the local route for source validation; there every address is the
/// proxy's own, so redirected packets would be refused. The kernel takes the larger value of `all` and of the interface.
pub(super) fn switched_off(interface: &str) -> [String; 4] {
    [
        format!("ipv4/conf/{interface}/forwarding"),
        "ipv6/conf/all/forwarding".to_owned(),
        "ipv4/conf/all/src_valid_mark".to_owned(),
        format!("ipv4/conf/{interface}/src_valid_mark"),
    ]
}

/// Returns the route and the policy rule of the proxy's namespace, by family.
pub(super) fn routing(has_ipv6: bool) -> Vec<(Route, PolicyRule)> {
    let families: &[AddressFamily] = match has_ipv6 {
        true => &[AddressFamily::V4, AddressFamily::V6],
        false => &[AddressFamily::V4],
    };
    let of = |family: &AddressFamily| {
        let route = Route::local_default(*family, LOOPBACK_IFINDEX, TABLE).by(WEIR);
        let rule = PolicyRule::mark(*family, TPROXY_MARK, TABLE);
        let rule = PolicyRule {
            fwmask: Some(MASK),
            ..rule.at(PRIORITY).by(WEIR)
        };
        (route, rule)
    };
    families.iter().map(of).collect()
}

/// Reads the routes of the table, and all policy rules, in the namespace of the socket.
pub(super) fn read_routing(routing: &Routing) -> Result<(Vec<Route>, Vec<PolicyRule>)> {
    Ok((routing.routes(TABLE)?, routing.rules()?))
}

/// Returns the routes and rules that weir wrote for its programs. A route is left out if another policy rule of weir leads to it: a
/// redirection in the pod uses the same route.
pub(super) fn owned(routes: &[Route], rules: &[PolicyRule]) -> (Vec<Route>, Vec<PolicyRule>) {
    let own = routing(true);
    let is_rule = |r: &PolicyRule| own.iter().any(|(_, rule)| rule.same_effect(r));
    let is_route = |r: &Route| own.iter().any(|(route, _)| route.same_effect(r));
    let of_weir = || rules.iter().filter(|r| r.protocol == WEIR);
    let is_shared = |r: &Route| of_weir().any(|rule| rule.leads_to(r) && !is_rule(rule));
    let routes = routes.iter().filter(|r| r.protocol == WEIR);
    let routes = routes.filter(|r| is_route(r) && !is_shared(r));
    let rules = of_weir().filter(|r| is_rule(r));
    (routes.cloned().collect(), rules.cloned().collect())
}
