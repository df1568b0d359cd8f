//! The two engines: whose rules they are, which one is to be used, and how one takes over from the other.
//!
//! # Which one
//! What the namespace already uses; else nf_tables where this kernel has it; else legacy tables. The rules
//! themselves are the record of the decision: as long as they are there, a second run, a restart or a
//! module that appears later finds them and decides alike. Rules that `iptables-nft` left are in nf_tables, so
//! where they are and no legacy chains of ours, it is nf_tables.
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
/// Names of the legacy tables that exist in the thread's network namespace. Looking at a table makes it
/// exist, so the list is looked at first.
const TABLE_NAMES: [&str; 2] = [
    "/proc/thread-self/net/ip_tables_names",
    "/proc/thread-self/net/ip6_tables_names",
];

/// The engine for the namespace of this thread; changes nothing.
pub(super) fn choose() -> Result<compile::Engine> {
    let nf_tables = nft_holds_ours();
    if matches!(nf_tables, Ok(true)) {
        return Ok(compile::Engine::Nft);
    }
    if legacy_holds_ours()? {
        return Ok(compile::Engine::Xtables);
    }
    match nf_tables {
        Ok(_) => Ok(compile::Engine::Nft),
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
    let found = xtables::Engine::open()?.read()?;
    let chains = found.ruleset.tables.iter().flat_map(|t| &t.chains);
    Ok(chains.into_iter().any(|c| c.name.starts_with(PREFIX)))
}

/// What differs from these rules, those of the other engine included.
pub(super) fn drift(rules: &Rules) -> Result<Vec<Change>> {
    match rules {
        Rules::Nft(ruleset) => {
            let ops = nft::Engine::open()?.drift(ruleset, &owned())?.ops;
            let mut changes: Vec<Change> = ops.into_iter().map(Change::Rules).collect();
            changes.extend(legacy_left()?);
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
fn legacy_left() -> Result<Vec<Change>> {
    if !legacy_is_used() {
        return Ok(Vec::new());
    }
    let ops = xtables::Engine::open()?
        .drift(&xtables::Ruleset::default(), &ours())?
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

/// Writes these rules and reads them back.
pub(super) fn write(rules: &Rules) -> Result<Vec<Change>> {
    match rules {
        Rules::Nft(ruleset) => {
            let ops = nft::Engine::open()?.apply(ruleset, &owned())?.ops;
            Ok(ops.into_iter().map(Change::Rules).collect())
        }
        Rules::Xtables(ruleset) => {
            let ops = xtables::Engine::open()?.apply(ruleset, &ours())?.ops;
            Ok(ops.into_iter().map(Change::legacy).collect())
        }
    }
}

/// Takes away what the other engine, or iptables-nft, holds beside these rules.
pub(super) fn take_over(rules: &Rules) -> Result<Vec<Change>> {
    let mut changes = match rules {
        Rules::Nft(_) => clean_legacy()?,
        Rules::Xtables(_) => clean_nft()?,
    };
    changes.extend(without_nft(leftovers::remove)?);
    Ok(changes)
}

/// What [`clean`] would remove.
pub(super) fn plan_clean() -> Result<Vec<Change>> {
    let mut changes = legacy_left()?;
    changes.extend(nft_left()?);
    changes.extend(without_nft(leftovers::find)?);
    Ok(changes)
}

/// Takes our rules away, whoever holds them.
pub(super) fn clean() -> Result<Vec<Change>> {
    let mut changes = clean_legacy()?;
    changes.extend(clean_nft()?);
    changes.extend(without_nft(leftovers::remove)?);
    Ok(changes)
}

fn clean_legacy() -> Result<Vec<Change>> {
    if !legacy_is_used() {
        return Ok(Vec::new());
    }
    let applied = xtables::Engine::open()?.apply(&xtables::Ruleset::default(), &ours())?;
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
    Ok(xtables::Engine::open()?.read()?.ruleset)
}

/// Sets in the namespace of this thread, as `list` reads them.
pub(super) fn show_sets(
    list: impl FnOnce(&mut ipset::Engine) -> Result<Vec<ipset::Listed>>,
) -> Result<Vec<ipset::Set>> {
    let kernel = Kernel::read();
    let is_there = kernel.has_module("ip_set");
    // The first question would load the module.
    if !is_there && kernel.loading == Loading::Possible {
        return Ok(Vec::new());
    }
    let listed = ipset::Engine::open().and_then(|mut e| list(&mut e));
    match listed {
        Ok(sets) => Ok(sets.into_iter().map(|l| l.set).collect()),
        // Whether it is built in was not to be seen; nobody answers, so it is not.
        Err(e) if !is_there && !e.is_permission() => Ok(Vec::new()),
        Err(e) => Err(e),
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
        ..xtables::Ownership::default()
    }
}
