//! An intent as one IP family sees it.

use crate::config::{Dns, Intent, OutboundRanges};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What depends on the family.
pub(super) struct Family {
    /// Whether this is IPv6.
    pub(super) is_v6: bool,
    /// The addresses that count as loopback.
    pub(super) loopback: IpNet,
    /// The source of the proxy's connections to the application.
    pub(super) passthrough: IpNet,
    /// The unspecified address.
    pub(super) any: IpAddr,
    /// Captured destinations; `None`: all are captured.
    pub(super) include: Option<Vec<IpNet>>,
    /// Destinations that are not captured.
    pub(super) exclude: Vec<IpNet>,
    /// The DNS packets of this family that go to the proxy.
    pub(super) dns: FamilyDns,
}

/// Which DNS packets of a family go to the proxy.
pub(super) enum FamilyDns {
    Off,
    All,
    /// Packets to these servers, of which there is at least one.
    Servers(Vec<IpNet>),
}

impl Family {
    /// IPv4, and IPv6 when it is programmed.
    pub(super) fn all(intent: &Intent) -> Vec<Self> {
        let mut families = vec![Self::v4(intent)];
        if intent.enable_ipv6 {
            families.push(Self::v6(intent));
        }
        families
    }

    fn v4(intent: &Intent) -> Self {
        let nets = |nets: &[Ipv4Net]| nets.iter().copied().map(IpNet::from).collect();
        Self {
            is_v6: false,
            loopback: intent.loopback_v4.into(),
            passthrough: IpNet::from(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 6))),
            any: Ipv4Addr::UNSPECIFIED.into(),
            include: match &intent.outbound_include {
                OutboundRanges::All => None,
                OutboundRanges::Ranges(ranges) => Some(nets(&ranges.v4)),
            },
            exclude: nets(&intent.outbound_exclude.v4),
            dns: match &intent.dns {
                Dns::Off => FamilyDns::Off,
                Dns::All => FamilyDns::All,
                Dns::Servers { v4, .. } => servers(v4.iter().map(|a| IpAddr::from(*a))),
            },
        }
    }

    pub(super) fn v6(intent: &Intent) -> Self {
        let nets = |nets: &[Ipv6Net]| nets.iter().copied().map(IpNet::from).collect();
        Self {
            is_v6: true,
            loopback: IpNet::from(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            passthrough: IpNet::from(IpAddr::V6(Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6))),
            any: Ipv6Addr::UNSPECIFIED.into(),
            include: match &intent.outbound_include {
                OutboundRanges::All => None,
                OutboundRanges::Ranges(ranges) => Some(nets(&ranges.v6)),
            },
            exclude: nets(&intent.outbound_exclude.v6),
            dns: match &intent.dns {
                Dns::Off => FamilyDns::Off,
                Dns::All => FamilyDns::All,
                Dns::Servers { v6, .. } => servers(v6.iter().map(|a| IpAddr::from(*a))),
            },
        }
    }
}

fn servers(addrs: impl Iterator<Item = IpAddr>) -> FamilyDns {
    let servers: Vec<_> = addrs.map(IpNet::from).collect();
    if servers.is_empty() {
        FamilyDns::Off
    } else {
        FamilyDns::Servers(servers)
    }
}

impl FamilyDns {
    /// True if any DNS packets of this family go to the proxy.
    pub(super) fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }
}
