//! The two engines: owned rules, the choice of the engine, and replacing the rules of the other engine.
//!
//! # Choice
//! The engine that the namespace already uses; else nf_tables if this kernel has the features that the intent needs;
//! else legacy tables. The rules themselves record the decision: while they exist, a second run, a restart or a
//! module that appears later leads to the same choice. Rules left by `iptables-nft` are in nf_tables, so a namespace
//! with such rules and without owned legacy chains uses nf_tables.
//!
//! # Replacement
//! The new rules are written and read back, then the old ones are deleted: traffic is always redirected. Old rules
//! are those of the other engine and, for either engine, those left by `iptables-nft`: see `leftovers`. Rules of
//! built-in chains that the same plan would make there are deleted together with the owned chains: without these
//! chains their owner could not be identified.

use super::choice::Choice;
use super::named::Named;
use super::scheme::Scheme;
use super::{Change, leftovers};
use crate::compile::{self, Compiled, Rules};
use nix::errno::Errno;
use std::path::Path;
use weir_netfilter::nft::{self, TableId};
use weir_netfilter::xtables;
use weir_netlink::{Error, ErrorKind, Result};

/// The legacy tables, and tables of `iptables-nft`, in which a redirection has rules. Upstream uses `filter` only
/// temporarily and without chains: a chain there with the owned prefix is foreign.
pub(super) const LEGACY_TABLES: [&str; 3] = ["nat", "mangle", "raw"];
/// Files that list the legacy tables of the thread's network namespace. Reading a table creates it, so the
/// list is read first.
const TABLE_NAMES: [&str; 2] = [
    "/proc/thread-self/net/ip_tables_names",
    "/proc/thread-self/net/ip6_tables_names",
];

/// The state of the namespace of this thread before anything is written.
pub(super) struct Found {
    /// The tables of nf_tables, and a socket for further use.
    pub(super) nft: Result<(nft::NftEngine, Vec<TableId>)>,
    /// True if one of the tables is owned. Beside owned legacy rules a table without chains does not count: it redirects
    /// nothing, and another program may have added it.
    nft_holds: bool,
    /// True if legacy tables hold owned chains.
    pub(super) legacy_holds: bool,
    /// True if legacy tables hold owned chains, or rules that only their tag identifies: another program may have deleted
    /// the chains.
    pub(super) legacy_remains: bool,
}

/// Reads the state; changes nothing.
///
/// # Errors
/// Existing legacy tables cannot be read.
pub(super) fn look(scheme: &'static Scheme) -> Result<Found> {
    let listed = |mut engine: nft::NftEngine| engine.tables().map(|tables| (engine, tables));
    let mut nft = nft::NftEngine::open().and_then(listed);
    let legacy_remains = legacy_holds(&scheme.ownership())?;
    let legacy_holds = legacy_remains && legacy_holds(&scheme.chains())?;
    let nft_holds = match &mut nft {
        Ok((engine, tables)) if scheme.holds(tables) => {
            !legacy_holds || has_chains(engine, scheme, tables)
        }
        _ => false,
    };
    Ok(Found {
        nft,
        nft_holds,
        legacy_holds,
        legacy_remains,
    })
}

/// True if an owned one of these tables has a chain, or if that is unknown.
fn has_chains(engine: &mut nft::NftEngine, scheme: &Scheme, tables: &[TableId]) -> bool {
    let mut owned = scheme.owned();
    owned.retain(|table| tables.contains(table));
    let read = engine.read_tables(&owned);
    read.map_or(true, |found| {
        let mut tables = found.ruleset.tables.iter();
        tables.any(|table| !table.chains.is_empty())
    })
}

impl Found {
    /// True if nf_tables hold owned rules.
    pub(super) fn nft_holds(&self) -> bool {
        self.nft_holds
    }

