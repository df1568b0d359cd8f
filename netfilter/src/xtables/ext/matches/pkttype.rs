//! `-m pkttype`: `struct xt_pkttype_info` (`linux/netfilter/xt_pkttype.h`), 8 bytes.

use super::super::structs::XtPkttypeInfo;
use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::Not;
use crate::xtables::structs::{read, written};
use crate::xtables::text::{Complaint, Given};
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

pub(crate) const KIND: Kind<Pkttype> = Kind {
    name: "pkttype",
    forms: |_| forms!["pkttype" 0],
    encode,
    decode,
    options: &[("--pkt-type", 1)],
    parse,
};

fn encode(v: &Pkttype, _: Form, _: &Context<'_>) -> Encoded {
    let number = NAMES.iter().find(|(k, ..)| *k == v.kind).map(|(.., n)| *n);
    Ok(number.map(|pkttype| {
        written(&XtPkttypeInfo {
            pkttype,
            invert: v.not.0.into(),
        })
    }))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Pkttype> {
    let w: XtPkttypeInfo = read(b)?;
    let (kind, ..) = NAMES.iter().find(|(.., n)| *n == w.pkttype)?;
    Some(Pkttype {
        not: Not(w.invert != 0),
        kind: *kind,
    })
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

fn parse(given: &mut Given) -> Result<Pkttype, Complaint> {
    let o = given.need(&["--pkt-type"])?;
    let word = if o.word(0) == "host" {
        "unicast"
    } else {
        o.word(0)
    };
    match NAMES.iter().find(|(_, name, _)| *name == word) {
        Some((kind, ..)) => Ok(Pkttype {
            not: o.not,
            kind: *kind,
        }),
        None => Err(o.wrong("give unicast, broadcast or multicast")),
    }
}
