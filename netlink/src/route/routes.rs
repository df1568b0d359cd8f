//! Routes: `ip route`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RoutePreference,
};
pub use rtnetlink::packet_route::route::{RouteProtocol, RouteScope, RouteType};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Family, RTPROT_WEIR, Routing};
use crate::Result;

/// `RT_TABLE_MAIN` of `linux/rtnetlink.h`.
const RT_TABLE_MAIN: u32 = 254;
/// `IP6_RT_PRIO_USER` of `linux/ipv6_route.h`: the metric of IPv6 routes that come without one.
const IP6_RT_PRIO_USER: u32 = 1024;

/// One route. What of it has no field here shows in [`Route::plain`]: a multipath route has neither gateway nor
/// link, and is not plain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Where to; the default route has length 0. The host bits are zero.
    pub dst: IpNet,
    /// `RTA_GATEWAY`.
    pub gateway: Option<IpAddr>,
    /// `RTA_OIF`: the link's index.
    pub oif: Option<u32>,
    /// `RTA_TABLE`: 254 is "main", 255 "local".
    pub table: u32,
    /// `rtm_type`: what is done with the packet.
    pub kind: RouteType,
    /// `rtm_scope`: IPv4 only, the kernel reports `universe` for IPv6.
    pub scope: RouteScope,
    /// `rtm_protocol`: who made it.
    pub protocol: RouteProtocol,
    /// `RTA_PRIORITY`, the metric. IPv6 routes get 1024 unless told.
    pub priority: Option<u32>,
    /// The route has nothing that changes its effect besides these fields: no source, next hops, metrics,
    /// encapsulation or expiry, and its link is there. Ignored by [`Routing::add_route`] and
    /// [`Routing::del_route`].
    pub plain: bool,
}

impl Route {
    /// A unicast route that weir owns, in the main table.
    #[must_use]
    pub fn unicast(dst: IpNet, gateway: Option<IpAddr>, oif: Option<u32>) -> Self {
        // A neighbour on the link is nearer than anything behind a gateway, and IPv4
        // wants to hear it (`ip route` does the same).
        let scope = if gateway.is_none() && matches!(dst, IpNet::V4(_)) {
            RouteScope::Link
        } else {
            RouteScope::Universe
        };
        Self {
            dst: dst.trunc(),
            gateway,
            oif,
            table: RT_TABLE_MAIN,
            kind: RouteType::Unicast,
            scope,
            protocol: RouteProtocol::Other(RTPROT_WEIR),
            priority: None,
            plain: true,
        }
    }

    /// `local default dev LINK table TABLE`, for IPv4 with `scope host`: deliver
    /// everything that the table is asked about to this machine.
    #[must_use]
    pub fn local_default(family: Family, oif: u32, table: u32) -> Self {
        Self {
            dst: default_of(family),
            gateway: None,
            oif: Some(oif),
            table,
            kind: RouteType::Local,
            scope: match family {
                Family::V4 => RouteScope::Host,
                Family::V6 => RouteScope::Universe,
            },
            protocol: RouteProtocol::Other(RTPROT_WEIR),
            priority: None,
            plain: true,
        }
    }

    /// Both do the same with the same packets, whoever made them and whatever their metric.
    #[must_use]
    pub fn same_effect(&self, other: &Self) -> bool {
        let key = |r: &Self| (r.dst, r.gateway, r.oif, r.table, r.kind, r.plain);
        key(self) == key(other)
    }

    /// `RTA_PRIORITY` as the kernel compares it: the route with the lowest is taken.
    #[must_use]
    pub fn metric(&self) -> u32 {
        self.priority.unwrap_or(match self.family() {
            Family::V4 => 0,
            Family::V6 => IP6_RT_PRIO_USER,
        })
    }

    /// The family of the destination.
    #[must_use]
    pub fn family(&self) -> Family {
        match self.dst {
            IpNet::V4(_) => Family::V4,
            IpNet::V6(_) => Family::V6,
        }
    }
}

impl fmt::Display for Route {
    /// Close to `ip route show`, with the link by number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind != RouteType::Unicast {
            write!(f, "{} ", format!("{:?}", self.kind).to_lowercase())?;
        }
        write!(f, "{}", self.dst)?;
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(oif) = self.oif {
            write!(f, " dev #{oif}")?;
        }
        if let Some(metric) = self.priority {
            write!(f, " metric {metric}")?;
        }
        write!(f, " table {} proto {}", self.table, u8::from(self.protocol))
    }
}

impl Routing {
    /// `ip route show table TABLE` and the same of `ip -6`: IPv4 first.
    ///
    /// # Errors
    ///
    /// [`crate::ErrorKind::Exhausted`] when routes kept changing.
    pub fn routes(&self, table: u32) -> Result<Vec<Route>> {
        let of_table = |message: &mut RouteMessage| set_table(message, table);
        let mut routes = self.dump_routes(of_table, &format!("the routes of table {table}"))?;
        routes.retain(|r| r.table == table);
        Ok(routes)
    }

