//! A change of rules or sets, by any of the three engines.

use std::fmt;
use weir_cni::compile::Engine;
use weir_netfilter::ipset::IpsetOp;
use weir_netfilter::nft::NftOp;
use weir_netfilter::xtables::XtOp;

/// One change of rules or sets in a network namespace. `Display` prints the equivalent command; a change of several entries of a
/// set prints one line per entry.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RuleChange {
    /// A change of nf_tables.
    Nft(NftOp),
    /// A change of legacy tables.
    Legacy(Box<XtOp>),
    /// A change of a set of ipset.
    Ipset(IpsetOp),
    /// All rules and sets of this engine are removed, because they are no longer desired or the other engine takes over.
    RemoveRules(Engine),
}

impl From<NftOp> for RuleChange {
    fn from(op: NftOp) -> Self {
        Self::Nft(op)
    }
}

impl From<XtOp> for RuleChange {
    fn from(op: XtOp) -> Self {
        Self::Legacy(Box::new(op))
    }
}

impl From<IpsetOp> for RuleChange {
    fn from(op: IpsetOp) -> Self {
        Self::Ipset(op)
    }
}

impl fmt::Display for RuleChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nft(op) => op.fmt(f),
            Self::Legacy(op) => op.fmt(f),
            Self::Ipset(op) => op.fmt(f),
            Self::RemoveRules(engine) => write!(f, "remove the rules of {engine}"),
        }
    }
}
