//! `-j REJECT` (`struct ipt_reject_info`, `struct ip6t_reject_info`): the answer to the sender, numbered differently in each family.

use super::prelude::*;

/// `enum ipt_reject_with`; the older names, which are only parsed, follow those that are printed.
#[rustfmt::skip]
const IP: &[(&str, u64)] = &[
    ("icmp-net-unreachable", 0), ("icmp-host-unreachable", 1), ("icmp-proto-unreachable", 2),
    ("icmp-port-unreachable", 3), ("icmp-net-prohibited", 5), ("icmp-host-prohibited", 6), ("tcp-reset", 7),
    ("icmp-admin-prohibited", 8), ("net-unreach", 0), ("host-unreach", 1), ("proto-unreach", 2),
    ("port-unreach", 3), ("net-prohib", 5), ("host-prohib", 6), ("tcp-rst", 7), ("admin-prohib", 8),
];

/// `enum ip6t_reject_with`
#[rustfmt::skip]
const IP6: &[(&str, u64)] = &[
    ("icmp6-no-route", 0), ("icmp6-adm-prohibited", 1), ("icmp6-addr-unreachable", 3),
    ("icmp6-port-unreachable", 4), ("tcp-reset", 6), ("icmp6-policy-fail", 7), ("icmp6-reject-route", 8),
    ("no-route", 0), ("adm-prohibited", 1), ("addr-unreach", 3), ("port-unreach", 4), ("tcp-rst", 6),
    ("policy-fail", 7), ("reject-route", 8),
];

rows! {
    TARGET "REJECT" { family: Some(Ip), size: 4, initial: &[(0, &3u32.to_ne_bytes())] } [
        field(&["--reject-with"], Choice(4, IP), 0),
    ]
    TARGET "REJECT" { family: Some(Ip6), size: 4, initial: &[(0, &4u32.to_ne_bytes())] } [
        field(&["--reject-with"], Choice(4, IP6), 0),
    ]
}
