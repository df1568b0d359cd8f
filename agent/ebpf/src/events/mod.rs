//! Events about packets, which programs write to a ring buffer that one process reads.
//!
//! All namespaces of a node share one ring and one map `weir_watch` beside the directories of pins, so that a reader polls a single
//! descriptor, independent of the number of pods. Programs write no event until a reader selects reasons in that map, and at most a
//! few events per namespace and second; they count the events that they drop. A kernel without ring buffers (before 5.8)
//! has the counters only.

mod maps;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use maps::{Maps, forget, is_left, is_supported, wanted};
pub use reader::Reader;

use crate::inpod::layout::*;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Redirected to ztunnel.
    Captured,
    /// Passed without ztunnel, as desired.
    Passed,
    /// Dropped.
    Dropped,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Captured, Self::Passed, Self::Dropped];

    /// Returns the name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Captured => "captured",
            Self::Passed => "passed",
            Self::Dropped => "dropped",
        }
    }
}

/// The reasons: number, verdict, name in metrics, and description.
const REASONS: [(i32, Verdict, &str, &str); 14] = {
    use Verdict::{Captured, Dropped, Passed};
    [
        (
            Count::Outbound as i32,
            Captured,
            "outbound",
            "outbound connection",
        ),
        (
            Count::Inbound as i32,
            Captured,
            "inbound",
            "inbound connection",
        ),
        (
            Count::NoOutboundListener as i32,
            Dropped,
            "no_outbound_listener",
            "no listener on port 15001",
        ),
        (
            Count::NoInboundListener as i32,
            Dropped,
            "no_inbound_listener",
            "no listener on port 15006 or 15008",
        ),
        (
            Count::Fragment as i32,
            Dropped,
            "fragment",
            "it is a fragment of TCP or of a DNS query",
        ),
        (
            Count::Malformed as i32,
            Dropped,
            "malformed",
            "its headers cannot be read",
        ),
        (
            Count::OutOfMemory as i32,
            Dropped,
            "out_of_memory",
            "no memory or room in a map",
        ),
        (
            Count::Unassigned as i32,
            Dropped,
            "listener_refused",
            "the kernel refused the listener",
        ),
        (
            Count::NoProxy as i32,
            Dropped,
            "no_proxy",
            "no proxy of the node is ready",
        ),
        (
            Count::Unlisted as i32,
            Dropped,
            "unlisted_address",
            "the pod's address is none of those that it is enrolled with",
        ),
        (
            Pass::Probe as i32,
            Passed,
            "probe",
            "one end is the address of probes",
        ),
        (
            Pass::Forwarded as i32,
            Passed,
            "forwarded",
            "no socket of the pod sent it",
        ),
        (
            Pass::Node as i32,
            Passed,
            "node",
            "one end is the node itself",
        ),
        (
            Pass::Excluded as i32,
            Passed,
            "excluded",
            "the peer or the port is excluded",
        ),
    ]
};

/// Why a packet was captured, passed or dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason(usize);

impl Reason {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..REASONS.len()).map(Self)
    }

    fn row(self) -> (i32, Verdict, &'static str, &'static str) {
        // A `Reason` is always an index into the table.
        let first = (0, Verdict::Dropped, "unknown", "unknown");
        REASONS.get(self.0).copied().unwrap_or(first)
    }

    /// Returns the verdict on the packet.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        self.row().1
    }

    /// Returns the name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().2
    }
}

/// Writes the description.
impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().3)
    }
}

/// One end of a packet, with the port if known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct End {
    /// The address.
    pub address: IpAddr,
    /// The port of TCP or UDP.
    pub port: Option<u16>,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.address, self.port) {
            (address, Some(port)) => std::net::SocketAddr::new(address, port).fmt(f),
            (address, None) => address.fmt(f),
        }
    }
}

