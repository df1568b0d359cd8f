//! The registry of matches and targets that are rows. To add one, write a row in the file of its subject, or a new file with a line below.
//!
//! Structures are those of `linux/netfilter/xt_NAME.h`, `linux/netfilter_ipv4/ipt_NAME.h` and
//! `linux/netfilter_ipv6/ip6t_NAME.h`; the texts are those of iptables 1.8.9.

/// Names that the files of rows import.
mod prelude {
    pub(super) use super::super::begins;
    pub(super) use super::super::blob::{Blob, Place};
    pub(super) use super::super::field::{Field, Invert, Quote, Shown, When, field, flag};
    pub(super) use super::super::row::{ONE_OR_NONE, Options, Row};
    pub(super) use super::super::value::Value::{
        self, Address, BigHex, Choice, Hex, Mac, Masked, Names, NetLength, NetMask, Nothing,
        Number, PrefixMask, Range, Text,
    };
    pub(super) use super::super::value::{
        Code, address_at, length_of, mask_of, max_length, named, number_of, range_of, union_of,
    };
    pub(super) use crate::xtables::XtFamily::{self, Ip, Ip6};
    pub(super) use crate::xtables::text::{Complaint, Given, Opt};
}

/// Declares the rows of a file. Each has `MATCH` or `TARGET`, its name, the fields that differ from [`Row::MATCH`], and its options
/// in the order in which they are printed.
macro_rules! rows {
    ($(#[$m:meta])* $($part:ident $name:literal { $($key:ident: $value:expr),* } $([$($option:expr),* $(,)?])?)*) => {
        $(#[$m])*
        pub(super) const ROWS: &[Row] = &[$(Row {
            name: $name,
            $($key: $value,)*
            $(options: Options::Fields(&[$($option),*]),)?
            ..Row::$part
        }),*];
    };
}

mod addrtype;
mod bpf;
mod connbytes;
mod hashlimit;
mod headers;
mod icmp;
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
    addrtype::ROWS,
    bpf::ROWS,
    connbytes::ROWS,
    hashlimit::ROWS,
    headers::ROWS,
    icmp::ROWS,
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
