//! The two engines: whose rules they are, which one is to be used, and how one takes over from the other.
//!
//! # Which one
//! What the namespace already uses; else nf_tables where this kernel has what the intent needs of it; else legacy
//! tables. The rules themselves are the record of the decision: as long as they are there, a second run, a restart
//! or a module that appears later finds them and decides alike. Rules that `iptables-nft` left are in nf_tables, so
//! where they are and no legacy chains of ours, it is nf_tables.
//!
//! # Taking over
//! The new rules come first and are read back, then the old ones go: there is no moment without redirection.
//! Old ones are those of the other engine and, with either, what `iptables-nft` left: see `leftovers`. With the chains
//! go the rules of built-in chains that the same plan would make there: once the chains are gone nothing shows whose
//! those are.

use super::choice::Choice;
use super::named::Named;
use super::{Change, TABLES, leftovers};
use crate::compile::{self, Compiled, Rules};
use nix::errno::Errno;
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

/// What is in the namespace of this thread before anything is written.
pub(super) struct Found {
    /// The tables of nf_tables, and a socket that can be used on.
    pub(super) nft: Result<(nft::Engine, Vec<TableId>)>,
    /// Whether legacy tables hold rules of ours.
    pub(super) legacy_holds: bool,
}

/// Changes nothing.
///
/// # Errors
/// Legacy tables that are there cannot be read.
pub(super) fn look() -> Result<Found> {
    let listed = |mut engine: nft::Engine| engine.tables().map(|tables| (engine, tables));
    Ok(Found {
        nft: nft::Engine::open().and_then(listed),
        legacy_holds: legacy_holds_ours()?,
    })
}

impl Found {
    /// Whether nf_tables hold rules of ours.
    pub(super) fn nft_holds(&self) -> bool {
        matches!(&self.nft, Ok((_, tables)) if holds(tables))
    }

    /// The engine for this namespace. Whether it has what an intent needs is not asked here: see `choice`.
    pub(super) fn choice(&self) -> Result<Choice> {
        let is_in_use = self.nft_holds() || self.legacy_holds;
        let engine = match &self.nft {
            Ok(_) if self.nft_holds() || !self.legacy_holds => compile::Engine::Nft,
            Err(e) => match is_in_use || (is_lack(e) && legacy_can_be_used()) {
                true => compile::Engine::Xtables,
                false => return Err(e.clone()),
            },
            Ok(_) => compile::Engine::Xtables,
        };
        Ok(Choice { engine, is_in_use })
    }
}

/// How many rules of built-in chains of legacy tables carry our sign, which nobody else writes.
pub(super) fn legacy_signed() -> Result<usize> {
    if !legacy_is_used()? {
        return Ok(0);
    }
    let signed = xtables::Ownership {
        tag: TAG,
        ..xtables::Ownership::default()
    };
    let mut engine = xtables::Engine::open()?;
    // Foreign tables may be large, and most have none.
    if !engine.holds(&signed)? {
        return Ok(0);
    }
    let found = engine.drift(&xtables::Ruleset::default(), &signed)?;
    Ok(found.ops.len())
}

/// Whether the error says that this kernel has no nf_tables. A lost answer, or no memory for it, says nothing about
/// the kernel: the other engine's rules would come beside those that this one may hold.
pub(super) fn is_lack(error: &Error) -> bool {
    const LACKS: [Errno; 4] = [
        Errno::EINVAL,
        Errno::EOPNOTSUPP,
        Errno::EPROTONOSUPPORT,
        Errno::EAFNOSUPPORT,
    ];
    error.is_unsupported() || LACKS.iter().any(|lack| error.errno() == Some(*lack as i32))
}

/// Whether one of these tables is ours.
pub(super) fn holds(tables: &[TableId]) -> bool {
    let ours = owned();
    tables.iter().any(|found| ours.contains(found))
}

/// Whether the kernel has legacy tables at all, and lets this process read them: the list of them is there, be it empty.
pub(super) fn legacy_can_be_used() -> bool {
    let read = xtables::Engine::open().and_then(|mut e| e.read());
    read.is_ok() && TABLE_NAMES.iter().any(|path| Path::new(path).exists())
}

/// Whether any legacy table exists in the namespace of this thread.
///
/// # Errors
/// A list is there and cannot be read: what is not known is not taken for unused.
fn legacy_is_used() -> Result<bool> {
    let mut is_used = false;
    for path in TABLE_NAMES {
        match std::fs::read(path) {
            Ok(names) => is_used |= !names.is_empty(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("read", path, &e)),
        }
    }
    Ok(is_used)
}

pub(super) fn legacy_holds_ours() -> Result<bool> {
    if !legacy_is_used()? {
        return Ok(false);
    }
    xtables::Engine::open()?.holds(&xtables::Ownership {
        prefix: PREFIX.to_owned(),
        ..xtables::Ownership::default()
    })
}

/// What differs from these rules, those of the other engine included.
pub(super) fn drift(desired: &Compiled) -> Result<Vec<Change>> {
    let named = Named(Some(desired));
    match &desired.rules {
        Rules::Nft(ruleset) => {
            let mut engine = nft::Engine::open()?;
            let found = engine.read_for(ruleset, &owned())?;
            let drift = nft::plan(ruleset, &found, &owned());
            let mut changes: Vec<Change> = drift.ops.into_iter().map(Change::Rules).collect();
            changes.extend(drift.kept.into_iter().map(Change::Kept));
            changes.extend(legacy_left(named)?);
            let left = leftovers::find_in(&mut engine, &found.tables, named)?;
            changes.extend(left.into_iter().map(Change::Rules));
            Ok(changes)
        }
        Rules::Xtables(ruleset) => {
            let ops = xtables::Engine::open()?.drift(ruleset, &ours())?.ops;
            let mut changes: Vec<Change> = ops.into_iter().map(Change::legacy).collect();
            changes.extend(nft_left()?);
            changes.extend(leftovers_found(named)?);
            Ok(changes)
        }
    }
}

