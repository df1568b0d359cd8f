//! Targets (`-j`). The standard verdicts are no extensions: the rule encodes them.

pub(crate) mod connmark;
pub(crate) mod ct;
pub(crate) mod log;
pub(crate) mod mark;
pub(crate) mod nat;
pub(crate) mod nflog;
pub(crate) mod reject;
pub(crate) mod set;
pub(crate) mod tproxy;

use super::Kind;
use crate::xtables::Target;

/// Every known target.
pub(crate) const KINDS: &[&Kind<Target>] = &[
    &nat::REDIRECT,
    &nat::MASQUERADE,
    &nat::SNAT,
    &nat::DNAT,
    &tproxy::KIND,
    &mark::KIND,
    &connmark::KIND,
    &ct::NOTRACK,
    &ct::KIND,
    &log::KIND,
    &nflog::KIND,
    &reject::KIND,
    &set::KIND,
];