/// An event. A record has these fields in host order: the inode of the namespace whose maps the program uses (8 bytes), the
/// number of the reason, the index of the interface, the letter of the program, the length of the frame (4 each), 60 bytes of
/// the packet from its IP header, and the number of valid bytes among these (4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The inode of the network namespace: the pod's, or the node's for programs at the node.
    pub netns: u64,
    /// The reason, which implies the verdict.
    pub reason: Reason,
    /// The index of the interface, in the namespace where the program runs.
    pub interface: u32,
    /// True if the program handles packets that leave a pod, false for packets to it.
    pub leaves: bool,
    /// Length of the frame in bytes.
    pub length: u32,
    /// Source and destination; `None`: the IP header could not be read.
    pub ends: Option<[End; 2]>,
}

impl Event {
    /// Decodes a record. `None`: it was not written by this version of weir.
    fn of(record: &[u8]) -> Option<Self> {
        let place = |at: i16| usize::try_from(at).ok();
        let word = |at: i16| {
            let bytes = record.get(place(at)?..)?.first_chunk()?;
            Some(u32::from_ne_bytes(*bytes))
        };
        if record.len() != place(EVENT_SIZE)? {
            return None;
        }
        let netns = u64::from_ne_bytes(*record.get(place(EVENT_NETNS)?..)?.first_chunk()?);
        let number = word(EVENT_REASON)?.cast_signed();
        let reason = REASONS.iter().position(|row| row.0 == number).map(Reason)?;
        let there = usize::try_from(word(EVENT_THERE)?).ok()?;
        let packet = record.get(place(EVENT_PACKET)?..place(EVENT_THERE)?)?;
        let role = char::from_u32(word(EVENT_ROLE)?)?;
        Some(Self {
            netns,
            reason,
            interface: word(EVENT_IFINDEX)?,
            leaves: !matches!(role, 'i' | 't'),
            length: word(EVENT_LENGTH)?,
            ends: ends(packet.get(..there)?),
        })
    }

    /// Returns the pod's end.
    #[must_use]
    pub fn own(&self) -> Option<End> {
        let [source, destination] = self.ends?;
        let inbound = self.reason.name() == "no_inbound_listener";
        Some(if self.leaves && !inbound {
            source
        } else {
            destination
        })
    }
}

/// Writes the event without its namespace.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ends {
            Some([source, destination]) => write!(f, "{source} to {destination}")?,
            None => write!(f, "a frame of {} bytes", self.length)?,
        }
        write!(f, " was {}: {}", self.reason.verdict().name(), self.reason)
    }
}

/// Returns addresses, and ports if a TCP or UDP header follows the IP header.
fn ends(packet: &[u8]) -> Option<[End; 2]> {
    let (source, destination, protocol, at): (IpAddr, IpAddr, u8, usize) =
        match packet.first()? >> 4 {
            4 => {
                let address = |at: usize| {
                    let octets: &[u8; 4] = packet.get(at..)?.first_chunk()?;
                    Some(Ipv4Addr::from(*octets).into())
                };
                let offset = u16::from_be_bytes(*packet.get(6..)?.first_chunk()?) & 0x1fff;
                let protocol = if offset == 0 { *packet.get(9)? } else { 0 };
                let length = usize::from(packet.first()? & 0x0f) * 4;
                (address(12)?, address(16)?, protocol, length)
            }
            6 => {
                let address = |at: usize| {
                    let octets: &[u8; 16] = packet.get(at..)?.first_chunk()?;
                    Some(Ipv6Addr::from(*octets).into())
                };
                (address(8)?, address(24)?, *packet.get(6)?, 40)
            }
            _ => return None,
        };
    let port = |at: usize| {
        let bytes = packet.get(at..)?.first_chunk()?;
        Some(u16::from_be_bytes(*bytes))
    };
    let has_ports = [IPPROTO_TCP, IPPROTO_UDP].contains(&i32::from(protocol));
    let end = |address, at| End {
        address,
        port: port(at).filter(|_| has_ports),
    };
    Some([end(source, at), end(destination, at + 2)])
}
