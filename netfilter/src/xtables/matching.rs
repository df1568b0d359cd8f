//! Match extensions (`-m NAME`).

use super::ext::matches::*;
use super::ext::{Extension, Kind, Unknown};
use std::fmt;
use std::ops::RangeInclusive;

/// Declares the sum of the matches: each with its value, the module of its kind, and how its options are printed where
/// the value does not do it by itself.
macro_rules! registry {
    ($($(#[$m:meta])* $variant:ident($value:ty) = $kind:ident $(as $print:path)?,)*) => {
        /// One `-m NAME OPTIONS`. The rule continues when all its options hold.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Match {
            $($(#[$m])* $variant($value),)*
            /// A match that has no type of its own here.
            Extension(Extension),
            /// Any other match, as raw bytes.
            Unknown(Unknown),
        }

        /// The kind of each.
        pub(super) const KINDS: &[&Kind<Match>] = &[$(&Kind {
            name: $kind::KIND.name,
            forms: $kind::KIND.forms,
            encode: |value, form, cx| match value {
                Match::$variant(v) => ($kind::KIND.encode)(v, form, cx),
                _ => Ok(None),
            },
            decode: |form, bytes, cx| ($kind::KIND.decode)(form, bytes, cx).map(Match::$variant),
            options: $kind::KIND.options,
            parse: |given| ($kind::KIND.parse)(given).map(Match::$variant),
        },)*];

        impl Match {
            /// The name of the extension, as after `-m`.
            #[must_use]
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $kind::KIND.name,)*
                    Self::Extension(v) => v.name(),
                    Self::Unknown(v) => &v.name,
                }
            }
        }

        /// Every option begins with a space, as in iptables' own `save` functions.
        impl fmt::Display for Match {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(" -m ")?;
                match self {
                    $(Self::$variant(v) => {
                        f.write_str($kind::KIND.name)?;
                        registry!(@print v, f $(, $print)?)
                    })*
                    Self::Extension(v) => write!(f, "{}{v}", v.name()),
                    Self::Unknown(v) => v.fmt(f),
                }
            }
        }
    };
    (@print $value:ident, $f:ident) => { $value.fmt($f) };
    (@print $value:ident, $f:ident, $print:path) => { $print($value, $f) };
}

registry! {
    /// `-m tcp`: ports and flags of the TCP header.
    Tcp(tcp::Tcp) = tcp,
    /// `-m udp`: ports of the UDP header.
    Udp(udp::Udp) = udp,
    /// `-m icmp`: type and code; IPv4 only.
    Icmp(icmp::IcmpType) = icmp as icmp::fmt,
    /// `-m icmp6`: type and code; IPv6 only.
    Icmp6(icmp::IcmpType) = icmp6 as icmp6::fmt,
    /// `-m multiport`: a list of ports.
    Multiport(multiport::Multiport) = multiport,
    /// `-m owner`: the socket that sends the packet.
    Owner(owner::Owner) = owner,
    /// `-m mark`: the packet's mark.
    Mark(mark::Mark) = mark,
    /// `-m connmark`: the connection's mark.
    Connmark(mark::Mark) = connmark,
    /// `-m state`: the older match on the connection's state.
    State(state::State) = state,
    /// `-m conntrack`: the state of connection tracking.
    Conntrack(conntrack::Conntrack) = conntrack,
    /// `-m set`: membership in a set.
    Set(set::SetMatch) = set,
    /// `-m addrtype`: the kind of the packet's addresses.
    Addrtype(addrtype::Addrtype) = addrtype,
    /// `-m comment`: a remark.
    Comment(comment::Comment) = comment,
    /// `-m socket`: an open socket.
    Socket(socket::Socket) = socket,
    /// `-m iprange`: ranges of addresses.
    Iprange(iprange::Iprange) = iprange,
    /// `-m physdev`: ports of a bridge.
    Physdev(physdev::Physdev) = physdev,
    /// `-m pkttype`: how the packet was addressed on its link.
    Pkttype(pkttype::Pkttype) = pkttype,
    /// `-m limit`: a limited rate of packets.
    Limit(limit::Limit) = limit,
    /// `-m statistic`: a part of the packets.
    Statistic(statistic::Statistic) = statistic,
    /// `-m tos`: the type of service.
    Tos(tos::Tos) = tos,
    /// `-m dscp`: its DSCP.
    Dscp(dscp::Dscp) = dscp,
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
        first.fmt(f)?;
        if first == last {
            return Ok(());
        }
        write!(f, ":{last}")
    }
}
