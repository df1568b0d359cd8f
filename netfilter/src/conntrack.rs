//! Connection tracking, read through `nf_conntrack_netlink`: the result of NAT for a connection.
//!
//! An entry has two tuples: the original direction as sent, and the expected reply. If NAT changed
//! the destination, the source of the expected reply is the new destination: `192.0.2.1:443` redirected to a local port reads
//! `dst=192.0.2.1 dport=443 … src=127.0.0.1 sport=15001`. An entry is in the table as soon as the first packet has
//! passed its last hook: for a packet sent by this machine, when `connect(2)` or `send(2)` returns.
//!
//! A connection that is refused immediately leaves no entry: the reset removes it. [`NewConnections`] reports such a
//! connection, too.
//!
//! This module only reads; it never changes or removes entries. It lists the entries of the network namespace of the thread
//! that opened [`Conntrack`].
//!
//! ```text
//! GET   ConntrackAttrs > TupleAttrs > AddressAttrs, ProtocolAttrs
//! ```

use crate::nft::raw::{IPPROTO_TCP, IPPROTO_UDP, NFPROTO_IPV4, NFPROTO_IPV6};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use weir_netlink::attr::{AttrSet, Be16, Be32, Ip, Nest, U8};
use weir_netlink::events::{Events, Notification};
use weir_netlink::message::Netfilter;
use weir_netlink::nfnetlink::{Reply, Socket, message_type};
use weir_netlink::{Error, NetlinkSocket, Result};

/// The subsystem id of connection tracking (`linux/netfilter/nfnetlink.h`).
pub const NFNL_SUBSYS_CTNETLINK: u16 = 1;
/// An entry, in answers and notifications (`linux/netfilter/nfnetlink_conntrack.h`).
pub const IPCTNL_MSG_CT_NEW: u16 = 0;
/// Notifications of new entries (`linux/netfilter/nfnetlink.h`).
pub const NFNLGRP_CONNTRACK_NEW: u32 = 1;
/// Reads one entry, or lists all (`linux/netfilter/nfnetlink_conntrack.h`).
pub const IPCTNL_MSG_CT_GET: u16 = 1;

const WHAT: &str = "connection tracking";

weir_netlink::attributes! {
    /// `enum ctattr_type` (`linux/netfilter/nfnetlink_conntrack.h`)
    pub struct ConntrackAttrs {
        /// original direction
        original: Nest<TupleAttrs> = CTA_TUPLE_ORIG 1,
        /// expected reply
        reply: Nest<TupleAttrs> = CTA_TUPLE_REPLY 2,
        /// connection mark; absent: 0
        mark: Be32 = CTA_MARK 8,
        /// zone of both directions; absent: 0
        zone: Be16 = CTA_ZONE 18,
    }

    /// `enum ctattr_tuple` (`linux/netfilter/nfnetlink_conntrack.h`)
    pub struct TupleAttrs {
        addresses: Nest<AddressAttrs> = CTA_TUPLE_IP 1,
        /// protocol and ports
        protocol: Nest<ProtocolAttrs> = CTA_TUPLE_PROTO 2,
        /// zone of this direction only
        zone: Be16 = CTA_TUPLE_ZONE 3,
    }

    /// `enum ctattr_ip` (`linux/netfilter/nfnetlink_conntrack.h`)
    pub struct AddressAttrs {
        /// IPv4 source
        v4_source: Ip = CTA_IP_V4_SRC 1,
        /// IPv4 destination
        v4_destination: Ip = CTA_IP_V4_DST 2,
        /// IPv6 source
        v6_source: Ip = CTA_IP_V6_SRC 3,
        /// IPv6 destination
        v6_destination: Ip = CTA_IP_V6_DST 4,
    }

    /// `enum ctattr_l4proto` (`linux/netfilter/nfnetlink_conntrack.h`); other attributes, such as those of ICMP, are not
    /// decoded
    pub struct ProtocolAttrs {
        /// `IPPROTO_*`
        number: U8 = CTA_PROTO_NUM 1,
        /// source port
        source: Be16 = CTA_PROTO_SRC_PORT 2,
        /// destination port
        destination: Be16 = CTA_PROTO_DST_PORT 3,
    }
}

