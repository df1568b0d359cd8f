//! `-m udp`: `struct xt_udp` (`linux/netfilter/xt_tcpudp.h`), 10 bytes.

use super::super::prelude::*;
use super::tcp::{bounds, inverted, ports, range};

/// Ports of the UDP header. The rule must have `-p udp`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_udp")]
pub struct Udp {
    /// `--sport`
    pub sport: Option<(Not, PortRange)>,
    /// `--dport`
    pub dport: Option<(Not, PortRange)>,
}

pub(crate) const KIND: Kind<Udp> = Kind {
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

fn encode(v: &Udp, _: Form, _: &Context<'_>) -> Encoded {
    Ok(Some(written(&XtUdp {
        spts: bounds(v.sport.as_ref()),
        dpts: bounds(v.dport.as_ref()),
        invflags: inverted(v.sport.as_ref(), XT_UDP_INV_SRCPT)
            | inverted(v.dport.as_ref(), XT_UDP_INV_DSTPT),
        ..zeroed()
    })))
}

fn decode(_: Form, b: &[u8], _: &Context<'_>) -> Option<Udp> {
    let w: XtUdp = read(b)?;
    Some(Udp {
        sport: range(w.invflags & XT_UDP_INV_SRCPT != 0, w.spts),
        dport: range(w.invflags & XT_UDP_INV_DSTPT != 0, w.dpts),
    })
}

impl fmt::Display for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ports(f, " --sport ", self.sport.as_ref())?;
        ports(f, " --dport ", self.dport.as_ref())
    }
}

fn parse(given: &mut Given) -> Result<Udp, Complaint> {
    given.of_protocol(&[Protocol::UDP], "udp")?;
    Ok(Udp {
        sport: given.ports(&["--sport", "--source-port"])?,
        dport: given.ports(&["--dport", "--destination-port"])?,
    })
}
