//! The node's own address towards a pod: the source that the kernel would choose without this redirection.
//!
//! A lookup does not tell it: once the routes of the carriers exist, it finds those, and the address of a carrier. Connections with that
//! address would end with the carrier, and the answer of a pod with several links may leave by another one. So the main table and the
//! addresses are read, without those of carriers.

use crate::config::Pod;
use crate::node::is_carrier_address;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_netlink::Result;
use weir_netlink::route::{
    Address, RT_TABLE_LOCAL, RT_TABLE_MAIN, Route, RouteScope, RouteType, Routing,
};

/// What the choice depends on.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    main: Vec<Route>,
    /// In the order of the kernel: primary addresses of a link come first.
    addresses: Vec<Address>,
    /// The addresses of the table local. The kernel accepts no other one as source of a route: not one of a VRF, nor one that
    /// duplicate address detection checks.
    here: BTreeSet<IpAddr>,
}

impl Sources {
    /// # Errors
    /// Routes or addresses cannot be read.
    pub(crate) fn read(routing: &Routing) -> Result<Self> {
        let local = routing.routes(RT_TABLE_LOCAL)?;
        let local = local.iter().filter(|r| r.kind == RouteType::Local);
        let one = local.filter(|r| r.dst.prefix_len() == r.dst.max_prefix_len());
        let here: BTreeSet<IpAddr> = one.map(|r| r.dst.addr()).collect();
        let mut addresses = routing.addresses()?;
        addresses.retain(|a| {
            let is_wide = a.scope == RouteScope::Universe && !is_carrier_address(&a.net);
            is_wide && here.contains(&a.net.addr())
        });
        let mut main = routing.routes(RT_TABLE_MAIN)?;
        // Before Linux 6.6 a route keeps an IPv6 address that was removed from another link.
        for route in &mut main {
            route.prefsrc = route.prefsrc.filter(|address| here.contains(address));
        }
        Ok(Self {
            main,
            addresses,
            here,
        })
    }

    /// Returns the source for each address of these pods.
    pub(crate) fn of_pods(&self, pods: &[Pod]) -> BTreeMap<IpAddr, IpAddr> {
        let addresses = pods.iter().flat_map(|pod| &pod.addresses);
        let known = addresses.filter_map(|pod| Some((*pod, self.towards(*pod)?)));
        known.collect()
    }

    /// Returns the main table's route to this address.
    pub(crate) fn route(&self, to: IpAddr) -> Option<&Route> {
        let leading = self.main.iter();
        let leading = leading.filter(|r| r.from.is_none() && r.dst.contains(&to));
        leading.min_by_key(|r| (Reverse(r.dst.prefix_len()), r.metric()))
    }

