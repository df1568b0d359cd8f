//! A throwaway node: a client, a pod and a server, each in its own network namespace.
//!
//! ```text
//!   client                    pod                      server
//!   10.244.2.10               10.244.1.10              10.244.3.10
//!   fd00:10:244:2::10         fd00:10:244:1::10        fd00:10:244:3::10
//!        |                     |      :                 |    + service 10.96.0.10, fd00:10:96::10
//!        |                     |      : attach()        |    + outside 192.0.2.10, 2001:db8::10
//!        +------- router ------+------:-----------------+
//!              (.1 and ::1 of each network)
//! ```
//!
//! Nothing has a name: the descriptors held here keep the namespaces alive, and the
//! links live in the namespaces. So nothing is left behind, even if the process is
//! killed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU16, Ordering};

use super::addresses::{everything, host, network, on_link, service};
use super::ready;
use ipnet::IpNet;
use weir_netlink::Netns;
use weir_netlink::route::{AddressFamily, Link, LinkKind, Netkit, RT_TABLE_MAIN, Route, Routing};
use weir_netlink::{Error, Result};

/// A participant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// A client of the pod.
    Client,
    /// The pod that rules are written for.
    Pod,
    /// The destinations of the pod: another pod, a service, the world outside.
    Server,
}

/// Three network namespaces with addresses and routes, and the router between them.
#[derive(Debug)]
pub struct Lab {
    client: Netns,
    pod: Netns,
    server: Netns,
    router: Netns,
    /// The address families of this kernel.
    families: &'static [AddressFamily],
    /// The source port of the next flow.
    port: AtomicU16,
}

/// Higher than every port with a listener.
const FIRST_SOURCE_PORT: u16 = 20_000;
const PLACES: [Place; 3] = [Place::Pod, Place::Client, Place::Server];
const FORWARD4: &str = "/proc/sys/net/ipv4/ip_forward";
const FORWARD6: &str = "/proc/sys/net/ipv6/conf/all/forwarding";
/// Sysctls of duplicate address detection, to disable it. A router sends no neighbour solicitations before it is
/// complete for its link-local address: the first flow would take two seconds.
const NO_DAD: [&str; 2] = [
    "/proc/sys/net/ipv6/conf/all/accept_dad",
    "/proc/sys/net/ipv6/conf/default/accept_dad",
];

impl Lab {
    /// Creates the lab; takes about 10 ms.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN` and `CAP_NET_ADMIN`
    /// ([`Error::is_permission`]); `EOPNOTSUPP` if the kernel has no veth.
    pub fn create() -> Result<Self> {
        let lab = Self {
            client: Netns::create()?,
            pod: Netns::create()?,
            server: Netns::create()?,
            router: Netns::create()?,
            families: match weir_cni::redirection::has_ipv6() {
                true => &[AddressFamily::V4, AddressFamily::V6],
                false => &[AddressFamily::V4],
            },
            port: AtomicU16::new(FIRST_SOURCE_PORT),
        };
        set(&lab.router, &[FORWARD4], "1")?;
        if lab.has_ipv6() {
            set(&lab.router, &[FORWARD6], "1")?;
            for netns in [&lab.client, &lab.pod, &lab.server, &lab.router] {
                set(netns, &NO_DAD, "0")?;
            }
        }
        let router = Routing::open_in(&lab.router)?;
        up(&router, "lo")?;
        for place in PLACES {
            lab.connect(&router, place)?;
        }
        lab.add_services(&router)?;
        for netns in [&lab.client, &lab.pod, &lab.server, &lab.router] {
            lab.wait(netns)?;
        }
        Ok(lab)
    }

