//! Targets (`-j`). The standard verdicts are not extensions: the rule encodes them.

pub(crate) mod connmark;
pub(crate) mod ct;
pub(crate) mod mark;
pub(crate) mod nat;
pub(crate) mod set;
pub(crate) mod tproxy;

pub(in crate::xtables) use crate::xtables::target::KINDS;
