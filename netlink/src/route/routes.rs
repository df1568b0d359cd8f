//! Routes: `ip route`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::exchange::IN_PLACE;
use super::number::{
    ICMPV6_ROUTER_PREF_MEDIUM, RTM_DELROUTE, RTM_F_CLONED, RTM_F_OFFLOAD, RTM_F_OFFLOAD_FAILED,
    RTM_F_TRAP, RTM_GETROUTE, RTM_NEWROUTE, RTNH_F_DEAD, RTNH_F_LINKDOWN, RTNH_F_OFFLOAD,
    RTNH_F_ONLINK, RTNH_F_TRAP,
};
use super::{AddressFamily, RT_TABLE_MAIN, RouteProtocol, RouteScope, RouteType, Routing};
use crate::attr::{AttrKind, Bytes, DecodeError, Ip, Ne32, U8};
use crate::message::{Message, RtMsg, u32_at};
use crate::{Error, Result};

crate::attributes! {
    /// `enum rtattr_type_t` (`linux/rtnetlink.h`)
    pub(super) struct RouteAttrs {
        /// destination; absent for the default route
        dst: Ip = RTA_DST 1,
        /// source of the packets; the prefix length is in the header
        src: Ip = RTA_SRC 2,
        /// address of the next router
        gateway: Ip = RTA_GATEWAY 5,
        /// index of the link
        oif: Ne32 = RTA_OIF 4,
        /// the metric
        priority: Ne32 = RTA_PRIORITY 6,
        /// the source address of packets that this machine sends
        prefsrc: Ip = RTA_PREFSRC 7,
        /// `struct rta_cacheinfo`
        cacheinfo: Bytes = RTA_CACHEINFO 12,
        /// the table; the kernel sends it even if it fits the header
        table: Ne32 = RTA_TABLE 15,
        /// `struct rtvia`: the next router, of another family; since 5.2
        via: Bytes = RTA_VIA 18,
        /// `ICMPV6_ROUTER_PREF_*`
        pref: U8 = RTA_PREF 20,
    }
}

/// `offsetof(struct rta_cacheinfo, rta_expires)`
pub(super) const RTA_EXPIRES: usize = 8;

/// `IP6_RT_PRIO_USER` of `linux/ipv6_route.h`: the metric of IPv6 routes that are added without one.
const IP6_RT_PRIO_USER: u32 = 1024;

/// One route. Attributes without a field here clear [`Route::plain`]: for example, a multipath route has neither gateway nor
/// link, and is not plain.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "ip-route")]
pub struct Route {
    /// Destination; the default route has length 0. The host bits are zero.
    pub dst: IpNet,
    /// `RTA_GATEWAY`.
    pub gateway: Option<IpAddr>,
    /// `RTA_OIF`: the link's index.
    pub oif: Option<u32>,
    /// `RTA_TABLE`: 254 is "main", 255 "local".
    pub table: u32,
    /// `rtm_type`: the action for a packet.
    pub kind: RouteType,
    /// `rtm_scope`: IPv4 only, the kernel reports `universe` for IPv6.
    pub scope: RouteScope,
    /// `rtm_protocol`: its creator. The constructors set [`RouteProtocol::Boot`], as `ip route add` does.
    pub protocol: RouteProtocol,
    /// `RTA_PRIORITY`, the metric. `None` is 1024 for IPv6 and 0 for IPv4, see [`Route::metric`].
    pub priority: Option<u32>,
    /// `RTA_PREFSRC`, `src ADDRESS`: the source address of packets that this machine sends; it must be an address of the
    /// machine.
    pub prefsrc: Option<IpAddr>,
    /// `RTNH_F_ONLINK`, `onlink`: the kernel treats the gateway as reachable on the link, whatever its address.
    pub onlink: bool,
    /// `RTA_SRC`, `from NETWORK`: the route applies to packets with a source in this network (IPv6). Read only.
    pub from: Option<IpNet>,
    /// `RTA_VIA`, `via inet6 ADDRESS`: the next router, of the other family. Read only.
    pub via: Option<IpAddr>,
    /// The route has properties without a field here: next hops, metrics, encapsulation, TOS, expiry and others. Read only.
    pub more: bool,
    /// The route has nothing that changes its effect besides the fields before `prefsrc`: no source, next hops, metrics,
    /// encapsulation or expiry, and its link exists. Ignored by [`Routing::add_route`] and [`Routing::del_route`].
    pub plain: bool,
}

