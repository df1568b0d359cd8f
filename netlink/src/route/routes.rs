//! Routes: `ip route`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage,
};
pub use rtnetlink::packet_route::route::{RouteProtocol, RouteScope, RouteType};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{Family, RTPROT_WEIR, Routing};
use crate::Result;

/// `RT_TABLE_MAIN` of `linux/rtnetlink.h`.
const RT_TABLE_MAIN: u32 = 254;

/// One route. A multipath route shows neither gateway nor link.
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
        }
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
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            set_table(&mut message, table);
            let request = RouteNetlinkMessage::GetRoute(message);
            let found = match self.dump(&request, &format!("the routes of table {table}")) {
                Ok(found) => found,
                // A table comes into being with its first route.
                Err(e) if e.is_not_found() => continue,
                Err(e) => return Err(e),
            };
            routes.extend(
                found
                    .into_iter()
                    .filter_map(read)
                    .filter(|r| r.table == table),
            );
        }
        Ok(routes)
    }

    /// `ip route add`. False when the kernel has a route to the same destination
    /// and with the same metric in that table.
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
            _ => {}
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
