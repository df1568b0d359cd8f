//! `-j TPROXY`: `struct xt_tproxy_target_info_v1` (`linux/netfilter/xt_TPROXY.h`), 28 bytes, or the older
//! `struct xt_tproxy_target_info`, 16 bytes, only IPv4.

use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::bytes::{Build, Bytes};
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
    if on_ip.is_ipv4() != (cx.family == XtFamily::Ip) {
        return Err(format!(
            "--on-ip {on_ip} is no address of {}; give one of its family",
            cx.family
        ));
    }
    let wire = Build::new().u32(*mask).u32(*mark);
    let wire = match form.revision {
        0 => wire.address(*on_ip),
        _ => wire.union_address(*on_ip),
    };
    Ok(Some(wire.be16(*on_port).done()))
}

fn decode(form: Form, b: Bytes<'_>, cx: &Context<'_>) -> Option<Target> {
    Some(Target::Tproxy {
        mask: b.u32(0)?,
        mark: b.u32(4)?,
        on_ip: b.address(8, cx.family)?,
        on_port: b.be16(if form.revision == 0 { 12 } else { 24 })?,
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
