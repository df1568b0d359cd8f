//! Match extensions (`-m NAME`), in the revisions that iptables 1.8 writes.

use super::{Not, Protocol};
use std::fmt;
use std::ops::RangeInclusive;

/// One `-m NAME OPTIONS`. The rule goes on when all its options hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Match {
    /// `-m tcp` (revision 0): ports of the TCP header.
    Tcp(PortMatch),
    /// `-m udp` (revision 0): ports of the UDP header.
    Udp(PortMatch),
    /// `-m multiport --dports` (revision 1): at most 15 ports, a range counts as two.
    MultiportDports(Not, Vec<PortRange>),
    /// `-m owner` (revision 1): the socket that sends the packet. A packet without one does not match,
    /// and therefore matches the inverted form.
    Owner {
        /// `--uid-owner`
        uid: Option<(Not, RangeInclusive<u32>)>,
        /// `--gid-owner`
        gid: Option<(Not, RangeInclusive<u32>)>,
    },
    /// `-m mark --mark VALUE/MASK` (revision 1): the packet's mark.
    Mark {
        /// `!`
        not: Not,
        /// Compared with the masked mark.
        value: u32,
        /// Bits that are compared.
        mask: u32,
    },
    /// `-m connmark --mark VALUE/MASK` (revision 1): the connection's mark.
    Connmark {
        /// `!`
        not: Not,
        /// Compared with the masked mark.
        value: u32,
        /// Bits that are compared.
        mask: u32,
    },
    /// `-m conntrack --ctstate` (revision 3): any of these states.
    Ctstate(Not, Vec<ConntrackState>),
}

/// Options of `-m tcp` and `-m udp`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortMatch {
    /// `--sport`
    pub sport: Option<(Not, PortRange)>,
    /// `--dport`
    pub dport: Option<(Not, PortRange)>,
}

/// From the first to the last port, both included: `P` or `P:Q`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PortRange(pub RangeInclusive<u16>);

/// `--ctstate`, in the order in which `iptables-save` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConntrackState {
    /// `INVALID`: belongs to no connection that makes sense.
    Invalid,
    /// `NEW`: begins a connection.
    New,
    /// `RELATED`: begins a connection that another one announced.
    Related,
    /// `ESTABLISHED`: belongs to a connection that has seen both directions.
    Established,
    /// `UNTRACKED`: taken out by `-j CT --notrack`.
    Untracked,
}

impl Match {
    /// `-m tcp` or `-m udp` for that protocol; other protocols have no ports here.
    #[must_use]
    pub fn ports(protocol: Protocol, ports: PortMatch) -> Option<Self> {
        match protocol {
            Protocol::TCP => Some(Self::Tcp(ports)),
            Protocol::UDP => Some(Self::Udp(ports)),
            _ => None,
        }
    }
}

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

impl fmt::Display for ConntrackState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "INVALID",
            Self::New => "NEW",
            Self::Related => "RELATED",
            Self::Established => "ESTABLISHED",
            Self::Untracked => "UNTRACKED",
        })
    }
}

/// Every option begins with a blank, as in iptables' own `save` functions.
impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(ports) => write!(f, " -m tcp{ports}"),
            Self::Udp(ports) => write!(f, " -m udp{ports}"),
            Self::MultiportDports(not, ports) => {
                write!(f, " -m multiport{not} --dports ")?;
                comma_separated(f, ports)
            }
            Self::Owner { uid, gid } => {
                f.write_str(" -m owner")?;
                owner(f, "--uid-owner", uid.as_ref())?;
                owner(f, "--gid-owner", gid.as_ref())
            }
            Self::Mark { not, value, mask } => {
                write!(f, " -m mark{not} --mark ")?;
                masked(f, *value, *mask)
            }
            Self::Connmark { not, value, mask } => {
                write!(f, " -m connmark{not} --mark ")?;
                masked(f, *value, *mask)
            }
            Self::Ctstate(not, states) => {
                write!(f, " -m conntrack{not} --ctstate ")?;
                let mut states = states.clone();
                states.sort_unstable();
                states.dedup();
                comma_separated(f, &states)
            }
        }
    }
}

impl fmt::Display for PortMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((not, ports)) = &self.sport {
            write!(f, "{not} --sport {ports}")?;
        }
        if let Some((not, ports)) = &self.dport {
            write!(f, "{not} --dport {ports}")?;
        }
        Ok(())
    }
}

fn comma_separated(f: &mut fmt::Formatter<'_>, items: &[impl fmt::Display]) -> fmt::Result {
    for (n, item) in items.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        write!(f, "{comma}{item}")?;
    }
    Ok(())
}

fn owner(
    f: &mut fmt::Formatter<'_>,
    option: &str,
    ids: Option<&(Not, RangeInclusive<u32>)>,
) -> fmt::Result {
    let Some((not, ids)) = ids else { return Ok(()) };
    write!(f, "{not} {option} {}", ids.start())?;
    if ids.start() == ids.end() {
        Ok(())
    } else {
        write!(f, "-{}", ids.end())
    }
}

fn masked(f: &mut fmt::Formatter<'_>, value: u32, mask: u32) -> fmt::Result {
    write!(f, "{value:#x}")?;
    if mask == u32::MAX {
        Ok(())
    } else {
        write!(f, "/{mask:#x}")
    }
}