impl Route {
    /// `DESTINATION via GATEWAY dev LINK`: a unicast route in the main table.
    #[must_use]
    pub fn unicast(dst: IpNet, gateway: Option<IpAddr>, oif: Option<u32>) -> Self {
        // A destination on the link has a narrower scope than one behind a gateway, and IPv4 requires it in the request
        // (`ip route` does the same).
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
            protocol: RouteProtocol::Boot,
            priority: None,
            prefsrc: None,
            onlink: false,
            from: None,
            via: None,
            more: false,
            plain: true,
        }
    }

    /// `local default dev LINK table TABLE`, for IPv4 with `scope host`: a lookup in the table delivers every packet
    /// to this machine.
    #[must_use]
    pub fn local_default(family: AddressFamily, oif: u32, table: u32) -> Self {
        let (dst, scope) = match family {
            AddressFamily::V4 => (Ipv4Net::default().into(), RouteScope::Host),
            AddressFamily::V6 => (Ipv6Net::default().into(), RouteScope::Universe),
        };
        Self {
            table,
            kind: RouteType::Local,
            scope,
            ..Self::unicast(dst, None, Some(oif))
        }
    }

    /// Sets `proto PROTOCOL`, so that its writer recognizes the route later.
    #[must_use]
    pub fn by(self, protocol: RouteProtocol) -> Self {
        Self { protocol, ..self }
    }

    /// Whether both have the same effect on the same packets, regardless of protocol and metric.
    #[must_use]
    pub fn same_effect(&self, other: &Self) -> bool {
        let key = |r: &Self| {
            let source = (r.prefsrc, r.onlink);
            (r.dst, r.gateway, r.oif, r.table, r.kind, source, r.plain)
        };
        key(self) == key(other)
    }

    /// `RTA_PRIORITY` with the kernel's default: of several routes to a destination, the kernel uses that with the lowest
    /// metric.
    #[must_use]
    pub fn metric(&self) -> u32 {
        self.priority.unwrap_or(match self.family() {
            AddressFamily::V4 => 0,
            AddressFamily::V6 => IP6_RT_PRIO_USER,
        })
    }

    /// `via ADDRESS`; `via inet6 ADDRESS` or `via inet ADDRESS` if the router is of the other family. `None` without a router.
    #[must_use]
    pub fn router(&self) -> Option<String> {
        let other = self.via.map(|via| match via {
            IpAddr::V4(via) => format!("via inet {via}"),
            IpAddr::V6(via) => format!("via inet6 {via}"),
        });
        self.gateway
            .map(|gateway| format!("via {gateway}"))
            .or(other)
    }

    /// The family of the destination.
    #[must_use]
    pub fn family(&self) -> AddressFamily {
        AddressFamily::of_address(self.dst.addr())
    }
}

impl fmt::Display for Route {
    /// Close to `ip route show`, with the link by index.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind != RouteType::Unicast {
            write!(f, "{} ", self.kind)?;
        }
        write!(f, "{}", self.dst)?;
        if let Some(from) = self.from {
            write!(f, " from {from}")?;
        }
        if let Some(router) = self.router() {
            write!(f, " {router}")?;
        }
        if let Some(oif) = self.oif {
            write!(f, " dev #{oif}")?;
        }
        if let Some(source) = self.prefsrc {
            write!(f, " src {source}")?;
        }
        if self.onlink {
            f.write_str(" onlink")?;
        }
        if let Some(metric) = self.priority {
            write!(f, " metric {metric}")?;
        }
        write!(f, " table {} proto {}", self.table, u8::from(self.protocol))
    }
}

impl Routing {
    /// `ip route show table TABLE` and `ip -6 route show table TABLE`: IPv4 first. Empty if there is no such table.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Exhausted`] if routes kept changing.
    pub fn routes(&self, table: u32) -> Result<Vec<Route>> {
        let of_table = |header: &mut RtMsg, attrs: &mut RouteAttrs| set_table(header, attrs, table);
        let mut routes = self.dump_routes(of_table, &format!("the routes of table {table}"))?;
        routes.retain(|r| r.table == table);
        Ok(routes)
    }

