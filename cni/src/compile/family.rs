//! The part of an intent that depends on the IP family.

use crate::config::{Dns, IdRange, Intent, OutboundRanges, Ranges};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The source of the proxy's connections to the application over IPv6.
pub(crate) const PASSTHROUGH_V6: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);

/// The values of an intent for one IP family.
pub(super) struct Family {
    /// True for IPv6.
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

/// The DNS packets of a family that go to the proxy.
pub(super) enum FamilyDns {
    Off,
    All,
    /// Packets to these servers, of which there is at least one.
    Servers(Vec<IpNet>),
}

impl Family {
    /// IPv4, and IPv6 if it is enabled.
    pub(super) fn all(intent: &Intent) -> Vec<Self> {
        let mut families = vec![Self::of(intent, false)];
        if intent.enable_ipv6 {
            families.push(Self::of(intent, true));
        }
        families
    }

    pub(super) fn of(intent: &Intent, is_v6: bool) -> Self {
        let nets = |ranges: &Ranges| match is_v6 {
            false => ranges.v4.iter().copied().map(IpNet::from).collect(),
            true => ranges.v6.iter().copied().map(IpNet::from).collect(),
        };
        let (loopback, passthrough, any) = match is_v6 {
            false => (
                intent.loopback_v4.into(),
                IpAddr::from(Ipv4Addr::new(127, 0, 0, 6)),
                IpAddr::from(Ipv4Addr::UNSPECIFIED),
            ),
            true => (
                IpNet::from(IpAddr::from(Ipv6Addr::LOCALHOST)),
                IpAddr::from(PASSTHROUGH_V6),
                IpAddr::from(Ipv6Addr::UNSPECIFIED),
            ),
        };
        Self {
            is_v6,
            loopback,
            passthrough: passthrough.into(),
            any,
            include: match &intent.outbound_include {
                OutboundRanges::All => None,
                OutboundRanges::Ranges(ranges) => Some(nets(ranges)),
            },
            exclude: nets(&intent.outbound_exclude),
            dns: match &intent.dns {
                Dns::Off => FamilyDns::Off,
                Dns::All => FamilyDns::All,
                Dns::Servers { v4, .. } if !is_v6 => servers(v4),
                Dns::Servers { v6, .. } => servers(v6),
            },
        }
    }
}

fn servers<A: Copy + Into<IpAddr>>(addresses: &[A]) -> FamilyDns {
    let server = |address: &A| IpNet::from((*address).into());
    match addresses.is_empty() {
        true => FamilyDns::Off,
        false => FamilyDns::Servers(addresses.iter().map(server).collect()),
    }
}

/// A user or group of the proxy. Rules for users and groups differ only in one key: each rule that matches the
/// proxy's user has a counterpart that matches its group.
#[derive(Clone, Copy)]
pub(super) enum Owner<'a> {
    User(&'a IdRange),
    Group(&'a IdRange),
}

impl<'a> Owner<'a> {
    /// All users, then all groups.
    pub(super) fn all(intent: &'a Intent) -> impl Iterator<Item = Self> {
        let users = intent.proxy_uids.iter().map(Owner::User);
        users.chain(intent.proxy_gids.iter().map(Owner::Group))
    }
}

impl FamilyDns {
    /// True if any DNS packets of this family go to the proxy.
    pub(super) fn is_on(&self) -> bool {
        !matches!(self, Self::Off)
    }
}
