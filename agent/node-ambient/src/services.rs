//! Services translated by IPVS: their addresses are local to the node, on a link that only holds them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use weir_netlink::route::{Address, Link};

/// Links of kube-proxy in IPVS mode, and of kube-router.
const HOLDERS: [&str; 2] = ["kube-ipvs0", "kube-dummy-if"];

/// Addresses of services, and the link that holds them.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) link: &'static str,
    pub(crate) addresses: Vec<IpAddr>,
}

/// Finds services among the links and addresses of a node; none without such a link. An address that another link has, too, is
/// the node's own.
pub(crate) fn services(links: &[Link], addresses: &[Address]) -> Vec<Services> {
    let holder = |index: u32| {
        let link = links.iter().find(|l| l.index == index)?;
        HOLDERS.into_iter().find(|name| link.name == *name)
    };
    let own = addresses.iter().filter(|a| holder(a.index).is_none());
    let own: BTreeSet<IpAddr> = own.map(|a| a.net.addr()).collect();
    let of_link = |link: &'static str| {
        let held = addresses.iter().filter(|a| holder(a.index) == Some(link));
        let held = held.map(|a| a.net.addr());
        // Each link has its own link-local address in IPv6.
        let held = held.filter(|a| !own.contains(a) && !is_link_local(a));
        let addresses: Vec<IpAddr> = held.collect();
        (!addresses.is_empty()).then_some(Services { link, addresses })
    };
    HOLDERS.into_iter().filter_map(of_link).collect()
}

fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}
