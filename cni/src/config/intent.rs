//! The configuration, understood.

mod parse;

pub(crate) use parse::loopback;

use super::InputError;
use super::size;
use super::values::{IdRange, InterfaceName, PortRange};
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

/// What is captured and what is left, before it is known which engine says so to the kernel.
///
/// Lists keep the order and the duplicates of the text: rules are evaluated in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Program IPv6 as well. IPv4 always is.
    pub enable_ipv6: bool,
    /// How inbound traffic reaches the proxy.
    pub mode: InboundMode,
    /// Port of the proxy's outbound listener.
    pub proxy_port: u16,
    /// Port of the proxy's inbound listener.
    pub inbound_capture_port: u16,
    /// Port of the proxy's tunnel listener.
    pub inbound_tunnel_port: u16,
    /// Users whose traffic is the proxy's own.
    pub proxy_uids: Vec<IdRange>,
    /// Groups whose traffic is the proxy's own.
    pub proxy_gids: Vec<IdRange>,
    /// Which inbound ports are captured.
    pub inbound: Inbound,
    /// Ports that are left when all inbound ports are captured.
    pub inbound_ports_exclude: Vec<PortRange>,
    /// Whose outbound traffic is captured.
    pub owner_groups: OwnerGroups,
    /// Destination ports that are captured whatever their address.
    pub outbound_ports_include: Vec<PortRange>,
    /// Destination ports that are left whatever their address.
    pub outbound_ports_exclude: Vec<PortRange>,
    /// Destination networks that are captured.
    pub outbound_include: OutboundRanges,
    /// Destination networks that are left.
    pub outbound_exclude: Ranges,
    /// Interfaces of virtual machines.
    pub virtual_interfaces: Vec<InterfaceName>,
    /// Interfaces that are left alone.
    pub exclude_interfaces: Vec<InterfaceName>,
    /// The IPv4 addresses that count as loopback.
    pub loopback_v4: Ipv4Net,
    /// Which DNS traffic goes to the proxy's DNS listener.
    pub dns: Dns,
    /// Drop packets that conntrack finds invalid.
    pub drop_invalid: bool,
    /// What was given and has no effect.
    pub warnings: Vec<String>,
}

/// How inbound traffic reaches the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundMode {
    /// The destination is rewritten to the proxy's inbound port.
    Redirect,
    /// The packet goes to the proxy's socket with its addresses unchanged.
    Tproxy(TproxyMark),
}

/// The marks of transparent proxying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TproxyMark {
    /// `inbound_tproxy_mark`
    pub mark: u32,
    /// `inbound_tproxy_route_table`; none when nothing inbound is captured and no route is needed.
    pub table: Option<u32>,
}

impl TproxyMark {
    /// Upstream's mark and table, which a pod cannot choose.
    #[must_use]
    pub(crate) fn usual(inbound: &Inbound) -> Self {
        Self {
            mark: 1337,
            table: (*inbound != Inbound::Off).then_some(133),
        }
    }
}

/// Which inbound ports are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// None: the list is empty text.
    Off,
    /// All but `inbound_ports_exclude`: `*`.
    All,
    /// These; a text of commas alone gives none of them, and its jump is made all the same.
    Ports(Vec<PortRange>),
}

/// Whose outbound traffic is captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerGroups {
    /// Every group's but these.
    AllBut(Vec<IdRange>),
    /// Only these groups'; no group means that nothing is captured.
    Only(Vec<IdRange>),
}

/// Networks by family, host bits as they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// IPv4
    pub v4: Vec<Ipv4Net>,
    /// IPv6; an IPv4-mapped address belongs here.
    pub v6: Vec<Ipv6Net>,
}

/// Destination networks that are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboundRanges {
    /// `*`: all, in both families.
    All,
    /// These.
    Ranges(Ranges),
}

/// Which DNS traffic goes to the proxy's DNS listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dns {
    /// None.
    Off,
    /// All of it.
    All,
    /// What is sent to these servers; there is at least one.
    Servers {
        /// IPv4
        v4: Vec<Ipv4Addr>,
        /// IPv6
        v6: Vec<Ipv6Addr>,
    },
}

/// Ports of the proxy's listeners, which a pod cannot choose.
pub(crate) mod listeners {
    /// `proxy_port`
    pub(crate) const OUTBOUND: u16 = 15001;
    /// `inbound_capture_port`
    pub(crate) const INBOUND: u16 = 15006;
    /// `inbound_tunnel_port`
    pub(crate) const TUNNEL: u16 = 15008;
}

impl Intent {
    /// Itself, if its lists are not too long.
    ///
    /// # Errors
    /// They would make more than [`MAX_RULES`](crate::config::MAX_RULES) rules: which list, and how many elements it has.
    pub(crate) fn checked(self) -> Result<Self, InputError> {
        size::check(&self)?;
        Ok(self)
    }

    /// An included network's own address is a loopback address, in either family. `0.0.0.0/0` has
    /// none.
    #[must_use]
    pub fn includes_loopback(&self) -> bool {
        match &self.outbound_include {
            OutboundRanges::All => false,
            OutboundRanges::Ranges(r) => {
                r.v4.iter().any(|net| net.addr().is_loopback())
                    || r.v6.iter().any(|net| net.addr().is_loopback())
            }
        }
    }

    /// The marks, when inbound traffic is proxied transparently.
    #[must_use]
    pub fn tproxy(&self) -> Option<TproxyMark> {
        match self.mode {
            InboundMode::Redirect => None,
            InboundMode::Tproxy(mark) => Some(mark),
        }
    }
}

#[cfg(test)]
mod tests;