    /// The engine that holds owned rules. A kernel that has neither engine has none of their rules.
    ///
    /// # Errors
    /// nf_tables cannot be read, and may hold some.
    pub(super) fn in_use(&self) -> Result<Option<compile::Engine>> {
        match &self.nft {
            Ok(_) if self.nft_holds() => Ok(Some(compile::Engine::Nft)),
            _ if self.legacy_holds => Ok(Some(compile::Engine::Xtables)),
            Err(e) if !is_lack(e) => Err(e.clone()),
            _ => Ok(None),
        }
    }

    /// The engine for this namespace. Does not check whether the kernel has the features that an intent needs: see
    /// `choice`.
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

/// True if the error means that this kernel has no nf_tables. A lost answer or a lack of memory does not mean that:
/// the rules of the other engine would be added to those that nf_tables may hold.
pub(super) fn is_lack(error: &Error) -> bool {
    const LACKS: [Errno; 4] = [
        Errno::EINVAL,
        Errno::EOPNOTSUPP,
        Errno::EPROTONOSUPPORT,
        Errno::EAFNOSUPPORT,
    ];
    error.is_unsupported() || LACKS.iter().any(|lack| error.errno() == Some(*lack as i32))
}

/// True if the kernel has legacy tables and permits this process to read them: their list exists, even if it is
/// empty.
pub(super) fn legacy_can_be_used() -> bool {
    let read = xtables::XtEngine::open().and_then(|mut e| e.read());
    read.is_ok() && TABLE_NAMES.iter().any(|path| Path::new(path).exists())
}

/// True if any legacy table exists in the namespace of this thread (`/proc/net/ip_tables_names` and that of IPv6).
///
/// # Errors
/// A list exists but cannot be read: an unknown state does not count as unused.
pub fn has_legacy_tables() -> Result<bool> {
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

/// True if legacy tables hold objects of this owner. Foreign tables may be large, so the search does not parse rules
/// into values.
fn legacy_holds(owned: &xtables::Ownership) -> Result<bool> {
    Ok(has_legacy_tables()? && xtables::XtEngine::open()?.holds(owned)?)
}

/// The changes from the actual to the desired rules, including the removal of the other engine's rules.
pub(super) fn drift(desired: &Compiled) -> Result<Vec<Change>> {
    let named = Named::plan(desired);
    let owned = named.0.owned();
    match &desired.rules {
        Rules::Nft(ruleset) => {
            let mut engine = nft::NftEngine::open()?;
            let found = engine.read_for(ruleset, &owned)?;
            let drift = nft::plan(ruleset, &found, &owned);
            let mut changes: Vec<Change> = drift.ops.into_iter().map(Change::Rules).collect();
            changes.extend(drift.kept.into_iter().map(Change::Kept));
            changes.extend(legacy_left(named)?);
            let left = leftovers::find_in(&mut engine, &found.tables, named)?;
            changes.extend(left.into_iter().map(Change::Rules));
            Ok(changes)
        }
        Rules::Xtables(ruleset) => {
            let ops = xtables::XtEngine::open()?
                .drift(ruleset, &named.0.ownership())?
                .ops;
            let mut changes: Vec<Change> = ops.into_iter().map(Change::legacy).collect();
            changes.extend(nft_left(named.0)?);
            changes.extend(leftovers_found(named)?);
            Ok(changes)
        }
    }
}

/// The removal of owned rules from legacy tables.
fn legacy_left(named: Named<'_>) -> Result<Vec<Change>> {
    // Named rules are owned only if other owned objects exist.
    if !legacy_holds(&named.0.ownership())? {
        return Ok(Vec::new());
    }
    let ops = xtables::XtEngine::open()?
        .drift(&xtables::Ruleset::default(), &ours_and(named))?
        .ops;
    Ok(ops.into_iter().map(Change::legacy).collect())
}

/// The removal of owned tables from nf_tables.
fn nft_left(scheme: &Scheme) -> Result<Vec<Change>> {
    without_nft(|| {
        Ok(nft::NftEngine::open()?
            .drift(&nft::Ruleset::default(), &scheme.owned())?
            .ops)
    })
}

/// The changes that [`clean`] would make.
pub(super) fn plan_clean(named: Named<'_>) -> Result<Vec<Change>> {
    let mut changes = ours_left(named)?;
    changes.extend(leftovers_found(named)?);
    Ok(changes)
}

/// Like [`plan_clean`], without the rules that upstream left in tables of `iptables-nft`.
pub(super) fn ours_left(named: Named<'_>) -> Result<Vec<Change>> {
    let mut changes = legacy_left(named)?;
    changes.extend(nft_left(named.0)?);
    Ok(changes)
}

fn leftovers_found(named: Named<'_>) -> Result<Vec<Change>> {
    without_nft(|| {
        let mut engine = nft::NftEngine::open()?;
        let there = engine.tables()?;
        leftovers::find_in(&mut engine, &there, named)
    })
}

/// Removes owned rules from every engine. In built-in chains of legacy tables and of tables of `iptables-nft` also
/// removes rules that equal those of this plan. Continues after a failure, and retries a failed part once.
pub(super) fn clean(named: Named<'_>) -> Removed {
    each_twice([&|| clean_legacy(named), &|| clean_nft(named.0), &|| {
        leftovers::remove(named)
    }])
}

/// Joins removals, each tried [`twice`]: a part that was given up does not prevent the retry of another.
fn each_twice<const N: usize>(parts: [&dyn Fn() -> Removed; N]) -> Removed {
    each(parts.map(|part| twice(part(), part)))
}

/// The changes and all failures of a removal.
pub(super) type Removed = (Vec<Change>, Vec<Error>);

/// Joins removals.
pub(super) fn each<const N: usize>(parts: [Removed; N]) -> Removed {
    let (mut changes, mut failures) = (Vec::new(), Vec::new());
    for (changed, failed) in parts {
        changes.extend(changed);
        failures.extend(failed);
    }
    (changes, failures)
}

/// Retries a failed removal once, on new sockets: a transient failure must not leave it incomplete. Does not retry if
/// a step used up its own retries ([`ErrorKind::Exhausted`]): it would wait as long again.
pub(super) fn twice((mut changes, failures): Removed, again: impl FnOnce() -> Removed) -> Removed {
    let is_given_up = |e: &Error| matches!(e.kind, ErrorKind::Exhausted(_));
    if failures.is_empty() || failures.iter().any(is_given_up) {
        return (changes, failures);
    }
    let (more, failures) = again();
    changes.extend(more);
    (changes, failures)
}

/// Removes owned rules and named rules of built-in chains. Continues with the next table after a failure.
pub(super) fn clean_legacy(named: Named<'_>) -> Removed {
    let remove = || {
        if !has_legacy_tables()? {
            return Ok(xtables::Removed::default());
        }
        Ok(xtables::XtEngine::open()?.remove(&ours_and(named)))
    };
    let removed = remove().map(|removed| {
        let changes = removed.ops.into_iter().map(Change::legacy).collect();
        (changes, removed.failures)
    });
    removed.unwrap_or_else(|e| (Vec::new(), vec![e]))
}

/// Removes owned tables in one transaction.
pub(super) fn clean_nft(scheme: &Scheme) -> Removed {
    let removed = without_nft(|| {
        let (nothing, mut engine) = (nft::Ruleset::default(), nft::NftEngine::open()?);
        Ok(engine.apply(&nothing, &scheme.owned())?.ops)
    });
    removed.map_or_else(|e| (Vec::new(), vec![e]), |changes| (changes, Vec::new()))
}

/// Calls `f`; a kernel without nf_tables has nothing to change.
pub(super) fn without_nft(f: impl FnOnce() -> Result<Vec<nft::NftOp>>) -> Result<Vec<Change>> {
    match f() {
        Ok(ops) => Ok(ops.into_iter().map(Change::Rules).collect()),
        Err(e) if e.is_unsupported() => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Reads the existing legacy tables of this thread's namespace in which a redirection may have rules. Other tables may
/// be large and are not read.
pub(super) fn read_legacy() -> Result<xtables::Ruleset> {
    if !has_legacy_tables()? {
        return Ok(xtables::Ruleset::default());
    }
    let mut engine = xtables::XtEngine::open()?;
    let mut there = Vec::new();
    for family in [xtables::XtFamily::Ip, xtables::XtFamily::Ip6] {
        let names = engine.names(family)?.into_iter();
        let names = names.filter(|name| LEGACY_TABLES.contains(&name.as_str()));
        there.extend(names.map(|name| (family, name)));
    }
    Ok(engine.read_tables(&there)?.ruleset)
}

/// Ownership that covers owned rules and, in built-in chains, the rules that a given plan would have made.
fn ours_and(named: Named<'_>) -> xtables::Ownership {
    xtables::Ownership {
        rules: named.rules().into_owned(),
        ..named.0.ownership()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sandbox;
    use super::*;
    use crate::config::{Inbound, Intent};
    use weir_testing::tool::output;

    /// A permanent failure in one engine does not prevent a retry in the other.
    #[test]
    fn every_part_of_a_removal_has_its_own_second_attempt() {
        let calls = [const { std::cell::Cell::new(0) }; 3];
        let count = |at: usize| calls[at].replace(calls[at].get() + 1);
        let busy = || Error::exhausted("remove", "legacy", "another writer");
        let gone = || vec![Change::Hindrance("one".to_owned())];
        let lost = || Error::kernel("remove", "tables", Errno::ENOBUFS as i32);
        let (changes, failures) = each_twice([
            &|| (count(0), (Vec::new(), vec![busy()])).1,
            &|| match count(1) {
                0 => (Vec::new(), vec![lost()]),
                _ => (gone(), Vec::new()),
            },
            &|| (count(2), Removed::default()).1,
        ]);
        assert_eq!(calls.map(|calls| calls.get()), [1, 2, 1]);
        assert_eq!(changes, gone());
        let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
        assert_eq!(failures, [busy().to_string()]);
    }

    /// The engine in use, or `None`.
    fn in_use(sandbox: &Sandbox) -> Option<compile::Engine> {
        sandbox
            .visit(|visit| visit.engine_in_use().unwrap())
            .unwrap()
    }

    #[test]
    fn an_empty_table_beside_legacy_rules_is_not_in_use() {
        let netns = weir_testing::namespace_or_skip!();
        if !netns.run(legacy_can_be_used).unwrap() {
            println!("skipped: no legacy tables");
            return;
        }
        let run = |command: &str| assert_eq!(output(&netns, command), "");
        run("ip link set lo up");
        let sandbox = Sandbox::of(netns.try_clone().unwrap()).unwrap();
        let intent = Intent {
            inbound: Inbound::All,
            ..Intent::default()
        };
        let compiled = |engine| compile::compile_chosen(&intent, engine);
        let apply = || {
            sandbox
                .visit(|visit| visit.apply_intent(&intent, None))
                .unwrap()
        };
        let legacy = compiled(compile::Engine::Xtables);
        sandbox.apply(&legacy).unwrap();

        run("nft add table inet istio-proxy-nat");
        assert_eq!(in_use(&sandbox), Some(compile::Engine::Xtables));
        let found = sandbox.verify(&legacy).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        // A second `apply` keeps the engine and removes the table.
        let applied = apply().unwrap();
        assert_eq!(applied.engine, compile::Engine::Xtables);
        assert_eq!(applied.changes, found);
        run("nft list tables");

        // Rules of nf_tables are in use beside legacy ones, also if they were flushed.
        run("nft add table inet istio-proxy-nat");
        run("nft add chain inet istio-proxy-nat istio-output");
        assert_eq!(in_use(&sandbox), Some(compile::Engine::Nft));
        let applied = apply().unwrap();
        assert_eq!(applied.engine, compile::Engine::Nft);
        assert_eq!(sandbox.verify(&compiled(compile::Engine::Nft)).unwrap(), []);
    }

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
