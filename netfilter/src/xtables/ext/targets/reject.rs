//! `-j REJECT`: `struct ipt_reject_info` (`linux/netfilter_ipv4/ipt_REJECT.h`) and `struct ip6t_reject_info`
//! (`linux/netfilter_ipv6/ip6t_REJECT.h`): one number each, with different numbering.

use super::super::structs::IptRejectInfo;
use super::super::{Context, Encoded, Form, Kind, forms};
use crate::xtables::XtFamily;
use crate::xtables::raw::*;
use crate::xtables::structs::{read, written};
use crate::xtables::text::{Complaint, Given};
use std::fmt;

/// `--reject-with`: the answer to the sender. Only in `filter`; not in `PREROUTING` before Linux 5.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectWith {
    /// `icmp-net-unreachable`
    NetUnreachable,
    /// `icmp-host-unreachable`
    HostUnreachable,
    /// `icmp-proto-unreachable`
    ProtoUnreachable,
    /// `icmp-port-unreachable`: the default of IPv4.
    PortUnreachable,
    /// `icmp-net-prohibited`
    NetProhibited,
    /// `icmp-host-prohibited`
    HostProhibited,
    /// `icmp-admin-prohibited`
    AdminProhibited,
    /// `tcp-reset`: only with `-p tcp`.
    TcpReset,
    /// `icmp6-no-route`
    Icmp6NoRoute,
    /// `icmp6-adm-prohibited`
    Icmp6AdmProhibited,
    /// `icmp6-addr-unreachable`
    Icmp6AddrUnreachable,
    /// `icmp6-port-unreachable`: the default of IPv6.
    Icmp6PortUnreachable,
    /// `icmp6-policy-fail`
    Icmp6PolicyFail,
    /// `icmp6-reject-route`
    Icmp6RejectRoute,
}

use RejectWith as R;

const IP: &[(RejectWith, &str, u32)] = &[
    (
        R::NetUnreachable,
        "icmp-net-unreachable",
        IPT_ICMP_NET_UNREACHABLE,
    ),
    (
        R::HostUnreachable,
        "icmp-host-unreachable",
        IPT_ICMP_HOST_UNREACHABLE,
    ),
    (
        R::ProtoUnreachable,
        "icmp-proto-unreachable",
        IPT_ICMP_PROT_UNREACHABLE,
    ),
    (
        R::PortUnreachable,
        "icmp-port-unreachable",
        IPT_ICMP_PORT_UNREACHABLE,
    ),
    (
        R::NetProhibited,
        "icmp-net-prohibited",
        IPT_ICMP_NET_PROHIBITED,
    ),
    (
        R::HostProhibited,
        "icmp-host-prohibited",
        IPT_ICMP_HOST_PROHIBITED,
    ),
    (R::TcpReset, "tcp-reset", IPT_TCP_RESET),
    (
        R::AdminProhibited,
        "icmp-admin-prohibited",
        IPT_ICMP_ADMIN_PROHIBITED,
    ),
];

const IP6: &[(RejectWith, &str, u32)] = &[
    (R::Icmp6NoRoute, "icmp6-no-route", IP6T_ICMP6_NO_ROUTE),
    (
        R::Icmp6AdmProhibited,
        "icmp6-adm-prohibited",
        IP6T_ICMP6_ADM_PROHIBITED,
    ),
    (
        R::Icmp6AddrUnreachable,
        "icmp6-addr-unreachable",
        IP6T_ICMP6_ADDR_UNREACH,
    ),
    (
        R::Icmp6PortUnreachable,
        "icmp6-port-unreachable",
        IP6T_ICMP6_PORT_UNREACH,
    ),
    (R::TcpReset, "tcp-reset", IP6T_TCP_RESET),
    (
        R::Icmp6PolicyFail,
        "icmp6-policy-fail",
        IP6T_ICMP6_POLICY_FAIL,
    ),
    (
        R::Icmp6RejectRoute,
        "icmp6-reject-route",
        IP6T_ICMP6_REJECT_ROUTE,
    ),
];

fn table(family: XtFamily) -> &'static [(RejectWith, &'static str, u32)] {
    match family {
        XtFamily::Ip => IP,
        XtFamily::Ip6 => IP6,
    }
}

pub(crate) const KIND: Kind<RejectWith> = Kind {
    name: "REJECT",
    forms: |_| forms!["REJECT" 0],
    encode,
    decode,
    options: &[("--reject-with", 1)],
    parse,
};

fn encode(v: &RejectWith, _: Form, cx: &Context<'_>) -> Encoded {
    let found = table(cx.family).iter().find(|(r, ..)| r == v);
    let number = found.ok_or_else(|| {
        format!(
            "{} cannot answer so; choose an answer of its family",
            cx.family
        )
    })?;
    Ok(Some(written(&IptRejectInfo { with: number.2 })))
}

fn decode(_: Form, b: &[u8], cx: &Context<'_>) -> Option<RejectWith> {
    let w: IptRejectInfo = read(b)?;
    table(cx.family)
        .iter()
        .find(|(.., n)| *n == w.with)
        .map(|(r, ..)| *r)
}

impl fmt::Display for RejectWith {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = IP.iter().chain(IP6).find(|(r, ..)| r == self);
        let name = found.map_or("", |(_, name, _)| name);
        write!(f, " --reject-with {name}")
    }
}

/// Older names of the same answers.
fn canonical(word: &str) -> &str {
    match word {
        "net-unreach" => "icmp-net-unreachable",
        "host-unreach" => "icmp-host-unreachable",
        "proto-unreach" => "icmp-proto-unreachable",
        "port-unreach" => "icmp-port-unreachable",
        "net-prohib" => "icmp-net-prohibited",
        "host-prohib" => "icmp-host-prohibited",
        "admin-prohib" => "icmp-admin-prohibited",
        "tcp-rst" => "tcp-reset",
        "no-route" => "icmp6-no-route",
        "adm-prohibited" => "icmp6-adm-prohibited",
        "addr-unreach" => "icmp6-addr-unreachable",
        "policy-fail" => "icmp6-policy-fail",
        "reject-route" => "icmp6-reject-route",
        other => other,
    }
}

fn parse(given: &mut Given) -> Result<RejectWith, Complaint> {
    let table = table(given.family);
    let Some(o) = given.take(&["--reject-with"]) else {
        return Ok(match given.family {
            XtFamily::Ip => R::PortUnreachable,
            XtFamily::Ip6 => R::Icmp6PortUnreachable,
        });
    };
    let word = match (given.family, o.plain()?.word(0)) {
        (XtFamily::Ip6, "port-unreach") => "icmp6-port-unreachable",
        (_, word) => canonical(word),
    };
    table
        .iter()
        .find(|(_, name, _)| *name == word)
        .map(|(r, ..)| *r)
        .ok_or_else(|| {
            let names: Vec<&str> = table.iter().map(|(_, name, _)| *name).collect();
            o.wrong(&format!("is no answer; give {}", names.join(", ")))
        })
}
