//! `-j TPROXY`: `struct xt_tproxy_target_info_v1` (`linux/netfilter/xt_TPROXY.h`), 28 bytes, or the older
//! `struct xt_tproxy_target_info`, 16 bytes, only IPv4.

use super::super::structs::{XtTproxyTargetInfo, XtTproxyTargetInfoV1};
use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::structs::{read, written, zeroed};
use crate::xtables::text::{Complaint, Given};
use crate::xtables::{Target, XtFamily};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const KIND: Kind<Target> = Kind {
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

fn encode(value: &Target, form: Form, cx: &Context<'_>) -> Encoded {
    let Target::Tproxy {
        on_port,
        on_ip,
        mark,
        mask,
    } = value
    else {
        return Ok(None);
    };
    let (mark_mask, mark_value, lport) = (*mask, *mark, (*on_port).into());
    Ok(Some(match (*on_ip, form.revision, cx.family) {
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
                laddr: (*on_ip).into(),
                lport,
                ..zeroed()
            })
        }
        (_, _, family) => {
            return Err(format!(
                "--on-ip {on_ip} is no address of {family}; give one of its family"
            ));
        }
    }))
}

fn decode(form: Form, b: &[u8], cx: &Context<'_>) -> Option<Target> {
    if form.revision == 0 {
        let w: XtTproxyTargetInfo = read(b)?;
        return Some(Target::Tproxy {
            mask: w.mark_mask,
            mark: w.mark_value,
            on_ip: Ipv4Addr::from(w.laddr).into(),
            on_port: w.lport.into(),
        });
    }
    let w: XtTproxyTargetInfoV1 = read(b)?;
    Some(Target::Tproxy {
        mask: w.mark_mask,
        mark: w.mark_value,
        on_ip: w.laddr.ip(cx.family),
        on_port: w.lport.into(),
    })
}

fn parse(given: &mut Given) -> Result<Target, Complaint> {
    let on_port = given.need(&["--on-port"])?.plain()?.number(0)?;
    let on_ip = match given.take(&["--on-ip"]) {
        Some(o) => o.plain()?.address(0, given.family)?,
        None => match given.family {
            XtFamily::Ip => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            XtFamily::Ip6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        },
    };
    let (mark, mask) = match given.take(&["--tproxy-mark"]) {
        Some(o) => o.plain()?.masked(0)?,
        None => (0, 0),
    };
    Ok(Target::Tproxy {
        on_port,
        on_ip,
        mark,
        mask,
    })
}