/// C names and numbers of all attributes and messages, for a test that compares them with the system's headers.
#[must_use]
pub fn constants() -> Vec<(&'static str, i64)> {
    let messages = [
        ("NFNL_SUBSYS_CTNETLINK", i64::from(NFNL_SUBSYS_CTNETLINK)),
        ("IPCTNL_MSG_CT_NEW", i64::from(IPCTNL_MSG_CT_NEW)),
        ("NFNLGRP_CONNTRACK_NEW", i64::from(NFNLGRP_CONNTRACK_NEW)),
        ("IPCTNL_MSG_CT_GET", i64::from(IPCTNL_MSG_CT_GET)),
    ];
    let attributes = [
        ConntrackAttrs::CONSTANTS,
        TupleAttrs::CONSTANTS,
        AddressAttrs::CONSTANTS,
        ProtocolAttrs::CONSTANTS,
    ];
    let attributes = attributes.into_iter().flatten();
    let attributes = attributes.map(|(name, n)| (*name, i64::from(*n)));
    messages.into_iter().chain(attributes).collect()
}

/// A protocol whose tuples have ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// `IPPROTO_TCP`
    Tcp,
    /// `IPPROTO_UDP`
    Udp,
}

impl Transport {
    fn number(self) -> u8 {
        match self {
            Self::Tcp => IPPROTO_TCP,
            Self::Udp => IPPROTO_UDP,
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "nf_conntrack_tuple")]
pub struct Tuple {
    /// The transport protocol.
    pub transport: Transport,
    /// Source address and port.
    pub source: SocketAddr,
    /// Destination address and port.
    pub destination: SocketAddr,
}

impl Tuple {
    fn encode(&self) -> TupleAttrs {
        let (source, destination) = (Some(self.source.ip()), Some(self.destination.ip()));
        let addresses = match self.destination {
            SocketAddr::V4(_) => AddressAttrs {
                v4_source: source,
                v4_destination: destination,
                ..AddressAttrs::default()
            },
            SocketAddr::V6(_) => AddressAttrs {
                v6_source: source,
                v6_destination: destination,
                ..AddressAttrs::default()
            },
        };
        let protocol = ProtocolAttrs {
            number: Some(self.transport.number()),
            source: Some(self.source.port()),
            destination: Some(self.destination.port()),
            ..ProtocolAttrs::default()
        };
        TupleAttrs {
            addresses: Some(addresses),
            protocol: Some(protocol),
            ..TupleAttrs::default()
        }
    }

    /// `None` for a protocol that is not in [`Transport`], and for tuples without ports.
    fn decode(attrs: &TupleAttrs) -> Option<Self> {
        let (addresses, protocol) = (attrs.addresses.as_ref()?, attrs.protocol.as_ref()?);
        let transport = [Transport::Tcp, Transport::Udp]
            .into_iter()
            .find(|t| Some(t.number()) == protocol.number)?;
        let end = |v4: Option<IpAddr>, v6: Option<IpAddr>, port: Option<u16>| {
            Some(SocketAddr::new(v4.or(v6)?, port?))
        };
        Some(Self {
            transport,
            source: end(addresses.v4_source, addresses.v6_source, protocol.source)?,
            destination: end(
                addresses.v4_destination,
                addresses.v6_destination,
                protocol.destination,
            )?,
        })
    }

    fn family(&self) -> u8 {
        match self.destination {
            SocketAddr::V4(_) => NFPROTO_IPV4,
            SocketAddr::V6(_) => NFPROTO_IPV6,
        }
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.source, self.destination);
        write!(f, "{} from {from} to {to}", self.transport)
    }
}

/// A tracked connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "nf_conn")]
pub struct Entry {
    /// The original direction, as sent.
    pub original: Tuple,
    /// The expected reply.
    pub reply: Tuple,
    /// The zone of both directions.
    pub zone: u16,
    /// The connection mark that rules set; 0 without one.
    pub mark: u32,
}

impl Entry {
    /// The destination after NAT, which is the source of the expected reply; without NAT, the original destination.
    #[must_use]
    pub fn lands_at(&self) -> SocketAddr {
        self.reply.source
    }

    /// Whether NAT changed the destination.
    #[must_use]
    pub fn is_redirected(&self) -> bool {
        self.reply.source != self.original.destination
    }

    fn decode(reply: &Reply) -> Result<Option<Self>> {
        let attrs: ConntrackAttrs = reply
            .decode()
            .map_err(|e| Error::malformed("read", WHAT, e))?;
        let tuple = |attrs: &Option<TupleAttrs>| attrs.as_ref().and_then(Tuple::decode);
        let (original, reply) = (tuple(&attrs.original), tuple(&attrs.reply));
        Ok(original.zip(reply).map(|(original, reply)| Self {
            original,
            reply,
            zone: attrs.zone.unwrap_or_default(),
            mark: attrs.mark.unwrap_or_default(),
        }))
    }
}

/// The table of tracked connections of one network namespace.
#[derive(Debug)]
pub struct Conntrack<T: weir_netlink::Transport = NetlinkSocket>(Socket<T>);

