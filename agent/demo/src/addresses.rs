//! Numbers and addresses of a lab's networks.

use super::lab::Place;
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_netlink::route::AddressFamily;
use weir_netlink::{Error, Result};

pub(super) fn network(place: Place) -> u8 {
    match place {
        Place::Pod => 1,
        Place::Client => 2,
        Place::Server => 3,
    }
}

/// A host in `10.244.N.0/24` or `fd00:10:244:N::/64`. The IPv6 number has the digits
/// of the IPv4 one: `10` is `::10`.
pub(super) fn host(number: u8, family: AddressFamily, at: u8) -> IpAddr {
    match family {
        AddressFamily::V4 => Ipv4Addr::new(10, 244, number, at).into(),
        AddressFamily::V6 => {
            let as_written = u16::from(at / 10 * 16 + at % 10);
            Ipv6Addr::new(0xfd00, 0x10, 0x244, u16::from(number), 0, 0, 0, as_written).into()
        }
    }
}

/// An address that represents a service: in `10.96.0.0/16` and `fd00:10:96::/112`.
pub(super) fn service(family: AddressFamily) -> IpAddr {
    match family {
        AddressFamily::V4 => Ipv4Addr::new(10, 96, 0, 10).into(),
        AddressFamily::V6 => Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0x10).into(),
    }
}

pub(super) fn on_link(number: u8, family: AddressFamily, at: u8) -> Result<IpNet> {
    let length = match family {
        AddressFamily::V4 => 24,
        AddressFamily::V6 => 64,
    };
    let address = host(number, family, at);
    IpNet::new(address, length)
        .map_err(|e| Error::malformed("build", format!("{address}/{length}"), e.to_string()))
}

pub(super) fn everything(family: AddressFamily) -> IpNet {
    match family {
        AddressFamily::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
        AddressFamily::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}
