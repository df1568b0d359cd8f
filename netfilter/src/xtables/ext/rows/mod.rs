//! The registry of matches and targets that are rows: one more is a row here, or a file and a line below.
//!
//! Structures are those of `linux/netfilter/xt_NAME.h`, `linux/netfilter_ipv4/ipt_NAME.h` and
//! `linux/netfilter_ipv6/ip6t_NAME.h`; the texts are those of iptables 1.8.9.

mod bpf;
mod connbytes;
mod hashlimit;
mod headers;
mod iprange;
mod limit;
mod link;
mod lists;
mod log;
mod nat;
mod packets;
mod policy;
mod rateest;
mod reject;
mod sctp;
mod statistic;
mod string;
mod targets;
mod time;
mod tos;
mod u32;

use super::row::Row;

/// Every row.
pub(super) static ROWS: &[&[Row]] = &[
    bpf::ROWS,
    connbytes::ROWS,
    hashlimit::ROWS,
    headers::ROWS,
    iprange::ROWS,
    limit::ROWS,
    link::ROWS,
    lists::ROWS,
    log::ROWS,
    nat::ROWS,
    packets::ROWS,
    policy::ROWS,
    rateest::ROWS,
    reject::ROWS,
    sctp::ROWS,
    statistic::ROWS,
    string::ROWS,
    targets::ROWS,
    time::ROWS,
    tos::ROWS,
    u32::ROWS,
];

#[cfg(test)]
mod tests;
