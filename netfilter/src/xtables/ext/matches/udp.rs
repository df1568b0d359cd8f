//! `-m udp`: `struct xt_udp` (`linux/netfilter/xt_tcpudp.h`), 10 bytes.

use super::super::{Context, Encoded, Form, Kind, forms};
use super::tcp::{bounds, inverted, ports, range};
use crate::xtables::bytes::{Build, Bytes};
use crate::xtables::raw::*;
use crate::xtables::text::{Complaint, Given};
use crate::xtables::{Match, Not, PortRange};
use std::fmt;

/// Ports of the UDP header. The rule must have `-p udp`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_udp")]
pub struct Udp {
    /// `--sport`
    pub sport: Option<(Not, PortRange)>,
    /// `--dport`
    pub dport: Option<(Not, PortRange)>,
}

pub(crate) const KIND: Kind<Match> = Kind {
    name: "udp",
    forms: |_| forms!["udp" 0],
    encode,
    decode,
    options: &[
        ("--sport", 1),
        ("--source-port", 1),
        ("--dport", 1),
        ("--destination-port", 1),
    ],
    parse,
};

fn encode(value: &Match, _: Form, _: &Context<'_>) -> Encoded {
    let Match::Udp(v) = value else {
        return Ok(None);
    };
    let (s0, s1) = bounds(v.sport.as_ref());
    let (d0, d1) = bounds(v.dport.as_ref());
    let invert =
        inverted(v.sport.as_ref(), XT_UDP_INV_SRCPT) | inverted(v.dport.as_ref(), XT_UDP_INV_DSTPT);
    Ok(Some(
        Build::new()
            .u16(s0)
            .u16(s1)
            .u16(d0)
            .u16(d1)
            .u8(invert)
            .done(),
    ))
}

fn decode(_: Form, b: Bytes<'_>, _: &Context<'_>) -> Option<Match> {
    let invert = b.u8(8)?;
    Some(Match::Udp(Udp {
        sport: range(invert & XT_UDP_INV_SRCPT != 0, b.u16(0)?, b.u16(2)?),
        dport: range(invert & XT_UDP_INV_DSTPT != 0, b.u16(4)?, b.u16(6)?),
    }))
}

impl fmt::Display for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ports(f, "--sport", self.sport.as_ref())?;
        ports(f, "--dport", self.dport.as_ref())
    }
}

fn parse(given: &mut Given) -> Result<Match, Complaint> {
    Ok(Match::Udp(Udp {
        sport: given.ports(&["--sport", "--source-port"])?,
        dport: given.ports(&["--dport", "--destination-port"])?,
    }))
}
