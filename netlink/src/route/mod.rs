//! Links, addresses, routes, policy rules, neighbours, qdiscs, filters and namespace ids: a synchronous interface to
//! `rtnetlink(7)`.
//!
//! [`Routing`] is one socket. Each kernel object has its own file with its attributes, its value, the conversions
//! between both, and the requests.
//!
//! - **Deadlines.** Every exchange is bounded in time, see [`Patience`].
//! - **Complete dumps.** A dump that was interrupted (`NLM_F_DUMP_INTR`) or lost a datagram (`ENOBUFS`,
//!   `NLMSG_OVERRUN`) is repeated, for at most [`CONTENTION`](crate::contention::CONTENTION); a message that cannot
//!   be decoded is an error. A link is looked up by name or index without a dump.
//! - **Lost answers.** If the answer to a change is lost, the error reports that it is unknown whether the change is in force
//!   ([`Error::in_force`](crate::Error::in_force)).
//! - **Extended acks.** The socket requests them; an error carries their text and the path of the attribute.

mod address;
mod chosen;
mod event;
mod exchange;
mod kind;
mod link;
mod neigh;
mod nsid;
mod number;
mod routes;
mod rule;
mod selectors;
mod tc;
mod xdp;

use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use address::Address;
pub use event::{Changed, RouteEvent};
pub use kind::{Bridge, Dummy, Geneve, LinkKind, Netkit, Veth, Vxlan};
pub use link::{InNetns, LOOPBACK_IFINDEX, Link, LinkAttrs, LinkInfoAttrs};
pub use neigh::Neighbour;
pub use number::{
    NUD_PERMANENT, RT_TABLE_DEFAULT, RT_TABLE_LOCAL, RT_TABLE_MAIN, RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV6_ROUTE,
    RTNLGRP_IPV6_RULE, RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_NSID, RTNLGRP_TC, RouteProtocol,
    RouteScope, RouteType, RuleAction,
};
pub use routes::Route;
pub use rule::PolicyRule;
pub use selectors::RuleSelectors;
pub use tc::{BpfFilter, Filter, FilterKind, Matchall, Qdisc, TcHandle};
pub use xdp::{XdpAttrs, XdpMode};

use crate::Result;
use crate::attr::AttrSet;
use crate::message;
use crate::netns::Netns;
use crate::transport::{NetlinkSocket, Patience};

/// A netlink socket of `NETLINK_ROUTE`.
type Socket = crate::socket::Socket<NetlinkSocket, message::Rtnetlink>;

/// IPv4 or IPv6: the address families with routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(alias = "AF_INET")]
pub enum AddressFamily {
    /// `AF_INET`.
    #[doc(alias = "AF_INET")]
    V4,
    /// `AF_INET6`.
    #[doc(alias = "AF_INET6")]
    V6,
}

impl AddressFamily {
    /// The family of a header.
    fn of(number: u8) -> Option<Self> {
        match number {
            number::AF_INET => Some(Self::V4),
            number::AF_INET6 => Some(Self::V6),
            _ => None,
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::V4 => number::AF_INET,
            Self::V6 => number::AF_INET6,
        }
    }

    /// The family of an address.
    #[must_use]
    pub fn of_address(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

impl fmt::Display for AddressFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// A routing socket (`socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE)`) in the namespace of the thread that opened it.
///
/// It remains bound to that namespace, whichever thread uses it.
#[derive(Debug)]
pub struct Routing {
    /// Locked for one exchange at a time.
    socket: Mutex<Socket>,
}

impl Routing {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// `EMFILE` if the process has no free descriptor; `ENOPROTOOPT` if the kernel is older than 4.20.
    pub fn open() -> Result<Self> {
        Ok(Self {
            socket: Mutex::new(Socket::open()?),
        })
    }

    /// A new socket in the same namespace: messages lost on this one do not affect it.
    ///
    /// # Errors
    /// As [`Transport::reopen`](crate::Transport::reopen).
    pub fn reopen(&self) -> Result<Self> {
        let socket = self.socket().twin()?;
        Ok(Self {
            socket: Mutex::new(socket),
        })
    }

    /// Sets other deadlines for every exchange.
    #[must_use]
    pub fn patience(self, patience: Patience) -> Self {
        let socket = self.socket.into_inner();
        let socket = socket.unwrap_or_else(PoisonError::into_inner);
        Self {
            socket: Mutex::new(socket.patience(patience)),
        }
    }

    /// Locks the socket. A panic in an earlier exchange may leave unread answers, which the next exchange skips.
    fn socket(&self) -> MutexGuard<'_, Socket> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a socket in another namespace, on a thread that enters it.
    ///
    /// # Errors
    /// As [`Routing::open`] and [`crate::netns::Netns::run`].
    pub fn open_in(netns: &Netns) -> Result<Self> {
        netns.run(Self::open)?
    }
}

/// C expressions and their values in this module. A test compares each with the system's headers.
#[must_use]
pub fn constants() -> Vec<(&'static str, i64)> {
    let attributes = [
        link::LinkAttrs::CONSTANTS,
        link::LinkInfoAttrs::CONSTANTS,
        address::AddressAttrs::CONSTANTS,
        routes::RouteAttrs::CONSTANTS,
        rule::RuleAttrs::CONSTANTS,
        neigh::NeighbourAttrs::CONSTANTS,
        nsid::NsidAttrs::CONSTANTS,
        tc::TcAttrs::CONSTANTS,
        BpfFilter::CONSTANTS,
        Matchall::CONSTANTS,
        Veth::CONSTANTS,
        Geneve::CONSTANTS,
        Vxlan::CONSTANTS,
        Netkit::CONSTANTS,
        Bridge::CONSTANTS,
        xdp::XdpAttrs::CONSTANTS,
    ];
    let attributes = attributes.into_iter().flatten();
    let numbers = [
        number::CONSTANTS,
        RouteProtocol::CONSTANTS,
        RouteScope::CONSTANTS,
        RouteType::CONSTANTS,
        RuleAction::CONSTANTS,
    ];
    let numbers = numbers.into_iter().flatten().copied();
    numbers
        .chain(attributes.map(|(name, n)| (*name, i64::from(*n))))
        .chain(message::constants())
        .chain([(
            "offsetof(struct rta_cacheinfo, rta_expires)",
            routes::RTA_EXPIRES as i64,
        )])
        .chain([("IFLA_XDP", i64::from(xdp::IFLA_XDP))])
        .collect()
}

#[cfg(test)]
mod tests;