    /// `ip route show table all` and `ip -6 route show table all`: IPv4 first.
    ///
    /// # Errors
    /// As [`Routing::routes`].
    pub fn all_routes(&self) -> Result<Vec<Route>> {
        self.dump_routes(|_, _| {}, "the routes of all tables")
    }

    /// `ip route show table all proto PROTOCOL` and the same with `ip -6`: IPv4 first.
    ///
    /// # Errors
    /// As [`Routing::routes`].
    pub fn routes_by(&self, protocol: RouteProtocol) -> Result<Vec<Route>> {
        let by = |header: &mut RtMsg, _: &mut RouteAttrs| header.protocol = protocol.into();
        let mut routes = self.dump_routes(by, &format!("the routes of protocol {protocol}"))?;
        routes.retain(|r| r.protocol == protocol);
        Ok(routes)
    }

    fn dump_routes(
        &self,
        select: impl Fn(&mut RtMsg, &mut RouteAttrs),
        object: &str,
    ) -> Result<Vec<Route>> {
        let dump = |family: u8| {
            let mut header = RtMsg {
                family,
                ..RtMsg::default()
            };
            let mut attrs = RouteAttrs::default();
            select(&mut header, &mut attrs);
            self.list(RTM_GETROUTE, (header, attrs), object, read)
        };
        // AF_UNSPEC lists all families, IPv4 before IPv6.
        match dump(0) {
            // Before Linux 5.7 (ae677bbb4441) a family without the table ends the dump of all families.
            Err(e) if e.is_not_found() => {}
            found => return found,
        }
        let mut routes = Vec::new();
        for family in [AddressFamily::V4, AddressFamily::V6] {
            match dump(family.number()) {
                // If the kernel is built without the family, it lists all other families.
                Ok(found) => {
                    routes.extend(found.into_iter().filter(|r: &Route| r.family() == family))
                }
                // The kernel creates a table with its first route; without IPv6 there are no IPv6 tables.
                Err(e) if e.is_not_found() => {}
                Err(e) if family == AddressFamily::V6 && e.errno() == Some(libc::EAFNOSUPPORT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(routes)
    }

    /// `ip route add`. False if the table has a route to the same destination with the same metric, even if that route has
    /// another effect: compare with [`Route::same_effect`].
    ///
    /// # Errors
    /// `ENETUNREACH` if the gateway is not on a link; `ENETDOWN` if the link is down; `EINVAL`; `EPERM` without
    /// `CAP_NET_ADMIN`. Refused: the gateway is of another family than the destination (`RTA_VIA`, since 5.2, is not
    /// supported).
    pub fn add_route(&self, route: &Route) -> Result<bool> {
        let object = format!("route {route}");
        check_gateway("add", route, &object)?;
        self.add(RTM_NEWROUTE, build(route), &object)
    }

    /// `ip route replace`: adds the route, or replaces the route to the same destination with the same metric in that table.
    /// The replacement is atomic: every packet finds the old or the new route.
    ///
    /// # Errors
    /// As [`Routing::add_route`].
    pub fn replace_route(&self, route: &Route) -> Result<()> {
        let object = format!("route {route}");
        check_gateway("replace", route, &object)?;
        self.change((RTM_NEWROUTE, IN_PLACE), build(route), "replace", &object)
    }

    /// `ip route delete`: deletes the first route that matches all fields that are set. False if there is none.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn del_route(&self, route: &Route) -> Result<bool> {
        let object = format!("route {route}");
        check_gateway("delete", route, &object)?;
        self.delete(RTM_DELROUTE, build(route), &object)
    }
}

/// Sets the table in the header, or in `RTA_TABLE` if it is above 255 and does not fit the header.
fn set_table(header: &mut RtMsg, attrs: &mut RouteAttrs, table: u32) {
    match u8::try_from(table) {
        Ok(small) => header.table = small,
        Err(_) => attrs.table = Some(table),
    }
}

/// Refuses a gateway of another family than the destination, for which the kernel uses `RTA_VIA`: `RTA_GATEWAY` is an address
/// of the route's family (`fib_gw_from_attr()`, net/ipv4/fib_semantics.c).
fn check_gateway(operation: &str, route: &Route, object: &str) -> Result<()> {
    match route.gateway.map(AddressFamily::of_address) {
        Some(gateway) if gateway != route.family() => {
            let family = route.family();
            let reason = format!(
                "{gateway} gateways of {family} routes are not supported; give an {family} gateway"
            );
            Err(Error::refused(operation, object, reason))
        }
        _ => Ok(()),
    }
}

pub(super) fn build(route: &Route) -> (RtMsg, RouteAttrs) {
    let mut header = RtMsg {
        family: route.family().number(),
        dst_len: route.dst.prefix_len(),
        kind: route.kind.into(),
        scope: route.scope.into(),
        protocol: route.protocol.into(),
        flags: if route.onlink { RTNH_F_ONLINK } else { 0 },
        ..RtMsg::default()
    };
    let mut attrs = RouteAttrs {
        dst: (route.dst.prefix_len() > 0).then(|| route.dst.network()),
        gateway: route.gateway,
        oif: route.oif,
        priority: route.priority,
        prefsrc: route.prefsrc,
        ..RouteAttrs::default()
    };
    set_table(&mut header, &mut attrs, route.table);
    (header, attrs)
}

/// Flags for hardware offload of a route and its next hop: they do not change its effect.
const OFFLOADED: u32 =
    RTM_F_OFFLOAD | RTM_F_TRAP | RTM_F_OFFLOAD_FAILED | RTNH_F_OFFLOAD | RTNH_F_TRAP;

/// Flags for the state of the link.
const OF_LINK: u32 = RTNH_F_DEAD | RTNH_F_LINKDOWN;

/// `struct rtvia`: the family in host order, and the address.
fn router(bytes: &[u8]) -> Option<IpAddr> {
    let (_, address) = bytes.split_at_checked(2)?;
    Ip::decode(address).ok()
}

/// `None`: not an entry of an IPv4 or IPv6 table.
pub(super) fn read(message: &Message<RtMsg>) -> Result<Option<Route>, DecodeError> {
    let header = &message.header;
    let any: IpAddr = match AddressFamily::of(header.family) {
        // A cached copy of a route is not an entry of the table.
        _ if header.flags & RTM_F_CLONED != 0 => return Ok(None),
        Some(AddressFamily::V4) => Ipv4Addr::UNSPECIFIED.into(),
        Some(AddressFamily::V6) => Ipv6Addr::UNSPECIFIED.into(),
        None => return Ok(None),
    };
    let attrs: RouteAttrs = message.decode()?;
    let Ok(dst) = IpNet::new(attrs.dst.unwrap_or(any), header.dst_len) else {
        return Ok(None);
    };
    // The kernel sends these attributes with every IPv6 route.
    let expires = attrs.cacheinfo.map(|info| u32_at(&info, RTA_EXPIRES));
    let is_usual = expires.unwrap_or(Some(0)) == Some(0)
        && attrs.pref.unwrap_or(ICMPV6_ROUTER_PREF_MEDIUM) == ICMPV6_ROUTER_PREF_MEDIUM;
    let more = header.tos != 0
        || header.flags & !(OFFLOADED | OF_LINK | RTNH_F_ONLINK) != 0
        || !is_usual
        || !attrs.unknown.is_empty();
    let from = match header.src_len {
        0 => None,
        length => IpNet::new(attrs.src.unwrap_or(any), length).ok(),
    };
    Ok(Some(Route {
        dst,
        gateway: attrs.gateway,
        oif: attrs.oif,
        table: attrs.table.unwrap_or(u32::from(header.table)),
        kind: header.kind.into(),
        scope: header.scope.into(),
        protocol: header.protocol.into(),
        priority: attrs.priority,
        prefsrc: attrs.prefsrc,
        onlink: header.flags & RTNH_F_ONLINK != 0,
        from,
        via: attrs.via.as_deref().and_then(router),
        more,
        plain: header.src_len == 0
            && header.flags & !OFFLOADED == 0
            && !more
            && attrs.prefsrc.is_none()
            && attrs.via.is_none(),
    }))
}
