//! Selectors of a policy rule besides the mark, and its conditions for routes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

use super::AddressFamily;
use super::number::{
    FIB_RULE_IIF_DETACHED, FIB_RULE_INVERT, FIB_RULE_OIF_DETACHED, FIB_RULE_UNRESOLVED,
};
use super::rule::RuleAttrs;
use crate::attr::{AttrKind, DecodeError, Ne16, Ne32, Unknown};
use crate::message::FibRuleHdr;

/// `FRA_SPORT_MASK` and `FRA_DPORT_MASK` (Linux 6.15): the bits of one port that are compared. The kernel sends them with
/// every port.
const FRA_SPORT_MASK: u16 = 28;
const FRA_DPORT_MASK: u16 = 29;
/// The mask that compares all bits.
const ALL_BITS: [u8; 2] = [0xff; 2];

/// The selectors of a policy rule besides the mark, its conditions for routes and its flags (`linux/fib_rules.h`). Only `to`
/// and `iif` are written; a rule with others is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleSelectors {
    /// `from`: `FRA_SRC` with `src_len`.
    pub from: Option<IpNet>,
    /// `to`: `FRA_DST` with `dst_len`.
    pub to: Option<IpNet>,
    /// `tos`: the DSCP field; 0 selects all packets.
    pub tos: u8,
    /// `iif`: `FRA_IIFNAME`, the name of the link that received the packet.
    pub iif: Option<String>,
    /// `oif`: `FRA_OIFNAME`, the name of the outgoing link, for packets of a socket that is bound to it.
    pub oif: Option<String>,
    /// `l3mdev`: `FRA_L3MDEV`, the table is that of the VRF (Linux 4.8).
    pub l3mdev: bool,
    /// `uidrange`: `FRA_UID_RANGE`, the user ids of the socket's owner (Linux 4.10).
    pub uids: Option<RangeInclusive<u32>>,
    /// `ipproto`: `FRA_IP_PROTO` (Linux 4.17).
    pub ip_proto: Option<u8>,
    /// `sport`: `FRA_SPORT_RANGE` (Linux 4.17).
    pub sports: Option<RangeInclusive<u16>>,
    /// `dport`: `FRA_DPORT_RANGE` (Linux 4.17).
    pub dports: Option<RangeInclusive<u16>>,
    /// `tun_id`: `FRA_TUN_ID` (Linux 4.3).
    pub tunnel: Option<u64>,
    /// `suppress_prefixlength`: a route with a prefix of at most this length is ignored.
    pub suppress_prefixlength: Option<u32>,
    /// `suppress_ifgroup`: a route over a link of this group is ignored.
    pub suppress_ifgroup: Option<u32>,
    /// `realms FROM/TO`: `FRA_FLOW`, the source realm in the upper 16 bits, the destination realm in the lower.
    pub realms: Option<u32>,
    /// `FIB_RULE_*` except `FIB_RULE_INVERT`.
    pub flags: u32,
    /// Numbers of attributes that this version does not know.
    pub others: Vec<u16>,
}

impl RuleSelectors {
    /// Reads the selectors from the kernel's message.
    pub(super) fn read(
        header: &FibRuleHdr,
        attrs: &RuleAttrs,
        family: AddressFamily,
    ) -> Result<Self, DecodeError> {
        // The kernel sends u32::MAX, which means no limit, with every rule.
        let limit = |n: Option<u32>| n.filter(|n| *n != u32::MAX);
        Ok(Self {
            from: net(attrs.src, header.src_len, family)?,
            to: net(attrs.dst, header.dst_len, family)?,
            tos: header.tos,
            iif: attrs.iif.clone(),
            oif: attrs.oif.clone(),
            l3mdev: attrs.l3mdev.unwrap_or(0) != 0,
            uids: attrs.uids.as_deref().map(range::<Ne32>).transpose()?,
            ip_proto: attrs.ip_proto,
            sports: attrs.sports.as_deref().map(range::<Ne16>).transpose()?,
            dports: attrs.dports.as_deref().map(range::<Ne16>).transpose()?,
            tunnel: attrs.tunnel,
            suppress_prefixlength: limit(attrs.suppress_prefixlen),
            suppress_ifgroup: limit(attrs.suppress_ifgroup),
            realms: attrs.realms,
            flags: header.flags & !FIB_RULE_INVERT,
            others: attrs.unknown.iter().filter_map(more).collect(),
        })
    }

