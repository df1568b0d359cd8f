//! Matches (`-m`).

pub(crate) mod comment;
pub(crate) mod connmark;
pub(crate) mod conntrack;
pub(crate) mod mark;
pub(crate) mod multiport;
pub(crate) mod owner;
pub(crate) mod set;
pub(crate) mod tcp;
pub(crate) mod udp;

/// Every known match.
pub(in crate::xtables) use crate::xtables::matching::KINDS;
