//! Match extensions (`-m NAME`).

use super::ext::matches::icmp::IcmpType;
use super::ext::matches::{
    addrtype::Addrtype, comment::Comment, conntrack::Conntrack, dscp::Dscp, icmp, icmp6,
    iprange::Iprange, limit::Limit, mark::Mark, multiport::Multiport, owner::Owner,
    physdev::Physdev, pkttype::Pkttype, set::SetMatch, socket::Socket, state::State,
    statistic::Statistic, tcp::Tcp, tos::Tos, udp::Udp,
};
use super::ext::{Extension, Unknown};
use std::fmt;
use std::ops::RangeInclusive;

/// One `-m NAME OPTIONS`. The rule continues when all its options hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Match {
    /// `-m tcp`: ports and flags of the TCP header.
    Tcp(Tcp),
    /// `-m udp`: ports of the UDP header.
    Udp(Udp),
    /// `-m icmp`: type and code; IPv4 only.
    Icmp(IcmpType),
    /// `-m icmp6`: type and code; IPv6 only.
    Icmp6(IcmpType),
    /// `-m multiport`: a list of ports.
    Multiport(Multiport),
    /// `-m owner`: the socket that sends the packet.
    Owner(Owner),
    /// `-m mark`: the packet's mark.
    Mark(Mark),
    /// `-m connmark`: the connection's mark.
    Connmark(Mark),
    /// `-m conntrack`: the state of connection tracking.
    Conntrack(Conntrack),
    /// `-m state`: the older match on the connection's state.
    State(State),
    /// `-m set`: membership in a set.
    Set(SetMatch),
    /// `-m addrtype`: the kind of the packet's addresses.
    Addrtype(Addrtype),
    /// `-m comment`: a remark.
    Comment(Comment),
    /// `-m socket`: an open socket.
    Socket(Socket),
    /// `-m iprange`: ranges of addresses.
    Iprange(Iprange),
    /// `-m physdev`: ports of a bridge.
    Physdev(Physdev),
    /// `-m pkttype`: how the packet was addressed on its link.
    Pkttype(Pkttype),
    /// `-m limit`: a limited rate of packets.
    Limit(Limit),
    /// `-m statistic`: a part of the packets.
    Statistic(Statistic),
    /// `-m tos`: the type of service.
    Tos(Tos),
    /// `-m dscp`: its DSCP.
    Dscp(Dscp),
    /// A match that has no type of its own here.
    Extension(Extension),
    /// Any other match, as raw bytes.
    Unknown(Unknown),
}

/// From the first to the last port, inclusive: `P` or `P:Q`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortRange(pub RangeInclusive<u16>);

impl From<u16> for PortRange {
    fn from(port: u16) -> Self {
        Self(port..=port)
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        if first == last {
            write!(f, "{first}")
        } else {
            write!(f, "{first}:{last}")
        }
    }
}

/// Every option begins with a space, as in iptables' own `save` functions.
impl Match {
    /// The name of the extension, as after `-m`.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Udp(_) => "udp",
            Self::Icmp(_) => "icmp",
            Self::Icmp6(_) => "icmp6",
            Self::Multiport(_) => "multiport",
            Self::Owner(_) => "owner",
            Self::Mark(_) => "mark",
            Self::Connmark(_) => "connmark",
            Self::Conntrack(_) => "conntrack",
            Self::State(_) => "state",
            Self::Set(_) => "set",
            Self::Addrtype(_) => "addrtype",
            Self::Comment(_) => "comment",
            Self::Socket(_) => "socket",
            Self::Iprange(_) => "iprange",
            Self::Physdev(_) => "physdev",
            Self::Pkttype(_) => "pkttype",
            Self::Limit(_) => "limit",
            Self::Statistic(_) => "statistic",
            Self::Tos(_) => "tos",
            Self::Dscp(_) => "dscp",
            Self::Extension(v) => v.name(),
            Self::Unknown(v) => &v.name,
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |f: &mut fmt::Formatter<'_>, name: &str| write!(f, " -m {name}");
        match self {
            Self::Tcp(v) => write!(f, " -m tcp{v}"),
            Self::Udp(v) => write!(f, " -m udp{v}"),
            Self::Icmp(v) => name(f, "icmp").and_then(|()| icmp::fmt(v, f)),
            Self::Icmp6(v) => name(f, "icmp6").and_then(|()| icmp6::fmt(v, f)),
            Self::Multiport(v) => write!(f, " -m multiport{v}"),
            Self::Owner(v) => write!(f, " -m owner{v}"),
            Self::Mark(v) => write!(f, " -m mark{v}"),
            Self::Connmark(v) => write!(f, " -m connmark{v}"),
            Self::Conntrack(v) => write!(f, " -m conntrack{v}"),
            Self::State(v) => write!(f, " -m state{v}"),
            Self::Set(v) => write!(f, " -m set{v}"),
            Self::Addrtype(v) => write!(f, " -m addrtype{v}"),
            Self::Comment(v) => write!(f, " -m comment{v}"),
            Self::Socket(v) => write!(f, " -m socket{v}"),
            Self::Iprange(v) => write!(f, " -m iprange{v}"),
            Self::Physdev(v) => write!(f, " -m physdev{v}"),
            Self::Pkttype(v) => write!(f, " -m pkttype{v}"),
            Self::Limit(v) => write!(f, " -m limit{v}"),
            Self::Statistic(v) => write!(f, " -m statistic{v}"),
            Self::Tos(v) => write!(f, " -m tos{v}"),
            Self::Dscp(v) => write!(f, " -m dscp{v}"),
            Self::Extension(v) => write!(f, " -m {}{v}", v.name()),
            Self::Unknown(v) => write!(f, " -m {v}"),
        }
    }
}