    /// Writes the words before the mark, each followed by a space.
    pub(super) fn before_mark(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, net) in [("from", self.from), ("to", self.to)] {
            if let Some(net) = net {
                write!(f, "{word} {} ", Short(net))?;
            }
        }
        match self.tos {
            0 => Ok(()),
            tos => write!(f, "tos {tos:#04x} "),
        }
    }

    /// Writes the words between mark and action, each followed by a space.
    pub(super) fn after_mark(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, name, detached) in [
            ("iif", &self.iif, FIB_RULE_IIF_DETACHED),
            ("oif", &self.oif, FIB_RULE_OIF_DETACHED),
        ] {
            if let Some(name) = name {
                write!(f, "{word} {name} ")?;
                if self.flags & detached != 0 {
                    f.write_str("[detached] ")?;
                }
            }
        }
        if let Some(uids) = &self.uids {
            write!(f, "uidrange {}-{} ", uids.start(), uids.end())?;
        }
        if let Some(number) = self.ip_proto {
            match protocol(number) {
                Some(name) => write!(f, "ipproto {name} ")?,
                None => write!(f, "ipproto ipproto-{number} ")?,
            }
        }
        for (word, ports) in [("sport", &self.sports), ("dport", &self.dports)] {
            match ports {
                Some(p) if p.start() == p.end() => write!(f, "{word} {} ", p.start())?,
                Some(p) => write!(f, "{word} {}-{} ", p.start(), p.end())?,
                None => {}
            }
        }
        if let Some(id) = self.tunnel {
            write!(f, "tun_id {id} ")?;
        }
        for number in &self.others {
            write!(f, "[attribute {number}] ")?;
        }
        Ok(())
    }

    /// Writes the words after the table, each preceded by a space.
    pub(super) fn after_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(length) = self.suppress_prefixlength {
            write!(f, " suppress_prefixlength {length}")?;
        }
        match self.suppress_ifgroup {
            Some(0) => f.write_str(" suppress_ifgroup default")?,
            Some(group) => write!(f, " suppress_ifgroup {group}")?,
            None => {}
        }
        match self.realms.map(|realms| (realms >> 16, realms & 0xffff)) {
            Some((0, to)) => write!(f, " realms {to}"),
            Some((from, to)) => write!(f, " realms {from}/{to}"),
            None => Ok(()),
        }
    }

    /// Whether no rule has the priority that `goto` names.
    pub fn is_unresolved(&self) -> bool {
        self.flags & FIB_RULE_UNRESOLVED != 0
    }
}

/// The number of an unknown attribute; `None` for a port mask that compares all bits, which has no effect.
fn more((number, payload): &Unknown) -> Option<u16> {
    let is_port_mask = matches!(*number, FRA_SPORT_MASK | FRA_DPORT_MASK);
    (!is_port_mask || payload[..] != ALL_BITS).then_some(*number)
}

/// A network, printed without the prefix length if it is a single address.
struct Short(IpNet);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.prefix_len() == self.0.max_prefix_len() {
            true => write!(f, "{}", self.0.addr()),
            false => write!(f, "{}", self.0),
        }
    }
}

fn net(
    address: Option<IpAddr>,
    length: u8,
    family: AddressFamily,
) -> Result<Option<IpNet>, DecodeError> {
    let any: IpAddr = match family {
        AddressFamily::V4 => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    if address.is_none() && length == 0 {
        return Ok(None);
    }
    let net = IpNet::new(address.unwrap_or(any), length);
    net.map(Some)
        .map_err(|_| DecodeError::new(format!("a prefix of {length} bits for a {family} rule")))
}

/// `struct fib_rule_uid_range`, `struct fib_rule_port_range`: two numbers in host order.
fn range<K: AttrKind>(bytes: &[u8]) -> Result<RangeInclusive<K::Value>, DecodeError> {
    let (start, end) = bytes.split_at(bytes.len() / 2);
    Ok(K::decode(start)?..=K::decode(end)?)
}

/// The names of `ip` (from `/etc/protocols`), for protocols that are common in policy rules.
fn protocol(number: u8) -> Option<&'static str> {
    // IANA, Protocol Numbers.
    match number {
        1 => Some("icmp"),
        6 => Some("tcp"),
        17 => Some("udp"),
        33 => Some("dccp"),
        47 => Some("gre"),
        58 => Some("ipv6-icmp"),
        132 => Some("sctp"),
        _ => None,
    }
}
