//! Addresses of links: `ip address`.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressProtocol,
    AddressScope,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};

use super::{RTPROT_WEIR, Routing};
use crate::Result;

/// An address on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The link's index.
    pub index: u32,
    /// The address itself, with the length of its prefix: `10.0.0.5/24`. On a
    /// point-to-point link the local one (`IFA_LOCAL`).
    pub net: IpNet,
    /// `ifa_scope`.
    pub scope: AddressScope,
    /// `IFA_F_TENTATIVE`: IPv6, still being probed for a duplicate, and not yet
    /// usable.
    pub tentative: bool,
    /// `IFA_PROTO`: who added it; `None` when nobody said so, or the kernel does not keep it (before Linux 5.18).
    pub protocol: Option<u8>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on link number {}", self.net, self.index)
    }
}

impl Routing {
    /// `ip address show`: all addresses in the order of the kernel's dump, IPv4
    /// first, then IPv6, and each by link.
    ///
    /// # Errors
    ///
    /// [`crate::ErrorKind::Exhausted`] when addresses kept changing.
    pub fn addresses(&self) -> Result<Vec<Address>> {
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        Ok(self
            .dump(&request, "the addresses")?
            .into_iter()
            .filter_map(read)
            .collect())
    }

    /// `ip address add NET dev LINK proto 119`, for IPv6 with `nodad`: it is usable at
    /// once. False when the link has the address already, for IPv6 with whatever length.
    ///
    /// # Errors
    ///
    /// `ENODEV`; `EACCES` for IPv6 where `disable_ipv6` is set on the link.
    pub fn add_address(&self, index: u32, net: IpNet) -> Result<bool> {
        let mut message = build(index, net);
        if matches!(net, IpNet::V6(_)) {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        // Kernels before 5.18 ignore it.
        let owner = AddressAttribute::Protocol(AddressProtocol::Other(RTPROT_WEIR));
        message.attributes.push(owner);
        self.ensure(
            RouteNetlinkMessage::NewAddress(message),
            "add",
            &object(index, net),
        )
    }

    /// `ip address delete NET dev LINK`. False when it is not there.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn del_address(&self, index: u32, net: IpNet) -> Result<bool> {
        let request = RouteNetlinkMessage::DelAddress(build(index, net));
        self.remove(request, "delete", &object(index, net))
    }
}

fn object(index: u32, net: IpNet) -> String {
    format!("address {net} on link number {index}")
}

fn build(index: u32, net: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.prefix_len = net.prefix_len();
    message.header.family = match net {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    };
    // The kernel finds an IPv6 scope by itself. For IPv4 it takes what it is given,
    // and `ip` gives 127.0.0.0/8 the scope of the host.
    if matches!(net, IpNet::V4(_)) && net.addr().is_loopback() {
        message.header.scope = AddressScope::Host;
    }
    message.attributes.push(AddressAttribute::Local(net.addr()));
    message
        .attributes
        .push(AddressAttribute::Address(net.addr()));
    message
}

fn read(message: RouteNetlinkMessage) -> Option<Address> {
    let RouteNetlinkMessage::NewAddress(message) = message else {
        return None;
    };
    let mut local: Option<IpAddr> = None;
    let mut address: Option<IpAddr> = None;
    let mut protocol = None;
    let mut tentative = message.header.flags.contains(AddressHeaderFlags::Tentative);
    for attribute in message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(ip),
            AddressAttribute::Address(ip) => address = Some(ip),
            AddressAttribute::Flags(flags) => tentative = flags.contains(AddressFlags::Tentative),
            AddressAttribute::Protocol(by) => protocol = Some(u8::from(by)),
            _ => {}
        }
    }
    let net = IpNet::new(local.or(address)?, message.header.prefix_len).ok()?;
    Some(Address {
        index: message.header.index,
        net,
        scope: message.header.scope,
        tentative,
        protocol,
    })
}
