//! The two engines: whose rules they are, which one is to be used, and how one takes over from the other.
//!
//! # Which one
//! What the namespace already uses; else nf_tables where this kernel has it; else legacy tables. The rules
//! themselves are the record of the decision: as long as they are there, a second run, a restart or a
//! module that appears later finds them and decides alike. Rules that `iptables-nft` left are in nf_tables, so
//! where they are and no legacy chains of ours, it is nf_tables. It is nf_tables too in the namespace of a pod
//! with users of its own (`hostUsers: false`), even where legacy chains are: see [`match_owners`].
//!
//! # Taking over
//! The new rules come first and are read back, then the old ones go: there is no moment without redirection.
//! Old ones are those of the other engine and, with either, what `iptables-nft` left: see `leftovers`.

use super::{Change, TABLES, leftovers};
use crate::compile::{self, Rules};
use std::path::Path;
use weir_netfilter::ipset;
use weir_netfilter::nft::{self, TableId};
use weir_netfilter::probe::{Kernel, Loading};
use weir_netfilter::xtables;
use weir_netlink::{Error, Result};

/// What the names of our chains begin with in legacy tables, and those of upstream in tables of `iptables-nft`.
pub(super) const PREFIX: &str = "ISTIO_";
/// The sign that our rules in built-in chains of legacy tables carry: not all of them lead to a chain of ours.
const TAG: u32 = u32::from_be_bytes(*b"weir");
/// Names of the legacy tables that exist in the thread's network namespace. Looking at a table makes it
/// exist, so the list is looked at first.
const TABLE_NAMES: [&str; 2] = [
    "/proc/thread-self/net/ip_tables_names",
    "/proc/thread-self/net/ip6_tables_names",
];

/// The engine for the namespace of this thread, given whether legacy rules for owners can be written there;
/// changes nothing.
pub(super) fn choose(takes_owners: bool) -> Result<compile::Engine> {
    let nf_tables = nft_holds_ours();
    if matches!(nf_tables, Ok(true)) {
        return Ok(compile::Engine::Nft);
    }
    if takes_owners && legacy_holds_ours()? {
        return Ok(compile::Engine::Xtables);
    }
    match nf_tables {
        Ok(_) => Ok(compile::Engine::Nft),
        Err(lacks_nft) if !takes_owners => Err(lacks_nft),
        Err(lacks_nft) => match xtables::Engine::open().and_then(|mut e| e.read()) {
            Ok(_) if legacy_is_there() => Ok(compile::Engine::Xtables),
            _ => Err(lacks_nft),
        },
    }
}

fn nft_holds_ours() -> Result<bool> {
    let ours = owned();
    Ok(nft::Engine::open()?
        .tables()?
        .iter()
        .any(|found| ours.contains(found)))
}

/// Whether the kernel has legacy tables at all: the list of them is there, be it empty.
fn legacy_is_there() -> bool {
    TABLE_NAMES.iter().any(|path| Path::new(path).exists())
}

/// Whether any legacy table exists in the namespace of this thread.
fn legacy_is_used() -> bool {
    let has_names = |path: &&str| std::fs::read(path).is_ok_and(|names| !names.is_empty());
    TABLE_NAMES.iter().any(has_names)
}

fn legacy_holds_ours() -> Result<bool> {
    if !legacy_is_used() {
        return Ok(false);
    }
    let found = xtables::Engine::open()?.ruleset()?;
    let chains = found.tables.iter().flat_map(|t| &t.chains);
    Ok(chains.into_iter().any(|c| c.name.starts_with(PREFIX)))
}

/// Whether the kernel is to compare owners of sockets for legacy rules. It takes such rules only from inside
/// of the user namespace that the network namespace belongs to.
pub(super) fn match_owners(rules: &Rules) -> bool {
    let Rules::Xtables(ruleset) = rules else {
        return false;
    };
    let chains = ruleset.tables.iter().flat_map(|t| &t.chains);
    let matches = chains.flat_map(|c| &c.rules).flat_map(|r| &r.matches);
    matches
        .into_iter()
        .any(|m| matches!(m, xtables::Match::Owner(_)))
}

/// What differs from these rules, those of the other engine included.
pub(super) fn drift(rules: &Rules) -> Result<Vec<Change>> {
    match rules {
        Rules::Nft(ruleset) => {
            let ops = nft::Engine::open()?.drift(ruleset, &owned())?.ops;
            let mut changes: Vec<Change> = ops.into_iter().map(Change::Rules).collect();
            changes.extend(legacy_left(&ours())?);
            changes.extend(without_nft(leftovers::find)?);
            Ok(changes)
        }
        Rules::Xtables(ruleset) => {
            let ops = xtables::Engine::open()?.drift(ruleset, &ours())?.ops;
            let mut changes: Vec<Change> = ops.into_iter().map(Change::legacy).collect();
            changes.extend(nft_left()?);
            changes.extend(without_nft(leftovers::find)?);
            Ok(changes)
        }
    }
}

/// What of ours is in legacy tables and would go.
fn legacy_left(ours: &xtables::Ownership) -> Result<Vec<Change>> {
    if !legacy_is_used() {
        return Ok(Vec::new());
    }
    let ops = xtables::Engine::open()?
        .drift(&xtables::Ruleset::default(), ours)?
        .ops;
    Ok(ops.into_iter().map(Change::legacy).collect())
}

