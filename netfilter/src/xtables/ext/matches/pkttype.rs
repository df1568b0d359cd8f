//! `-m pkttype`: `struct xt_pkttype_info` (`linux/netfilter/xt_pkttype.h`), 8 bytes.

use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::bytes::{Build, Bytes};
use crate::xtables::text::{Complaint, Given};
use crate::xtables::{Match, Not};
use std::fmt;

/// How the packet was addressed on its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_pkttype_info")]
pub struct Pkttype {
    /// `!`
    pub not: Not,
    /// `--pkt-type`
    pub kind: PacketType,
}

/// `PACKET_*` of `linux/if_packet.h`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketType {
    /// `unicast` (`PACKET_HOST`): to this machine.
    Unicast,
    /// `broadcast`
    Broadcast,
    /// `multicast`
    Multicast,
}

const NAMES: &[(PacketType, &str, u32)] = &[
    (PacketType::Unicast, "unicast", 0),
    (PacketType::Broadcast, "broadcast", 1),
    (PacketType::Multicast, "multicast", 2),
];

pub(crate) const KIND: Kind<Match> = Kind {
    name: "pkttype",
    forms: |_| forms!["pkttype" 0],
    encode,
    decode,
    options: &[("--pkt-type", 1)],
    parse,
};

fn encode(value: &Match, _: Form, _: &Context<'_>) -> Encoded {
    let Match::Pkttype(v) = value else {
        return Ok(None);
    };
    let number = NAMES.iter().find(|(k, ..)| *k == v.kind).map(|(.., n)| *n);
    Ok(number.map(|n| Build::new().u32(n).u32(v.not.0.into()).done()))
}

fn decode(_: Form, b: Bytes<'_>, _: &Context<'_>) -> Option<Match> {
    let number = b.u32(0)?;
    let (kind, ..) = NAMES.iter().find(|(.., n)| *n == number)?;
    Some(Match::Pkttype(Pkttype {
        not: Not(b.u32(4)? != 0),
        kind: *kind,
    }))
}

impl fmt::Display for Pkttype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES
            .iter()
            .find(|(k, ..)| *k == self.kind)
            .map_or("", |(_, name, _)| name);
        write!(f, "{} --pkt-type {name}", self.not)
    }
}

fn parse(given: &mut Given) -> Result<Match, Complaint> {
    let o = given.need(&["--pkt-type"])?;
    let word = if o.word(0) == "host" {
        "unicast"
    } else {
        o.word(0)
    };
    match NAMES.iter().find(|(_, name, _)| *name == word) {
        Some((kind, ..)) => Ok(Match::Pkttype(Pkttype {
            not: o.not,
            kind: *kind,
        })),
        None => Err(o.wrong("give unicast, broadcast or multicast")),
    }
}
