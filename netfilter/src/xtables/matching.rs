//! Match extensions (`-m NAME`).

use super::ext::matches::*;
use super::ext::registry;
use std::fmt;
use std::ops::RangeInclusive;

registry! {
    /// One `-m NAME OPTIONS`. The evaluation of the rule continues if all options hold.
    Match: " -m "
    verdicts {}
    chains {}
    /// `-m tcp`: ports and flags of the TCP header.
    Tcp(tcp::Tcp) = tcp::KIND;
    /// `-m udp`: ports of the UDP header.
    Udp(udp::Udp) = udp::KIND;
    /// `-m multiport`: a list of ports.
    Multiport(multiport::Multiport) = multiport::KIND;
    /// `-m owner`: the socket that sends the packet.
    Owner(owner::Owner) = owner::KIND;
    /// `-m mark`: the packet's mark.
    Mark(mark::Mark) = mark::KIND;
    /// `-m connmark`: the connection's mark.
    Connmark(mark::Mark) = connmark::KIND;
    /// `-m state`: the older match, which has only the state of the connection and no other condition of `conntrack`.
    State(conntrack::Conntrack) = conntrack::STATE, conntrack::state;
    /// `-m conntrack`: state, addresses and other properties of the tracked connection.
    Conntrack(conntrack::Conntrack) = conntrack::KIND;
    /// `-m set`: membership in a set.
    Set(set::SetMatch) = set::KIND;
    /// `-m comment`: a comment, which matches every packet.
    Comment(comment::Comment) = comment::KIND;
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