/// What of ours is in nf_tables and would go.
fn nft_left() -> Result<Vec<Change>> {
    without_nft(|| {
        Ok(nft::Engine::open()?
            .drift(&nft::Ruleset::default(), &owned())?
            .ops)
    })
}

/// Rules that were written and read back, while what they replace elsewhere is still there.
pub(super) struct Written {
    pub(super) changes: Vec<Change>,
    pub(super) cost: super::Cost,
    old: Old,
}

/// Where the rules of others are looked for.
enum Old {
    /// In legacy tables, and in those of these tables of nf_tables that are iptables-nft's.
    Legacy(nft::Engine, Vec<TableId>),
    /// In nf_tables.
    Nft,
}

/// Writes these rules and reads them back.
pub(super) fn write(rules: &Rules) -> Result<Written> {
    match rules {
        Rules::Nft(ruleset) => {
            let mut engine = nft::Engine::open()?;
            let applied = engine.apply(ruleset, &owned())?;
            Ok(Written {
                changes: applied.ops.into_iter().map(Change::Rules).collect(),
                cost: super::Cost {
                    read_back: applied.read_back,
                    lock_wait: None,
                },
                old: Old::Legacy(engine, applied.tables),
            })
        }
        Rules::Xtables(ruleset) => {
            let applied = xtables::Engine::open()?.apply(ruleset, &ours())?;
            Ok(Written {
                changes: applied.ops.into_iter().map(Change::legacy).collect(),
                cost: super::Cost {
                    read_back: applied.read_back,
                    lock_wait: applied.lock_wait,
                },
                old: Old::Nft,
            })
        }
    }
}

impl Written {
    /// Takes away what the other engine, or iptables-nft, holds beside these rules.
    pub(super) fn take_over(self) -> Result<Vec<Change>> {
        match self.old {
            Old::Legacy(mut engine, tables) => {
                let mut changes = clean_legacy(&ours())?;
                let left = leftovers::remove_from(&mut engine, &tables)?;
                changes.extend(left.into_iter().map(Change::Rules));
                Ok(changes)
            }
            Old::Nft => {
                let mut changes = clean_nft()?;
                changes.extend(without_nft(leftovers::remove)?);
                Ok(changes)
            }
        }
    }
}

/// What [`clean`] would remove.
pub(super) fn plan_clean(named: &xtables::Ruleset) -> Result<Vec<Change>> {
    let mut changes = legacy_left(&ours_and(named))?;
    changes.extend(nft_left()?);
    changes.extend(without_nft(leftovers::find)?);
    Ok(changes)
}

/// Takes our rules away, whoever holds them, and from built-in chains of legacy tables also what equals the
/// rules of this plan.
pub(super) fn clean(named: &xtables::Ruleset) -> Result<Vec<Change>> {
    let mut changes = clean_legacy(&ours_and(named))?;
    changes.extend(clean_nft()?);
    changes.extend(without_nft(leftovers::remove)?);
    Ok(changes)
}

fn clean_legacy(ours: &xtables::Ownership) -> Result<Vec<Change>> {
    if !legacy_is_used() {
        return Ok(Vec::new());
    }
    let applied = xtables::Engine::open()?.apply(&xtables::Ruleset::default(), ours)?;
    Ok(applied.ops.into_iter().map(Change::legacy).collect())
}

fn clean_nft() -> Result<Vec<Change>> {
    without_nft(|| {
        Ok(nft::Engine::open()?
            .apply(&nft::Ruleset::default(), &owned())?
            .ops)
    })
}

/// A kernel without nf_tables holds nothing there.
fn without_nft(f: impl FnOnce() -> Result<Vec<nft::Op>>) -> Result<Vec<Change>> {
    match f() {
        Ok(ops) => Ok(ops.into_iter().map(Change::Rules).collect()),
        Err(Error {
            kind: weir_netlink::ErrorKind::Unsupported(_),
            ..
        }) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Legacy tables that exist in the namespace of this thread, as `iptables-save` prints them.
pub(super) fn show_legacy() -> Result<xtables::Ruleset> {
    if !legacy_is_used() {
        return Ok(xtables::Ruleset::default());
    }
    xtables::Engine::open()?.ruleset()
}

/// Sets in the namespace of this thread, as `read` reads them; nothing where there cannot be any.
pub(super) fn show_sets<R: Default>(
    read: impl FnOnce(&mut ipset::Engine) -> Result<R>,
) -> Result<R> {
    let kernel = Kernel::read();
    let is_there = kernel.has_module("ip_set");
    // The first question would load the module.
    if !is_there && kernel.loading == Loading::Possible {
        return Ok(R::default());
    }
    match ipset::Engine::open().and_then(|mut e| read(&mut e)) {
        // Whether it is built in was not to be seen; nobody answers, so it is not.
        Err(e) if !is_there && !e.is_permission() => Ok(R::default()),
        read => read,
    }
}

fn owned() -> Vec<TableId> {
    TABLES
        .iter()
        .map(|name| (nft::Family::Inet, (*name).to_owned()))
        .collect()
}

fn ours() -> xtables::Ownership {
    xtables::Ownership {
        prefix: PREFIX.to_owned(),
        tag: TAG,
        ..xtables::Ownership::default()
    }
}

/// What is ours, and of the rules in built-in chains also those that a given plan would have made.
fn ours_and(named: &xtables::Ruleset) -> xtables::Ownership {
    xtables::Ownership {
        rules: named.clone(),
        ..ours()
    }
}