impl Conntrack {
    /// Opens the table of the network namespace of the calling thread.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT` if the kernel has no nfnetlink; `EMFILE`.
    pub fn open() -> Result<Self> {
        Ok(Self(Socket::open()?))
    }
}

impl<T: weir_netlink::Transport> Conntrack<T> {
    /// Uses an open socket.
    pub fn with_socket(socket: Socket<T>) -> Self {
        Self(socket)
    }

    /// Finds the connection with this original tuple in a zone (0 unless a rule set another); `IPCTNL_MSG_CT_GET`.
    ///
    /// `None` if the table has no such entry, or its tuples have no ports.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] without `nf_conntrack_netlink`, [`Error::is_permission`] without `CAP_NET_ADMIN` over
    /// the network namespace.
    pub fn find(&mut self, original: &Tuple, zone: u16) -> Result<Option<Entry>> {
        let attrs = ConntrackAttrs {
            original: Some(original.encode()),
            zone: (zone != 0).then_some(zone),
            ..ConntrackAttrs::default()
        };
        let kind = message_type(NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET);
        match self.0.get(kind, original.family(), &attrs, WHAT) {
            Ok(reply) => Entry::decode(&reply),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(supported(e)),
        }
    }

    /// Calls `f` for every TCP and UDP connection of an address family (`conntrack -L -f ipv4` or `-f ipv6`).
    ///
    /// # Errors
    /// As [`Conntrack::find`]; `EINTR` if the list changed while it was read; the error of `f`.
    pub fn each(&mut self, ipv6: bool, mut f: impl FnMut(Entry) -> Result<()>) -> Result<()> {
        let family = if ipv6 { NFPROTO_IPV6 } else { NFPROTO_IPV4 };
        let kind = message_type(NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_GET);
        let attrs = ConntrackAttrs::default();
        let each = |reply: Reply| Entry::decode(&reply)?.map_or(Ok(()), &mut f);
        let listed = self.0.dump_each(kind, family, &attrs, WHAT, each);
        listed.map_err(supported)
    }
}

/// Notifications of new entries in the table of one network namespace (`conntrack -E -e NEW`). The kernel sends them
/// before the packet continues.
///
/// There are none if `net.netfilter.nf_conntrack_events` is 0.
#[derive(Debug)]
#[doc(alias = "NFNLGRP_CONNTRACK_NEW")]
pub struct NewConnections(Events<Netfilter>);

impl NewConnections {
    /// Subscribes in the network namespace of the calling thread. Connections made after this returns are reported.
    ///
    /// # Errors
    /// As [`Events::open`].
    pub fn open() -> Result<Self> {
        Events::open(&[NFNLGRP_CONNTRACK_NEW]).map(Self)
    }

    /// Returns the next TCP or UDP connection; `None` if there is none within `wait`, which may be zero.
    ///
    /// # Errors
    /// Notifications were lost (`ENOBUFS`); as [`Events::next`].
    pub fn next(&mut self, wait: Duration) -> Result<Option<Entry>> {
        loop {
            let reply = match self.0.next(wait)? {
                None => return Ok(None),
                Some(Notification::Overrun) => {
                    return Err(Error::kernel("follow", WHAT, libc::ENOBUFS));
                }
                Some(Notification::Event(reply)) => reply,
            };
            if reply.kind == message_type(NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_NEW)
                && let Some(entry) = Entry::decode(&reply)?
            {
                return Ok(Some(entry));
            }
        }
    }
}

/// Replaces the errnos of a missing subsystem: nfnetlink returns `EINVAL` if no module provides it.
fn supported(e: Error) -> Error {
    match e.errno() {
        Some(libc::EINVAL | libc::EOPNOTSUPP) => Error::unsupported(
            "read",
            WHAT,
            "CONFIG_NF_CT_NETLINK, or the module nf_conntrack_netlink loaded",
        ),
        _ => e,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuple_survives_its_attributes() {
        for (source, destination) in [
            ("10.0.0.1:40000", "192.0.2.1:443"),
            ("[fd00::1]:40000", "[2001:db8::1]:443"),
        ] {
            let tuple = Tuple {
                transport: Transport::Tcp,
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
            };
            assert_eq!(Tuple::decode(&tuple.encode()), Some(tuple));
        }
    }

    #[test]
    fn a_protocol_without_ports_has_no_tuple() {
        let tuple = Tuple {
            transport: Transport::Udp,
            source: "10.0.0.1:1".parse().unwrap(),
            destination: "10.0.0.2:2".parse().unwrap(),
        };
        let mut attrs = tuple.encode();
        attrs.protocol = Some(ProtocolAttrs {
            number: Some(1),
            ..ProtocolAttrs::default()
        });
        assert_eq!(Tuple::decode(&attrs), None);
    }
}
