//! Differences between a namespace and the desired redirection, and the changes that remove them.

use crate::compile::RoutingItem;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use weir_netfilter::nft::{self, NftOp, Rule, TableId};
use weir_netfilter::xtables;

/// One change. `Display` prints the command that it equals.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Change {
    /// A change of a table, a chain, a set or a rule of nf_tables.
    Rules(NftOp),
    /// A change of a chain or a rule of legacy tables.
    Legacy(Box<xtables::XtOp>),
    /// A rule of nf_tables that reads like the desired one but has other expressions; the text describes the difference.
    /// The rule is replaced.
    Encoded(NftOp, String),
    /// An address, policy rule or route is added.
    Add(RoutingItem),
    /// A policy rule is added before a foreign one that takes its packets, named by the text. The owned rule behind the
    /// foreign one is removed.
    Overtake(RoutingItem, String),
    /// An address, policy rule or route is deleted.
    Remove(RoutingItem),
    /// A policy rule or route cannot take effect, or would take other packets too, because of a foreign object, named by the
    /// text. [`Sandbox::apply`] refuses and changes nothing.
    ///
    /// [`Sandbox::apply`]: super::Sandbox::apply
    Blocked(RoutingItem, String),
    /// An object of another writer in an owned table, which [`Sandbox::apply`] keeps.
    ///
    /// [`Sandbox::apply`]: super::Sandbox::apply
    Kept(nft::Kept),
    /// A foreign object keeps packets from the redirection although the redirection is complete; the text is a sentence that
    /// names the object. [`Sandbox::apply`] does not change it.
    ///
    /// [`Sandbox::apply`]: super::Sandbox::apply
    Hindrance(String),
}

/// A kind of difference between a namespace and the desired redirection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// A desired object is absent.
    Missing,
    /// An object exists that is not desired.
    Unexpected,
}

impl Change {
    /// A change of legacy tables.
    #[must_use]
    pub(super) fn legacy(op: xtables::XtOp) -> Self {
        Self::Legacy(Box::new(op))
    }

    /// Returns the kind of difference that this change removes.
    #[must_use]
    pub fn difference(&self) -> Difference {
        match self {
            Self::Add(_) | Self::Overtake(..) | Self::Blocked(..) => Difference::Missing,
            Self::Remove(_) | Self::Kept(_) | Self::Encoded(..) | Self::Hindrance(_) => {
                Difference::Unexpected
            }
            Self::Legacy(op) => match **op {
                xtables::XtOp::DeleteRule(..)
                | xtables::XtOp::FlushChain(..)
                | xtables::XtOp::DeleteChain(..) => Difference::Unexpected,
                _ => Difference::Missing,
            },
            Self::Rules(op) => match op {
                NftOp::DeleteTable(_)
                | NftOp::ReplaceTable(..)
                | NftOp::DeleteSet(..)
                | NftOp::DeleteElements(..)
                | NftOp::DeleteChain(..)
                | NftOp::DeleteRule(..) => Difference::Unexpected,
                _ => Difference::Missing,
            },
        }
    }

    /// True if [`Sandbox::apply`](super::Sandbox::apply) would not remove this difference.
    #[must_use]
    pub fn stays(&self) -> bool {
        matches!(self, Self::Kept(_) | Self::Hindrance(_))
    }

    /// Returns the object that differs, without the verb.
    #[must_use]
    pub fn object(&self) -> String {
        match self {
            // The reasons are the difference here, not a comment after a command.
            Self::Rules(NftOp::ReplaceTable((family, name), reasons)) => {
                format!("table {family} {name}: {}", reasons.join(", "))
            }
            Self::Rules(op) => op.object(),
            Self::Encoded(op, how) => {
                format!("{} (reads as desired, other encoding: {how})", op.object())
            }
            Self::Legacy(op) => op.to_string(),
            Self::Add(item) | Self::Remove(item) => item.object(),
            Self::Kept(kept) => format!("{kept} (of another writer; it stays until `weir clean`)"),
            Self::Hindrance(what) => what.clone(),
            Self::Overtake(item, by) | Self::Blocked(item, by) => {
                format!("{} (a foreign {by})", item.object())
            }
        }
    }
}

/// Reduces changes to those that describe a difference. For a table that is replaced this keeps the replacement with its
/// reasons and drops the additions of its content.
pub(super) fn differences(mut changes: Vec<Change>) -> Vec<Change> {
    let mut replaced: Vec<TableId> = Vec::new();
    changes.retain(|change| {
        let Change::Rules(op) = change else {
            return true;
        };
        match op {
            NftOp::ReplaceTable(id, _) => {
                replaced.push(id.clone());
                true
            }
            NftOp::AddTable(table) => !replaced.contains(&(table.family, table.name.clone())),
            NftOp::AddSet(id, _) | NftOp::AddChain(id, _) | NftOp::AddRule(id, ..) => {
                !replaced.contains(id)
            }
            _ => true,
        }
    });
    encoded(changes)
}

/// Merges the deletion of a rule and the addition of one that reads the same into one difference that states how the two
/// are encoded: two lines with the same text would not explain it.
fn encoded(changes: Vec<Change>) -> Vec<Change> {
    let key = |id: &TableId, chain: &str, rule: &Rule| {
        (
            id.clone(),
            chain.to_owned(),
            nft::text_without_counters(rule, id.0),
        )
    };
    let mut added: BTreeMap<_, Vec<(usize, &Rule)>> = BTreeMap::new();
    for (i, change) in changes.iter().enumerate() {
        if let Change::Rules(NftOp::AddRule(id, chain, rule, _)) = change {
            added
                .entry(key(id, chain, rule))
                .or_default()
                .push((i, rule));
        }
    }
    // Index of the deletion -> index of the addition, and how the two rules differ.
    let mut pairs: BTreeMap<usize, (usize, String)> = BTreeMap::new();
    for (i, change) in changes.iter().enumerate() {
        if let Change::Rules(NftOp::DeleteRule(id, chain, found, _)) = change
            && let Some(same) = added.get_mut(&key(id, chain, found))
            && let Some((at, desired)) = same.pop()
            && let Some(how) = nft::other_encoding(found, desired, id.0)
        {
            pairs.insert(i, (at, how));
        }
    }
    let taken: BTreeSet<usize> = pairs.values().map(|(added, _)| *added).collect();
    let all = changes.into_iter().enumerate();
    all.filter(|(i, _)| !taken.contains(i))
        .map(|(i, change)| match (change, pairs.remove(&i)) {
            (Change::Rules(op), Some((_, how))) => Change::Encoded(op, how),
            (change, _) => change,
        })
        .collect()
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(op) => op.fmt(f),
            Self::Encoded(op, how) => write!(f, "{op} (other encoding: {how})"),
            Self::Legacy(op) => op.fmt(f),
            Self::Add(item) | Self::Overtake(item, _) => item.fmt(f),
            Self::Remove(item) => write!(f, "{}", item.removal()),
            Self::Kept(kept) => write!(f, "keep {kept}, which another writer made"),
            Self::Hindrance(what) => write!(f, "keep the conflicting object: {what}"),
            Self::Blocked(item, by) => {
                write!(f, "refuse `{item}`: a foreign {by}")
            }
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "missing",
            Self::Unexpected => "unexpected",
        })
    }
}