    /// `ip route show table all proto PROTOCOL` and the same of `ip -6`: IPv4 first.
    ///
    /// # Errors
    ///
    /// As [`Routing::routes`].
    pub fn routes_by(&self, protocol: RouteProtocol) -> Result<Vec<Route>> {
        let by = |message: &mut RouteMessage| message.header.protocol = protocol;
        let mut routes = self.dump_routes(by, &format!("the routes of protocol {protocol:?}"))?;
        routes.retain(|r| r.protocol == protocol);
        Ok(routes)
    }

    fn dump_routes(&self, select: impl Fn(&mut RouteMessage), object: &str) -> Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            select(&mut message);
            let found = match self.dump(&RouteNetlinkMessage::GetRoute(message), object) {
                Ok(found) => found,
                // A table comes into being with its first route; without IPv6 there are none of it.
                Err(e) if e.is_not_found() => continue,
                Err(e)
                    if family == AddressFamily::Inet6 && e.errno() == Some(libc::EAFNOSUPPORT) =>
                {
                    continue;
                }
                Err(e) => return Err(e),
            };
            routes.extend(found.into_iter().filter_map(read));
        }
        Ok(routes)
    }

    /// `ip route add`. False when the kernel has a route to the same destination
    /// and with the same metric in that table, whatever else that one does:
    /// [`Route::same_effect`] tells.
    ///
    /// # Errors
    ///
    /// `ENETUNREACH` when the gateway is not on a link; `ENETDOWN`; `EINVAL`.
    pub fn add_route(&self, route: &Route) -> Result<bool> {
        let request = RouteNetlinkMessage::NewRoute(build(route));
        self.ensure(request, "add", &format!("route {route}"))
    }

    /// `ip route delete`: the first one that agrees with all that is given. False
    /// when there is none.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn del_route(&self, route: &Route) -> Result<bool> {
        let request = RouteNetlinkMessage::DelRoute(build(route));
        self.remove(request, "delete", &format!("route {route}"))
    }
}

fn default_of(family: Family) -> IpNet {
    match family {
        Family::V4 => IpNet::V4(Ipv4Net::default()),
        Family::V6 => IpNet::V6(Ipv6Net::default()),
    }
}

/// Tables above 255 do not fit the header.
fn set_table(message: &mut RouteMessage, table: u32) {
    match u8::try_from(table) {
        Ok(small) => message.header.table = small,
        Err(_) => {
            message.header.table = RouteHeader::RT_TABLE_UNSPEC;
            message.attributes.push(RouteAttribute::Table(table));
        }
    }
}

fn build(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = match route.dst {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    };
    message.header.destination_prefix_length = route.dst.prefix_len();
    message.header.kind = route.kind;
    message.header.scope = route.scope;
    message.header.protocol = route.protocol;
    set_table(&mut message, route.table);
    let attributes = &mut message.attributes;
    if route.dst.prefix_len() > 0 {
        attributes.push(RouteAttribute::Destination(RouteAddress::from(
            route.dst.network(),
        )));
    }
    attributes.extend(
        route
            .gateway
            .map(|ip| RouteAttribute::Gateway(RouteAddress::from(ip))),
    );
    attributes.extend(route.oif.map(RouteAttribute::Oif));
    attributes.extend(route.priority.map(RouteAttribute::Priority));
    message
}

/// `RTM_F_OFFLOAD`, `RTM_F_TRAP` and `RTM_F_OFFLOAD_FAILED`, and the same of next hops.
const OFFLOADED: RouteFlags = RouteFlags::RtOffload
    .union(RouteFlags::RtTrap)
    .union(RouteFlags::OffloadFailed)
    .union(RouteFlags::Offload)
    .union(RouteFlags::Trap);

fn read(message: RouteNetlinkMessage) -> Option<Route> {
    let RouteNetlinkMessage::NewRoute(message) = message else {
        return None;
    };
    let header = message.header;
    // A cached copy of a route is no entry of the table.
    if header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    let mut route = Route {
        dst: IpNet::new(any, header.destination_prefix_length).ok()?,
        gateway: None,
        oif: None,
        table: u32::from(header.table),
        kind: header.kind,
        scope: header.scope,
        protocol: header.protocol,
        priority: None,
        // What the kernel's hardware offload does with it changes nothing here.
        plain: (header.source_prefix_length, header.tos) == (0, 0)
            && header.flags.difference(OFFLOADED).is_empty(),
    };
    for attribute in message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => {
                route.dst = IpNet::new(ip(address)?, header.destination_prefix_length).ok()?;
            }
            RouteAttribute::Gateway(address) => route.gateway = ip(address),
            RouteAttribute::Oif(index) => route.oif = Some(index),
            RouteAttribute::Table(table) => route.table = table,
            RouteAttribute::Priority(metric) => route.priority = Some(metric),
            // The kernel sends these with every IPv6 route.
            RouteAttribute::Preference(RoutePreference::Medium) => {}
            RouteAttribute::CacheInfo(info) if info.expires == 0 => {}
            _ => route.plain = false,
        }
    }
    Some(route)
}

fn ip(address: RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some(ip.into()),
        RouteAddress::Inet6(ip) => Some(ip.into()),
        _ => None,
    }
}
