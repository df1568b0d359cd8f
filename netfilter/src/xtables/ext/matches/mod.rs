//! Matches (`-m`).

pub(crate) mod addrtype;
pub(crate) mod comment;
pub(crate) mod connmark;
pub(crate) mod conntrack;
pub(crate) mod dscp;
pub(crate) mod icmp;
pub(crate) mod icmp6;
pub(crate) mod iprange;
pub(crate) mod limit;
pub(crate) mod mark;
pub(crate) mod multiport;
pub(crate) mod owner;
pub(crate) mod physdev;
pub(crate) mod pkttype;
pub(crate) mod set;
pub(crate) mod socket;
pub(crate) mod state;
pub(crate) mod statistic;
pub(crate) mod tcp;
pub(crate) mod tos;
pub(crate) mod udp;

use super::Kind;
use crate::xtables::Match;

/// Every known match.
pub(crate) const KINDS: &[&Kind<Match>] = &[
    &tcp::KIND,
    &udp::KIND,
    &icmp::KIND,
    &icmp6::KIND,
    &multiport::KIND,
    &owner::KIND,
    &mark::KIND,
    &connmark::KIND,
    &state::KIND,
    &conntrack::KIND,
    &set::KIND,
    &addrtype::KIND,
    &comment::KIND,
    &socket::KIND,
    &iprange::KIND,
    &physdev::KIND,
    &pkttype::KIND,
    &limit::KIND,
    &statistic::KIND,
    &tos::KIND,
    &dscp::KIND,
];
