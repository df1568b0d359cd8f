//! `-j TPROXY`: `struct xt_tproxy_target_info_v1` (`linux/netfilter/xt_TPROXY.h`), 28 bytes, or the older
//! `struct xt_tproxy_target_info`, 16 bytes, only IPv4.

use super::super::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

/// The local socket that receives the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "xt_tproxy_target_info_v1")]
pub struct Tproxy {
    /// `--on-port`; 0 for the packet's destination port.
    pub on_port: u16,
    /// `--on-ip`; the unspecified address of the table's family for the first address of the incoming interface.
    pub on_ip: IpAddr,
    /// `--tproxy-mark VALUE/`: bits that are inverted after those of `mask` are cleared.
    pub mark: u32,
    /// `--tproxy-mark /MASK`: bits that are cleared.
    pub mask: u32,
}

pub(crate) const KIND: Kind<Tproxy> = Kind {
    name: "TPROXY",
    forms: |family| match family {
        XtFamily::Ip => forms!["TPROXY" 1, "TPROXY" 0],
        XtFamily::Ip6 => forms!["TPROXY" 1],
    },
    encode,
    decode,
    options: &[("--on-port", 1), ("--on-ip", 1), ("--tproxy-mark", 1)],
    parse,
};

fn encode(v: &Tproxy, form: Form, cx: &Context<'_>) -> Encoded {
    let (mark_mask, mark_value, lport) = (v.mask, v.mark, v.on_port.into());
    Ok(Some(match (v.on_ip, form.revision, cx.family) {
        (IpAddr::V4(ip), 0, XtFamily::Ip) => written(&XtTproxyTargetInfo {
            mark_mask,
            mark_value,
            laddr: ip.octets(),
            lport,
            ..zeroed()
        }),
        (IpAddr::V4(_), _, XtFamily::Ip) | (IpAddr::V6(_), _, XtFamily::Ip6) => {
            written(&XtTproxyTargetInfoV1 {
                mark_mask,
                mark_value,
                laddr: v.on_ip.into(),
                lport,
                ..zeroed()
            })
        }
        (_, _, family) => {
            return Err(format!(
                "--on-ip {} is no address of {family}; give one of its family",
                v.on_ip
            ));
        }
    }))
}

fn decode(form: Form, b: &[u8], cx: &Context<'_>) -> Option<Tproxy> {
    if form.revision == 0 {
        let w: XtTproxyTargetInfo = read(b)?;
        return Some(Tproxy {
            mask: w.mark_mask,
            mark: w.mark_value,
            on_ip: Ipv4Addr::from(w.laddr).into(),
            on_port: w.lport.into(),
        });
    }
    let w: XtTproxyTargetInfoV1 = read(b)?;
    Some(Tproxy {
        mask: w.mark_mask,
        mark: w.mark_value,
        on_ip: w.laddr.ip(cx.family),
        on_port: w.lport.into(),
    })
}

impl fmt::Display for Tproxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (port, ip) = (self.on_port, Address(self.on_ip));
        write!(f, " --on-port {port} --on-ip {ip}")?;
        write!(f, " --tproxy-mark {:#x}/{:#x}", self.mark, self.mask)
    }
}

fn parse(given: &mut Given) -> Result<Tproxy, Complaint> {
    let on_port = given.need(&["--on-port"])?.plain()?.number(0)?;
    let on_ip = match given.take(&["--on-ip"]) {
        Some(o) => o.plain()?.address(0, given.family)?,
        None => InetAddr::ANY.ip(given.family),
    };
    let (mark, mask) = match given.take(&["--tproxy-mark"]) {
        Some(o) => o.plain()?.masked(0)?,
        None => (0, 0),
    };
    Ok(Tproxy {
        on_port,
        on_ip,
        mark,
        mask,
    })
}
