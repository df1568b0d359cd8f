//! Services that IPVS translates: their addresses are the node's own, on a link that only holds them.

use std::net::IpAddr;
use weir_netlink::Result;
use weir_netlink::route::Routing;

/// Of kube-proxy in IPVS mode, and of kube-router.
const HOLDERS: [&str; 2] = ["kube-ipvs0", "kube-dummy-if"];

/// Addresses of services, and the link that holds them.
#[derive(Debug)]
pub(crate) struct Services {
    pub(crate) link: &'static str,
    pub(crate) addresses: Vec<IpAddr>,
}

/// In the network namespace of `routing`; without such a link none.
pub(crate) fn services(routing: &Routing) -> Result<Vec<Services>> {
    let links = routing.links()?;
    let addresses = routing.addresses()?;
    let of_link = |link: &'static str| {
        let index = links.iter().find(|l| l.name == link)?.index;
        let held = addresses.iter().filter(|a| a.index == index);
        // Each link has such an address of its own.
        let held = held.map(|a| a.net.addr()).filter(|a| !is_link_local(a));
        let addresses: Vec<IpAddr> = held.collect();
        (!addresses.is_empty()).then_some(Services { link, addresses })
    };
    Ok(HOLDERS.into_iter().filter_map(of_link).collect())
}

fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}