    /// True if the node has this address, and it is not that of a carrier.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.here.contains(&address) && !is_carrier_address(&address.into())
    }

    /// Returns the source of the main table's route, else an address of its link, in the subnet of its gateway if there is one
    /// (`inet_select_addr()`, net/ipv4/devinet.c), else one of the default route's link, else any. For IPv6 the longest common prefix
    /// decides among several (RFC 6724). `None` if the node has no address of the family.
    pub(crate) fn towards(&self, to: IpAddr) -> Option<IpAddr> {
        let route = self.route(to);
        let link = route.and_then(|r| r.oif);
        let gateway = route.and_then(|r| r.gateway);
        let defaults = self.main.iter();
        let defaults = defaults.filter(|r| r.dst.prefix_len() == 0 && r.dst.contains(&to));
        let usual = defaults.min_by_key(|r| r.metric()).and_then(|r| r.oif);
        let order = |a: &&Address| {
            let common = match (a.net.addr(), to) {
                (IpAddr::V6(own), IpAddr::V6(to)) => {
                    let common = (own.to_bits() ^ to.to_bits()).leading_zeros();
                    common.min(a.net.prefix_len().into())
                }
                _ => 0,
            };
            let is_near = gateway.is_none_or(|gateway| a.net.contains(&gateway));
            let of = |link| Some(a.index) == link;
            (!of(link), !of(usual), !is_near, Reverse(common))
        };
        let own = self.addresses.iter();
        let own = own.filter(|a| a.net.addr().is_ipv6() == to.is_ipv6());
        let stated = route.and_then(|r| r.prefsrc);
        stated.or_else(|| own.min_by_key(order).map(|a| a.net.addr()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(index: u32, net: &str) -> Address {
        Address {
            index,
            net: net.parse().unwrap(),
            scope: RouteScope::Universe,
            tentative: false,
            protocol: None,
        }
    }

    fn route(dst: &str, oif: u32, prefsrc: Option<&str>) -> Route {
        Route {
            prefsrc: prefsrc.map(|a| a.parse().unwrap()),
            ..Route::unicast(dst.parse().unwrap(), None, Some(oif))
        }
    }

    #[test]
    fn the_route_decides_then_its_link_then_any_link() {
        let routes = [
            route("0.0.0.0/0", 2, Some("192.0.2.9")),
            route("10.0.0.0/24", 3, Some("10.0.0.1")),
            route("10.0.0.7/32", 4, None),
            route("10.0.0.8/32", 5, None),
            Route {
                priority: Some(9),
                ..route("10.0.0.8/32", 2, Some("192.0.2.9"))
            },
            route("fd00::/64", 3, None),
            route("fd00:0:0:1::7/128", 5, None),
            Route {
                gateway: Some("172.16.1.9".parse().unwrap()),
                ..route("10.8.0.0/16", 6, None)
            },
        ];
        let addresses = [
            address(2, "192.0.2.2/24"),
            address(3, "10.0.0.1/24"),
            address(4, "10.0.0.254/32"),
            address(2, "2001:db8::2/64"),
            address(3, "fd00:0:0:9::1/64"),
            address(3, "fd00::1/64"),
            address(6, "172.16.0.1/24"),
            address(6, "172.16.1.1/24"),
        ];
        let sources = Sources {
            main: routes.to_vec(),
            addresses: addresses.to_vec(),
            ..Sources::default()
        };
        for (to, expected) in [
            ("10.0.0.6", "10.0.0.1"),
            ("10.0.0.7", "10.0.0.254"),
            ("10.0.0.8", "192.0.2.2"),
            ("10.9.9.9", "192.0.2.9"),
            ("10.8.0.1", "172.16.1.1"),
            ("fd00::7", "fd00::1"),
            ("fd00:0:0:1::7", "fd00::1"),
            ("2001:db8::7", "2001:db8::2"),
        ] {
            let found = sources.towards(to.parse().unwrap());
            assert_eq!(found, Some(expected.parse().unwrap()), "{to}");
        }
        let nothing = Sources::default();
        assert_eq!(nothing.towards("10.0.0.7".parse().unwrap()), None);
    }

    /// The kernel prefers an address with the label of the destination (RFC 6724), and that of a carrier has it.
    #[test]
    fn the_address_of_a_carrier_is_not_the_node_s_towards_a_proxy() {
        let netns = weir_testing::namespace_or_skip!();
        if !std::path::Path::new("/proc/sys/net/ipv6").exists() {
            return println!("skipped: this kernel has no IPv6");
        }
        let proxy: IpAddr = "fd00::2".parse().unwrap();
        let found = netns.run(|| {
            let routing = Routing::open().unwrap();
            for (name, net) in [
                ("eth0", Some("2001:db8::1/64")),
                ("istioin", Some("fd00:7765:6972:7e::1/126")),
                ("v1", None),
            ] {
                let end = format!("p{name}");
                routing.add_veth(name, &end, &netns).unwrap();
                let [index, end] = [name, &end].map(|l| routing.link(l).unwrap().index);
                for link in [index, end] {
                    routing.set_up(link).unwrap();
                }
                if let Some(net) = net {
                    routing.add_address(index, net.parse().unwrap()).unwrap();
                }
            }
            let index = routing.link("v1").unwrap().index;
            let to_proxy = Route::unicast(proxy.into(), None, Some(index));
            routing.add_route(&to_proxy).unwrap();
            let socket = std::net::UdpSocket::bind("[::]:0").unwrap();
            socket.connect((proxy, 80)).unwrap();
            let by_lookup = socket.local_addr().unwrap().ip();
            let sources = Sources::read(&routing).unwrap();
            let found = crate::discover::source_towards(&sources, proxy).unwrap();
            (by_lookup, found)
        });
        let (by_lookup, found) = found.unwrap();
        assert!(is_carrier_address(&by_lookup.into()), "{by_lookup}");
        assert_eq!(found, "2001:db8::1".parse::<IpAddr>().unwrap());
    }
}