/// What of ours is in legacy tables and would go.
fn legacy_left(named: Named<'_>) -> Result<Vec<Change>> {
    if !legacy_may_hold()? {
        return Ok(Vec::new());
    }
    let ops = xtables::Engine::open()?
        .drift(&xtables::Ruleset::default(), &ours_and(named))?
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

/// What [`clean`] would remove.
pub(super) fn plan_clean(named: Named<'_>) -> Result<Vec<Change>> {
    let mut changes = ours_left(named)?;
    changes.extend(leftovers_found(named)?);
    Ok(changes)
}

/// The same but for what upstream left in tables of `iptables-nft`.
pub(super) fn ours_left(named: Named<'_>) -> Result<Vec<Change>> {
    let mut changes = legacy_left(named)?;
    changes.extend(nft_left()?);
    Ok(changes)
}

pub(super) fn leftovers_found(named: Named<'_>) -> Result<Vec<Change>> {
    without_nft(|| {
        let mut engine = nft::Engine::open()?;
        let there = engine.tables()?;
        leftovers::find_in(&mut engine, &there, named)
    })
}

/// Takes our rules away from every engine, and from built-in chains of legacy tables and of iptables-nft's also what
/// equals the rules of this plan. Goes on after a failure.
pub(super) fn clean(named: Named<'_>) -> Removed {
    each([clean_legacy(named), clean_nft(), leftovers::remove(named)])
}

/// What a removal changed, and everything that failed.
pub(super) type Removed = (Vec<Change>, Vec<Error>);

/// All of them together.
pub(super) fn each<const N: usize>(parts: [Removed; N]) -> Removed {
    let (mut changes, mut failures) = (Vec::new(), Vec::new());
    for (changed, failed) in parts {
        changes.extend(changed);
        failures.extend(failed);
    }
    (changes, failures)
}

/// What failed is done once more, on fresh sockets: a failure that passes is no reason to leave half of it.
pub(super) fn twice((mut changes, failures): Removed, again: impl FnOnce() -> Removed) -> Removed {
    if failures.is_empty() {
        return (changes, failures);
    }
    let (more, failures) = again();
    changes.extend(more);
    (changes, failures)
}

/// Whether there is anything in legacy tables that is ours; only beside it named rules are. Tables of others may be large,
/// and are looked through without being held as values.
fn legacy_may_hold() -> Result<bool> {
    Ok(legacy_is_used()? && xtables::Engine::open()?.holds(&ours())?)
}

fn whole(part: Result<Vec<Change>>) -> Removed {
    match part {
        Ok(changed) => (changed, Vec::new()),
        Err(e) => (Vec::new(), vec![e]),
    }
}

/// With the rules of built-in chains that are named. Goes on with the next table after a failure.
pub(super) fn clean_legacy(named: Named<'_>) -> Removed {
    let remove = || {
        if !legacy_is_used()? {
            return Ok(xtables::Removed::default());
        }
        Ok(xtables::Engine::open()?.remove(&ours_and(named)))
    };
    match remove() {
        Ok(removed) => {
            let changes = removed.ops.into_iter().map(Change::legacy).collect();
            (changes, removed.failures)
        }
        Err(e) => (Vec::new(), vec![e]),
    }
}

/// One transaction: all of it or nothing.
pub(super) fn clean_nft() -> Removed {
    whole(without_nft(|| {
        Ok(nft::Engine::open()?
            .apply(&nft::Ruleset::default(), &owned())?
            .ops)
    }))
}

/// A kernel without nf_tables holds nothing there.
pub(super) fn without_nft(f: impl FnOnce() -> Result<Vec<nft::Op>>) -> Result<Vec<Change>> {
    match f() {
        Ok(ops) => Ok(ops.into_iter().map(Change::Rules).collect()),
        Err(e) if e.is_unsupported() => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Legacy tables that exist in the namespace of this thread, as `iptables-save` prints them.
pub(super) fn show_legacy() -> Result<xtables::Ruleset> {
    if !legacy_is_used()? {
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

pub(super) fn owned() -> Vec<TableId> {
    TABLES
        .iter()
        .map(|name| (nft::Family::Inet, (*name).to_owned()))
        .collect()
}

pub(super) fn ours() -> xtables::Ownership {
    xtables::Ownership {
        prefix: PREFIX.to_owned(),
        tag: TAG,
        ..xtables::Ownership::default()
    }
}

/// What is ours, and of the rules in built-in chains also those that a given plan would have made.
fn ours_and(named: Named<'_>) -> xtables::Ownership {
    xtables::Ownership {
        rules: named.rules().into_owned(),
        ..ours()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kernel_without_nf_tables_lacks_it() {
        let kernel = |errno: Errno| Error::kernel("list", "tables", errno as i32);
        assert!(is_lack(&kernel(Errno::EPROTONOSUPPORT)));
        assert!(is_lack(&Error::unsupported("use", "nf_tables", "a module")));
        for errno in [
            Errno::ENOBUFS,
            Errno::EINTR,
            Errno::EIO,
            Errno::ENOMEM,
            Errno::EPERM,
        ] {
            assert!(!is_lack(&kernel(errno)), "{errno}");
        }
        assert!(!is_lack(&Error::malformed("list", "tables", "cut short")));
    }
}