    /// The address families of this kernel: IPv4, and IPv6 unless it is disabled.
    #[must_use]
    pub fn families(&self) -> &'static [AddressFamily] {
        self.families
    }

    fn has_ipv6(&self) -> bool {
        self.families.contains(&AddressFamily::V6)
    }

    /// Waits until IPv6 works; IPv4 works immediately.
    fn wait(&self, netns: &Netns) -> Result<()> {
        match self.has_ipv6() {
            true => ready::wait(netns),
            false => Ok(()),
        }
    }

    /// The namespace of a place.
    #[must_use]
    pub fn netns(&self, place: Place) -> &Netns {
        match place {
            Place::Client => &self.client,
            Place::Pod => &self.pod,
            Place::Server => &self.server,
        }
    }

    /// Returns a source port that no earlier flow had.
    ///
    /// Connection tracking keeps entries for a while. A flow with the same addresses and ports would match the earlier
    /// entry and its NAT decision; one that only collides after redirection would get another source port.
    pub(super) fn source_port(&self) -> u16 {
        self.port.fetch_add(1, Ordering::Relaxed)
    }

    /// The address of a place, on its `eth0`.
    #[must_use]
    pub fn address(&self, place: Place, family: AddressFamily) -> IpAddr {
        host(network(place), family, 10)
    }

    /// An address of the server that represents a service: in `10.96.0.0/16` and
    /// `fd00:10:96::/112`.
    #[must_use]
    pub fn service(&self, family: AddressFamily) -> IpAddr {
        service(family)
    }

    /// An address of the server that represents the world outside: in
    /// `192.0.2.0/24` and `2001:db8::/32`, which are reserved for documentation.
    #[must_use]
    pub fn outside(&self, family: AddressFamily) -> IpAddr {
        match family {
            AddressFamily::V4 => Ipv4Addr::new(192, 0, 2, 10).into(),
            AddressFamily::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x10).into(),
        }
    }

    /// Adds an interface to the pod, directly connected to the client or the server:
    /// network `10.244.N.0/24` and `fd00:10:244:N::/64`, with the pod at `.10` and
    /// the peer at `.1`. [`Attached`] has both addresses.
    ///
    /// # Errors
    ///
    /// The name or the number is in use; 1 to 3 always are.
    pub fn attach(&self, name: &str, peer: Place, number: u8) -> Result<Attached> {
        Routing::open_in(&self.pod)?.add_veth(name, name, self.netns(peer))?;
        self.number_ends(name, peer, number)
    }

    /// Like [`Lab::attach`], but with a netkit pair in this mode (`NETKIT_L2` 0, `NETKIT_L3` 1), whose peer is in the pod. Since
    /// Linux 6.7.
    ///
    /// # Errors
    ///
    /// As of [`Lab::attach`]; `EOPNOTSUPP` if the kernel has no netkit.
    pub fn attach_netkit(
        &self,
        mode: u32,
        name: &str,
        peer: Place,
        number: u8,
    ) -> Result<Attached> {
        let inside = Link {
            name: name.to_owned(),
            ..Link::default()
        };
        let kind = match LinkKind::netkit(&inside, Some((&self.pod).into()))? {
            LinkKind::Netkit(pair) => LinkKind::Netkit(Netkit {
                mode: Some(mode),
                ..pair
            }),
            other => other,
        };
        Routing::open_in(self.netns(peer))?.add_link(&Link::new(name, kind), None)?;
        self.number_ends(name, peer, number)
    }

    /// Sets both ends of a pair up and adds their addresses.
    fn number_ends(&self, name: &str, peer: Place, number: u8) -> Result<Attached> {
        let pod = Routing::open_in(&self.pod)?;
        let other = Routing::open_in(self.netns(peer))?;
        for (routing, at) in [(&pod, 10), (&other, 1)] {
            let index = up(routing, name)?;
            for &family in self.families {
                routing.add_address(index, on_link(number, family, at)?)?;
            }
        }
        self.wait(&self.pod)?;
        self.wait(self.netns(peer))?;
        Ok(Attached { number })
    }

    /// Adds `eth0` of one place, its peer on the router, and the default routes.
    fn connect(&self, router: &Routing, place: Place) -> Result<()> {
        let number = network(place);
        let routing = Routing::open_in(self.netns(place))?;
        up(&routing, "lo")?;
        let peer = format!("net{number}");
        router.add_veth(&peer, "eth0", self.netns(place))?;
        let outer = up(router, &peer)?;
        let inner = up(&routing, "eth0")?;
        for &family in self.families {
            router.add_address(outer, on_link(number, family, 1)?)?;
            routing.add_address(inner, on_link(number, family, 10)?)?;
            let gateway = Some(host(number, family, 1));
            routing.add_route(&Route::unicast(everything(family), gateway, Some(inner)))?;
        }
        Ok(())
    }

    /// Adds the server's other addresses, and routes to them.
    fn add_services(&self, router: &Routing) -> Result<()> {
        for &family in self.families {
            for address in [self.service(family), self.outside(family)] {
                self.add_to(router, Place::Server, address)?;
            }
        }
        Ok(())
    }

    /// Adds an address to a place's `eth0`, which other places reach through the router.
    ///
    /// # Errors
    ///
    /// The address is in use, or this kernel does not have its family.
    pub fn add_address(&self, place: Place, address: IpAddr) -> Result<()> {
        self.add_to(&Routing::open_in(&self.router)?, place, address)?;
        self.wait(self.netns(place))
    }

    /// Adds an address that another place had before and from which it was deleted.
    ///
    /// # Errors
    ///
    /// As of [`Lab::add_address`].
    pub fn move_address(&self, place: Place, address: IpAddr) -> Result<()> {
        let router = Routing::open_in(&self.router)?;
        let is_its = |route: &Route| route.dst == IpNet::from(address);
        for route in router
            .routes(RT_TABLE_MAIN)?
            .iter()
            .filter(|route| is_its(route))
        {
            router.del_route(route)?;
        }
        self.add_address(place, address)
    }

    fn add_to(&self, router: &Routing, place: Place, address: IpAddr) -> Result<()> {
        let routing = Routing::open_in(self.netns(place))?;
        routing.add_address(routing.link("eth0")?.index, IpNet::from(address))?;
        let family = match address {
            IpAddr::V4(_) => AddressFamily::V4,
            IpAddr::V6(_) => AddressFamily::V6,
        };
        let gateway = Some(self.address(place, family));
        router.add_route(&Route::unicast(IpNet::from(address), gateway, None))?;
        Ok(())
    }
}

/// An additional interface of the pod.
#[derive(Debug, Clone, Copy)]
pub struct Attached {
    number: u8,
}

impl Attached {
    /// The pod's address on this interface.
    #[must_use]
    pub fn pod(&self, family: AddressFamily) -> IpAddr {
        host(self.number, family, 10)
    }

    /// The peer's address.
    #[must_use]
    pub fn peer(&self, family: AddressFamily) -> IpAddr {
        host(self.number, family, 1)
    }
}

/// Writes sysctls of a network namespace: `/proc/sys/net` depends on the namespace of the calling thread.
fn set(netns: &Netns, switches: &[&str], value: &str) -> Result<()> {
    netns.run(|| {
        for switch in switches {
            std::fs::write(switch, value).map_err(|e| Error::io("set", *switch, &e))?;
        }
        Ok(())
    })?
}

/// Sets a link up and returns its index.
fn up(routing: &Routing, name: &str) -> Result<u32> {
    let index = routing.link(name)?.index;
    routing.set_up(index)?;
    Ok(index)
}
