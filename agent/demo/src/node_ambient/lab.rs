//! A throwaway node with two pods and a proxy, and the network outside.
//!
//! ```text
//!   pod "web", enrolled   pod "plain"        proxy           outside
//!   10.244.1.10           10.244.2.10        10.244.3.10     10.244.4.10
//!   fd00:10:244:1::10     fd00:10:244:2::10  ...:3::10       ...:4::10   + service 10.96.0.10, fd00:10:96::10
//!         |                     |                |               |
//!         +---------------------+----- node -----+---------------+
//!                    (.1 and ::1 of each network)
//! ```
//! As in [`crate::Lab`], nothing has a name, so nothing is left behind.

use crate::addresses::{everything, host, on_link, service};
use crate::ready;
use ipnet::IpNet;
use serde_json::json;
use std::net::IpAddr;
use weir_netlink::route::{AddressFamily, Route, Routing};
use weir_netlink::{Error, Netns, Result};
use weir_node_ambient::Config;

/// A network namespace of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The node's own network namespace.
    Node,
    /// The enrolled pod.
    Web,
    /// A pod that is not enrolled.
    Plain,
    /// The proxy of the node.
    Proxy,
    /// The network outside.
    Outside,
}

const CONNECTED: [(Place, u8); 4] = [
    (Place::Web, 1),
    (Place::Plain, 2),
    (Place::Proxy, 3),
    (Place::Outside, 4),
];

/// The network namespaces; dropping this deletes them.
#[derive(Debug)]
pub struct Lab {
    netns: [(Place, Netns); 5],
    /// IPv4, and IPv6 if the kernel has it.
    pub families: &'static [AddressFamily],
}

/// The number of a place's network; the node has the first address of each.
fn number(place: Place) -> u8 {
    let found = CONNECTED.iter().find(|(p, _)| *p == place);
    found.map_or(1, |(_, number)| *number)
}

impl Lab {
    /// Creates the network namespaces and connects them.
    ///
    /// # Errors
    /// `EPERM` without `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`.
    pub fn create() -> Result<Self> {
        let has_ipv6 = weir_cni::redirection::has_ipv6();
        let lab = Self {
            netns: [
                (Place::Node, Netns::create()?),
                (Place::Web, Netns::create()?),
                (Place::Plain, Netns::create()?),
                (Place::Proxy, Netns::create()?),
                (Place::Outside, Netns::create()?),
            ],
            families: match has_ipv6 {
                true => &[AddressFamily::V4, AddressFamily::V6],
                false => &[AddressFamily::V4],
            },
        };
        set(lab.netns(Place::Node), "ipv4/ip_forward", "1")?;
        for (_, netns) in lab.netns.iter().filter(|_| has_ipv6) {
            set(netns, "ipv6/conf/all/forwarding", "1")?;
            // Disable duplicate address detection, which takes seconds.
            set(netns, "ipv6/conf/all/accept_dad", "0")?;
            set(netns, "ipv6/conf/default/accept_dad", "0")?;
        }
        let node = Routing::open_in(lab.netns(Place::Node))?;
        node.set_up(node.link("lo")?.index)?;
        for (place, number) in CONNECTED {
            lab.connect(&node, place, number)?;
        }
        let outside = Routing::open_in(lab.netns(Place::Outside))?;
        for &family in lab.families {
            let service = IpNet::from(service(family));
            outside.add_address(outside.link("eth0")?.index, service)?;
            let gateway = Some(lab.address(Place::Outside, family));
            node.add_route(&Route::unicast(service, gateway, None))?;
        }
        for (_, netns) in lab.netns.iter().filter(|_| has_ipv6) {
            ready::wait(netns)?;
        }
        Ok(lab)
    }

    fn connect(&self, node: &Routing, place: Place, number: u8) -> Result<()> {
        let netns = self.netns(place);
        let inside = Routing::open_in(netns)?;
        inside.set_up(inside.link("lo")?.index)?;
        let name = format!("pod{number}");
        node.add_veth(&name, "eth0", netns)?;
        let (outer, inner) = (node.link(&name)?.index, inside.link("eth0")?.index);
        node.set_up(outer)?;
        inside.set_up(inner)?;
        for &family in self.families {
            node.add_address(outer, on_link(number, family, 1)?)?;
            inside.add_address(inner, on_link(number, family, 10)?)?;
            let gateway = Some(host(number, family, 1));
            inside.add_route(&Route::unicast(everything(family), gateway, Some(inner)))?;
        }
        Ok(())
    }

    /// The namespace of a place.
    #[must_use]
    pub fn netns(&self, place: Place) -> &Netns {
        let found = self.netns.iter().find(|(p, _)| *p == place);
        // Every place is in the list, so the default is never used.
        found.map_or(&self.netns[0].1, |(_, netns)| netns)
    }

    /// The address of a place; for the node, its address in the network of the enrolled pod.
    #[must_use]
    pub fn address(&self, place: Place, family: AddressFamily) -> IpAddr {
        let last = if place == Place::Node { 1 } else { 10 };
        host(number(place), family, last)
    }

    /// The address of the service outside.
    #[must_use]
    pub fn service(&self, family: AddressFamily) -> IpAddr {
        service(family)
    }

    /// Returns a configuration with one enrolled pod and DNS capture.
    ///
    /// # Errors
    /// A description of a bug in this function.
    pub fn config(&self) -> std::result::Result<Config, String> {
        let all = |place| -> Vec<IpAddr> {
            let of = |f: &AddressFamily| self.address(place, *f);
            self.families.iter().map(of).collect()
        };
        let path = |place| self.netns(place).path();
        let text = json!({
            "proxies": [{"uid": "proxy", "netns": path(Place::Proxy), "addresses": all(Place::Proxy)}],
            "pods": [{"uid": "web", "netns": path(Place::Web), "addresses": all(Place::Web)}],
            "host_addresses": all(Place::Node),
            "dns_capture": true,
        });
        Config::from_json(&text.to_string(), "the demonstration").map_err(|e| e.to_string())
    }
}

fn set(netns: &Netns, key: &str, value: &str) -> Result<()> {
    let path = format!("/proc/sys/net/{key}");
    netns.run(|| std::fs::write(&path, value).map_err(|e| Error::io("set", &path, &e)))?
}
