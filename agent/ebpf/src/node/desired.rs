//! What is asked for, and what the namespaces of the node and of its proxy need for it beside programs and maps.

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
/// Of the proxy's namespace: the table with the local route, and the priority of its rule.
const TABLE: u32 = 100;
const PRIORITY: u32 = 20_000;
/// Bits of marks that the rule compares.
const MASK: u32 = 0xfff;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Host ends of the links of enrolled pods, by address.
    pub pods: BTreeMap<IpAddr, String>,
    /// Every address of the node.
    pub addresses: BTreeSet<IpAddr>,
    /// Every address of its proxies: what a pod sends there is for the proxy itself.
    pub proxies: BTreeSet<IpAddr>,
    /// The active proxy; without one TCP of enrolled pods is dropped.
    pub proxy: Option<Proxy>,
    /// Host ends of the links of other proxies of the node: those that were active before keep their connections.
    pub others: BTreeSet<String>,
    /// The kernel has IPv6.
    pub has_ipv6: bool,
    /// DNS over UDP of enrolled pods goes to port 15053 of the proxy.
    pub dns: bool,
    /// What is not captured.
    pub exclude: Exclusions,
    /// What is not captured of single pods, by their addresses.
    pub exclude_of: BTreeMap<IpAddr, Exclusions>,
}

impl Wanted {
    /// Anything is excluded.
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

/// Where the proxy is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// Its namespace.
    pub netns: PathBuf,
    /// Its own end of the link.
    pub interface: String,
    /// The host's end.
    pub device: String,
    /// Where it is asked for names: at most one of each family.
    pub addresses: BTreeSet<IpAddr>,
}

/// `net.ipv4.conf.DEVICE.rp_filter`: with 1 the kernel drops what the proxy sends with addresses of pods.
pub(super) fn rp_filter(device: &str) -> String {
    format!("ipv4/conf/{device}/rp_filter")
}

/// What the kernel compares with instead of 0 and 1: the source has any route. At a link without an IPv4 address, as of Calico, that
/// drops what has another source than the link leads to (`no_addr` in `__fib_validate_source()`, net/ipv4/fib_frontend.c):
/// there only 0 lets it pass. An address would do, too, but the kernel deletes all routes of a link with its last one.
pub(super) const LOOSE: u32 = 2;

/// In the proxy's namespace these are 0. Nothing is forwarded: what is redirected is for ztunnel or dropped. By the mark the
/// source of what is redirected would be looked up in the table of the local route, by which every address is the proxy's own,
/// and be refused: the kernel takes the larger value of `all` and of the interface.
pub(super) fn switched_off(interface: &str) -> [String; 4] {
    [
        format!("ipv4/conf/{interface}/forwarding"),
        "ipv6/conf/all/forwarding".to_owned(),
        "ipv4/conf/all/src_valid_mark".to_owned(),
        format!("ipv4/conf/{interface}/src_valid_mark"),
    ]
}

/// The route and the policy rule of the proxy's namespace, by family.
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

/// The routes and rules of the table in the namespace of the socket.
pub(super) fn read_routing(routing: &Routing) -> Result<(Vec<Route>, Vec<PolicyRule>)> {
    Ok((routing.routes(TABLE)?, routing.rules()?))
}

/// Of these the ones that weir wrote for its programs. A route to which another policy rule of weir leads is kept for that: a
/// redirection in the pod has the same one.
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
