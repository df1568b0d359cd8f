//! A table as the kernel holds it: a sequence of entries, addressed by their offsets.
//!
//! ```text
//! built-in chain   rules, then the policy           hook_entry points at its start, underflow at the policy
//! user chain       ERROR <name>, rules, RETURN      jumps point behind the head
//! ...
//! ERROR "ERROR"                                     the end
//! ```
//! A longer entry moves every entry after it, and with them the hooks, the underflows and the jumps: a change always
//! replaces the whole table.

mod check;
mod read;
mod write;

pub(super) use read::{Pieces, text};

use super::raw::NF_INET_NUMHOOKS;
use super::structs::XtCounters;
use super::{Chain, ChainKind, Policy, Rule, Table, XtFamily};
use weir_netlink::{Error, Result};

/// Packets and bytes that a rule has counted (`struct xt_counters`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "xt_counters")]
pub struct Counters {
    /// `pcnt`
    pub packets: u64,
    /// `bcnt`
    pub bytes: u64,
}

impl From<XtCounters> for Counters {
    fn from(counters: XtCounters) -> Self {
        Self {
            packets: counters.pcnt,
            bytes: counters.bcnt,
        }
    }
}

impl From<Counters> for XtCounters {
    fn from(counters: Counters) -> Self {
        Self {
            pcnt: counters.packets,
            bcnt: counters.bytes,
        }
    }
}

/// `struct ipt_getinfo`, without the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) valid_hooks: u32,
    pub(super) hook_entry: [u32; NF_INET_NUMHOOKS],
    pub(super) underflow: [u32; NF_INET_NUMHOOKS],
    pub(super) entries: usize,
    pub(super) size: usize,
}

/// A table with the bytes of each rule as read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    pub(super) family: XtFamily,
    pub(super) name: String,
    /// Empty when the table does not exist yet.
    pub(super) info: Info,
    /// Built-in chains by hook, then user chains by name.
    pub(super) chains: Vec<ChainLayout>,
    /// The entries as they were read.
    pub(super) blob: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChainLayout {
    pub(super) name: String,
    /// For a built-in chain: its hook and its policy.
    pub(super) builtin: Option<(usize, Policy)>,
    pub(super) rules: Vec<RuleLayout>,
    /// Index of the entry that names a user chain.
    pub(super) head: Option<usize>,
    /// Index of the entry that ends the chain.
    pub(super) tail: Option<usize>,
    /// Counters of the end of the chain.
    pub(super) counters: Counters,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct RuleLayout {
    pub(super) rule: Rule,
    /// The entry in the kernel, if it exists.
    pub(super) old: Option<Old>,
    /// `nfcache`, which the kernel preserves and does not interpret; see [`Ownership`](super::Ownership).
    pub(super) tag: u32,
}

/// An existing entry of the table's blob.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Old {
    /// Its index, from which it keeps the counters; `None`: they begin at 0.
    pub(super) entry: Option<usize>,
    /// Its offset and length.
    pub(super) at: usize,
    pub(super) len: usize,
    /// Offset of the target in the entry.
    pub(super) target: usize,
    pub(super) counters: Counters,
}

/// The names of the hooks' built-in chains.
const HOOKS: [&str; NF_INET_NUMHOOKS] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// The hooks of a table by its name.
const TABLES: &[(&str, &[usize])] = &[
    ("filter", &[1, 2, 3]),
    ("nat", &[0, 1, 3, 4]),
    ("mangle", &[0, 1, 2, 3, 4]),
    ("raw", &[0, 3]),
    ("security", &[1, 2, 3]),
];

/// The names of all tables.
pub(super) fn table_names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(name, _)| *name)
}

/// Entries ready for the kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Blob {
    pub(super) bytes: Vec<u8>,
    pub(super) hook_entry: [u32; NF_INET_NUMHOOKS],
    pub(super) underflow: [u32; NF_INET_NUMHOOKS],
    /// For each entry the index of the old entry from which it keeps the counters.
    pub(super) old: Vec<Option<usize>>,
}

impl Layout {
    /// The table as the kernel creates it, with empty built-in chains.
    pub(super) fn untouched(family: XtFamily, name: &str) -> Result<Self> {
        let hooks = TABLES
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, hooks)| *hooks);
        let hooks = hooks.ok_or_else(|| {
            let why =
                "there is no such table; the tables are filter, nat, mangle, raw and security";
            Error::refused("use", format!("{family} table {name}"), why)
        })?;
        let chain = |hook: &usize| ChainLayout {
            builtin: Some((*hook, Policy::Accept)),
            ..ChainLayout::user(HOOKS.get(*hook).copied().unwrap_or_default())
        };
        Ok(Self {
            family,
            name: name.to_owned(),
            info: Info::default(),
            chains: hooks.iter().map(chain).collect(),
            blob: Vec::new(),
        })
    }

    /// Whether the table exists in the kernel.
    pub(super) fn is_there(&self) -> bool {
        self.info.entries != 0
    }

    /// Whether both have the same chains, policies and rules with their tags; counters are ignored.
    pub(super) fn has_rules_of(&self, other: &Self) -> bool {
        let is_same = |(a, b): (&ChainLayout, &ChainLayout)| {
            let rule = |r: &RuleLayout| (r.rule.clone(), r.tag);
            a.name == b.name
                && a.builtin == b.builtin
                && a.rules.iter().map(rule).eq(b.rules.iter().map(rule))
        };
        self.chains.len() == other.chains.len()
            && self.chains.iter().zip(&other.chains).all(is_same)
    }

    pub(super) fn chain(&self, name: &str) -> Option<&ChainLayout> {
        self.chains.iter().find(|c| c.name == name)
    }

    /// Sorts user chains by name, as the tools do and expect.
    pub(super) fn sort(&mut self) {
        self.chains.sort_by(|a, b| a.place().cmp(&b.place()));
    }

    /// Converts to plain values.
    pub(super) fn table(&self) -> Table {
        Table {
            chains: self.chains.iter().cloned().map(Chain::from).collect(),
            ..Table::new(self.family, &self.name)
        }
    }

    /// As [`Layout::table`], consuming the layout.
    pub(super) fn into_table(self) -> Table {
        Table {
            chains: self.chains.into_iter().map(Chain::from).collect(),
            ..Table::new(self.family, &self.name)
        }
    }

    /// The table as the object of an error.
    fn object(&self) -> String {
        format!("{} table {}", self.family, self.name)
    }
}

impl From<ChainLayout> for Chain {
    fn from(c: ChainLayout) -> Self {
        Self {
            kind: c.kind(),
            name: c.name,
            rules: c.rules.into_iter().map(|r| r.rule).collect(),
        }
    }
}

impl RuleLayout {
    pub(super) fn zero(&mut self) {
        if let Some(old) = &mut self.old {
            old.entry = None;
        }
    }
}

impl ChainLayout {
    pub(super) fn user(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            builtin: None,
            rules: Vec::new(),
            head: None,
            tail: None,
            counters: Counters::default(),
        }
    }

    /// Sets the counters of its rules and of its policy to 0.
    pub(super) fn zero(&mut self) {
        self.rules.iter_mut().for_each(RuleLayout::zero);
        self.tail = None;
    }

    fn kind(&self) -> ChainKind {
        self.builtin
            .map_or(ChainKind::User, |(_, p)| ChainKind::Builtin(Some(p)))
    }

    /// Built-in chains come first, by hook, then user chains by name.
    fn place(&self) -> (usize, &str) {
        match self.builtin {
            Some((hook, _)) => (hook, ""),
            None => (usize::MAX, &self.name),
        }
    }
}

#[cfg(test)]
mod tests;
