//! The configuration as typed values.

mod parse;

pub use parse::loopback;

use super::InputError;
use super::size;
use super::values::{IdRange, InterfaceName, PortRange};
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The captured and excluded traffic, independent of the engine.
///
/// Lists keep the order and the duplicates of the text: rules are evaluated in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Program IPv6 as well. IPv4 is always programmed.
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
    /// Ports that are not captured if all inbound ports are.
    pub inbound_ports_exclude: Vec<PortRange>,
    /// The groups whose outbound traffic is captured.
    pub owner_groups: OwnerGroups,
    /// Destination ports that are captured for every address.
    pub outbound_ports_include: Vec<PortRange>,
    /// Destination ports that are not captured for any address.
    pub outbound_ports_exclude: Vec<PortRange>,
    /// Destination networks that are captured.
    pub outbound_include: OutboundRanges,
    /// Destination networks that are not captured.
    pub outbound_exclude: Ranges,
    /// Interfaces that connect virtual machines.
    pub virtual_interfaces: Vec<InterfaceName>,
    /// Interfaces whose traffic is not captured.
    pub exclude_interfaces: Vec<InterfaceName>,
    /// The IPv4 addresses that count as loopback.
    pub loopback_v4: Ipv4Net,
    /// Which DNS traffic goes to the proxy's DNS listener.
    pub dns: Dns,
    /// Drop packets that conntrack finds invalid.
    pub drop_invalid: bool,
    /// Warnings: values that were given and have no effect.
    pub warnings: Vec<String>,
}

/// How inbound traffic reaches the proxy. Exhaustive: a compiler that ignores a mode would leave traffic uncaptured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundMode {
    /// The destination is rewritten to the proxy's inbound port.
    Redirect,
    /// The packet is delivered to the proxy's socket with its addresses unchanged.
    Tproxy(TproxyMark),
}

/// The marks of transparent proxying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TproxyMark {
    /// `inbound_tproxy_mark`
    pub mark: u32,
    /// `inbound_tproxy_route_table`; `None` if no inbound traffic is captured, so no route is needed.
    pub table: Option<u32>,
}

impl TproxyMark {
    /// Upstream's mark and table, which a pod cannot configure.
    #[must_use]
    pub fn usual(inbound: &Inbound) -> Self {
        Self {
            mark: 1337,
            table: (*inbound != Inbound::Off).then_some(133),
        }
    }
}

/// Which inbound ports are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound {
    /// No ports; from empty text.
    Off,
    /// All ports except `inbound_ports_exclude`; from `*`.
    All,
    /// These ports. Text that consists only of commas gives an empty list, which still generates the jump.
    Ports(Vec<PortRange>),
}

/// The groups whose outbound traffic is captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerGroups {
    /// Every group except these.
    AllBut(Vec<IdRange>),
    /// Only these groups; an empty list captures nothing.
    Only(Vec<IdRange>),
}

/// Networks by family, with host bits as given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// IPv4
    pub v4: Vec<Ipv4Net>,
    /// IPv6, including IPv4-mapped addresses.
    pub v6: Vec<Ipv6Net>,
}

/// Destination networks that are captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboundRanges {
    /// `*`: all networks, in both families.
    All,
    /// These networks.
    Ranges(Ranges),
}

/// Which DNS traffic goes to the proxy's DNS listener. Exhaustive like [`InboundMode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dns {
    /// No DNS traffic.
    Off,
    /// DNS traffic to any server.
    All,
    /// DNS traffic to these servers, of which there is at least one.
    Servers {
        /// IPv4
        v4: Vec<Ipv4Addr>,
        /// IPv6
        v6: Vec<Ipv6Addr>,
    },
}

impl Default for Intent {
    /// Upstream's ports, which a pod cannot configure, for a proxy of no user; captures no destination and no inbound port,
    /// in IPv4.
    fn default() -> Self {
        Self {
            enable_ipv6: false,
            mode: InboundMode::Redirect,
            proxy_port: 15001,
            inbound_capture_port: 15006,
            inbound_tunnel_port: 15008,
            proxy_uids: Vec::new(),
            proxy_gids: Vec::new(),
            inbound: Inbound::Off,
            inbound_ports_exclude: Vec::new(),
            owner_groups: OwnerGroups::AllBut(Vec::new()),
            outbound_ports_include: Vec::new(),
            outbound_ports_exclude: Vec::new(),
            outbound_include: OutboundRanges::Ranges(Ranges::default()),
            outbound_exclude: Ranges::default(),
            virtual_interfaces: Vec::new(),
            exclude_interfaces: Vec::new(),
            loopback_v4: Ipv4Net::from(Ipv4Addr::LOCALHOST),
            dns: Dns::Off,
            drop_invalid: false,
            warnings: Vec::new(),
        }
    }
}

impl Intent {
    /// Returns the intent if its lists are not too long.
    ///
    /// # Errors
    /// The lists would make more than [`MAX_RULES`](crate::config::MAX_RULES) rules; the error names the one with most.
    pub fn checked(self) -> Result<Self, InputError> {
        size::check(&self)?;
        Ok(self)
    }

    /// True if the address of an included network is a loopback address, in either family; that of `0.0.0.0/0` is not.
    pub(crate) fn includes_loopback(&self) -> bool {
        match &self.outbound_include {
            OutboundRanges::All => false,
            OutboundRanges::Ranges(r) => {
                r.v4.iter().any(|net| net.addr().is_loopback())
                    || r.v6.iter().any(|net| net.addr().is_loopback())
            }
        }
    }

    /// Returns the mark and table if inbound traffic is proxied transparently.
    #[must_use]
    pub fn tproxy(&self) -> Option<TproxyMark> {
        match self.mode {
            InboundMode::Redirect => None,
            InboundMode::Tproxy(mark) => Some(mark),
        }
    }
}
