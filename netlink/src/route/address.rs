//! Addresses of links: `ip address`.

use std::fmt;

use ipnet::IpNet;

use super::number::{IFA_F_NODAD, IFA_F_TENTATIVE, RTM_DELADDR, RTM_GETADDR, RTM_NEWADDR};
use super::{AddressFamily, RouteScope, Routing};
use crate::Result;
use crate::attr::{DecodeError, Ip, Ne32, U8};
use crate::message::{IfAddrMsg, Message};

crate::attributes! {
    /// `IFA_*` (`linux/if_addr.h`)
    pub(super) struct AddressAttrs {
        /// address of the link itself; on a point-to-point link that of the peer
        address: Ip = IFA_ADDRESS 1,
        /// address of the link itself
        local: Ip = IFA_LOCAL 2,
        /// all bits of `IFA_F_*`; the header has only the low eight
        flags: Ne32 = IFA_FLAGS 8,
        /// the writer that added it; since 5.18
        protocol: U8 = IFA_PROTO 11,
    }
}

/// An address on a link.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "ip-address")]
pub struct Address {
    /// The link's index.
    pub index: u32,
    /// The address itself, with the length of its prefix: `10.0.0.5/24`. On a point-to-point link it is the local address
    /// (`IFA_LOCAL`).
    pub net: IpNet,
    /// `ifa_scope`.
    pub scope: RouteScope,
    /// `IFA_F_TENTATIVE`: IPv6, duplicate address detection is still running, and the address is not yet usable.
    pub tentative: bool,
    /// `IFA_PROTO`: the writer that added it; `None` if it was not set, or the kernel does not store it (before Linux
    /// 5.18).
    pub protocol: Option<u8>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on link number {}", self.net, self.index)
    }
}

impl Routing {
    /// `ip address show`: all addresses in the order of the kernel's dump: IPv4, then IPv6, each by link.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Exhausted`] if addresses kept changing.
    pub fn addresses(&self) -> Result<Vec<Address>> {
        let all = (IfAddrMsg::default(), AddressAttrs::default());
        self.list(RTM_GETADDR, all, "the addresses", read)
    }

    /// `ip address add NET dev LINK`, for IPv6 with `nodad`, so that it is usable immediately. False if the link already has
    /// the address, for IPv6 with any prefix length.
    ///
    /// # Errors
    /// `ENODEV` if there is no such link; `EACCES` for IPv6 if `disable_ipv6` is set on the link; `EPERM` without
    /// `CAP_NET_ADMIN`.
    pub fn add_address(&self, index: u32, net: IpNet) -> Result<bool> {
        self.add_address_by(index, net, None)
    }

    /// As [`Routing::add_address`] with `proto PROTOCOL`, so that its writer recognizes the address later. Kernels before
    /// 5.18 do not store the protocol.
    ///
    /// # Errors
    /// As [`Routing::add_address`].
    pub fn add_address_by(&self, index: u32, net: IpNet, protocol: Option<u8>) -> Result<bool> {
        let (mut header, mut attrs) = build(index, net);
        if matches!(net, IpNet::V6(_)) {
            header.flags = IFA_F_NODAD;
        }
        attrs.protocol = protocol;
        self.add(RTM_NEWADDR, (header, attrs), &object(index, net))
    }

    /// `ip address delete NET dev LINK`. False if the link does not have the address.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_ADMIN`.
    pub fn del_address(&self, index: u32, net: IpNet) -> Result<bool> {
        self.delete(RTM_DELADDR, build(index, net), &object(index, net))
    }
}

fn object(index: u32, net: IpNet) -> String {
    format!("address {net} on link number {index}")
}

pub(super) fn build(index: u32, net: IpNet) -> (IfAddrMsg, AddressAttrs) {
    // The kernel derives the scope of an IPv6 address. For IPv4 it takes the given one, and `ip` gives 127.0.0.0/8
    // the scope "host".
    let scope = match net {
        IpNet::V4(net) if net.addr().is_loopback() => RouteScope::Host,
        _ => RouteScope::Universe,
    };
    let header = IfAddrMsg {
        family: AddressFamily::of_address(net.addr()).number(),
        prefix_len: net.prefix_len(),
        flags: 0,
        scope: scope.into(),
        index,
    };
    let attrs = AddressAttrs {
        local: Some(net.addr()),
        address: Some(net.addr()),
        ..AddressAttrs::default()
    };
    (header, attrs)
}

/// `None`: the address is neither IPv4 nor IPv6.
pub(super) fn read(message: &Message<IfAddrMsg>) -> Result<Option<Address>, DecodeError> {
    let header = &message.header;
    if AddressFamily::of(header.family).is_none() {
        return Ok(None);
    }
    let attrs: AddressAttrs = message.decode()?;
    let flags = attrs.flags.unwrap_or(u32::from(header.flags));
    let net = attrs.local.or(attrs.address);
    let net = net.and_then(|ip| IpNet::new(ip, header.prefix_len).ok());
    Ok(net.map(|net| Address {
        index: header.index,
        net,
        scope: header.scope.into(),
        tentative: flags & IFA_F_TENTATIVE != 0,
        protocol: attrs.protocol,
    }))
}
