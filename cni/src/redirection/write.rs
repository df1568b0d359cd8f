//! Writes rules with one engine, reads them back, and removes them after a failure.

use super::engines::{self, Found, Removed, is_lack, twice};
use super::named::Named;
use super::{AppliedRedirection, Change, leftovers};
use crate::compile::{self, Compiled, Rules};
use weir_netfilter::nft::{self, TableId};
use weir_netfilter::xtables;
use weir_netlink::{Error, InForce, Result};

/// One engine in the namespace of this thread, and its desired rules.
pub(super) struct Writer<'a> {
    pub(super) desired: &'a Compiled,
    engine: Engine<'a>,
    /// True if the engine held owned rules before, or another process wrote the same rules since.
    replaces: bool,
    /// True if the other engine, or a table that iptables-nft uses, may have held owned rules before.
    succeeds: bool,
    /// True if legacy tables held any owned rule before.
    legacy_remains: bool,
    /// The nf_tables tables that existed after the rules were written.
    tables: Vec<TableId>,
}

enum Engine<'a> {
    Nft(nft::NftEngine, &'a nft::Ruleset),
    Xtables(xtables::XtEngine, &'a xtables::Ruleset),
}

impl<'a> Writer<'a> {
    /// Creates a writer for the namespace in which `found` was read; changes nothing.
    pub(super) fn open(desired: &'a Compiled, found: Found) -> Result<Self> {
        let (by_legacy, legacy_remains) = (found.legacy_holds, found.legacy_remains);
        let (engine, tables, replaces, other) = match &desired.rules {
            Rules::Nft(rules) => {
                let (engine, tables) = found.nft?;
                let by_nft = desired.scheme().holds(&tables);
                (Engine::Nft(engine, rules), tables, by_nft, by_legacy)
            }
            Rules::Xtables(rules) => {
                let tables = match found.nft {
                    Ok((_, tables)) => tables,
                    // A kernel without nf_tables has no tables.
                    Err(e) if is_lack(&e) => Vec::new(),
                    Err(e) => return Err(e),
                };
                let by_nft = desired.scheme().holds(&tables);
                let engine = Engine::Xtables(xtables::XtEngine::open()?, rules);
                (engine, tables, by_legacy, by_nft)
            }
        };
        Ok(Self {
            desired,
            engine,
            replaces,
            succeeds: other || leftovers::may_be_in(&tables),
            legacy_remains,
            tables: Vec::new(),
        })
    }

    /// Writes the rules and reads them back.
    ///
    /// # Errors
    /// [`Error::in_force`] states what is known about the rules.
    pub(super) fn write(&mut self) -> Result<AppliedRedirection> {
        let scheme = self.desired.scheme();
        let routing = self.desired.routing.clone();
        let written = match &mut self.engine {
            Engine::Nft(engine, rules) => {
                let applied = engine.apply(rules, &scheme.owned())?;
                self.tables = applied.tables;
                AppliedRedirection {
                    engine: compile::Engine::Nft,
                    changes: applied.ops.into_iter().map(Change::Rules).collect(),
                    kept: applied.kept.into_iter().map(Change::Kept).collect(),
                    read_back: applied.read_back,
                    lock_wait: None,
                    generation: Some(applied.generation),
                    routing,
                }
            }
            Engine::Xtables(engine, rules) => {
                let applied = engine.apply(rules, &scheme.ownership())?;
                AppliedRedirection {
                    engine: compile::Engine::Xtables,
                    changes: applied.ops.into_iter().map(Change::legacy).collect(),
                    kept: Vec::new(),
                    read_back: applied.read_back,
                    lock_wait: applied.lock_wait,
                    generation: None,
                    routing,
                }
            }
        };
        self.replaces |= written.changes.is_empty();
        Ok(written)
    }

    /// After a failure: removes the new rules if there were no owned rules before. Older owned rules are not
    /// restored, so new rules that replaced them are kept. Returns the resulting state and the errors.
    pub(super) fn take_back(&self, in_force: InForce) -> (InForce, Vec<Error>) {
        if in_force == InForce::No {
            return (in_force, Vec::new());
        }
        if self.replaces {
            return (self.now().unwrap_or(in_force), Vec::new());
        }
        let scheme = self.desired.scheme();
        let gone = || match self.desired.rules {
            Rules::Nft(_) => engines::clean_nft(scheme),
            Rules::Xtables(_) => engines::clean_legacy(Named(scheme, None)),
        };
        let (_, failures) = twice(gone(), gone);
        match failures.is_empty() {
            true => (InForce::No, failures),
            false => (self.now().unwrap_or(InForce::Unknown), failures),
        }
    }

    /// `Yes` if the kernel holds exactly these rules now; `None` if it holds others or cannot be read.
    pub(super) fn now(&self) -> Option<InForce> {
        matches!(self.holds(false), Ok(true)).then_some(InForce::Yes)
    }

    /// True if the kernel holds exactly these rules; with `beside` the same chains may hold additional ones.
    fn holds(&self, beside: bool) -> Result<bool> {
        let scheme = self.desired.scheme();
        Ok(match &self.desired.rules {
            Rules::Nft(rules) => {
                let is_more = |op: &_| beside && matches!(op, nft::NftOp::DeleteRule(..));
                let drift = nft::NftEngine::open()?.drift(rules, &scheme.owned())?;
                drift.ops.iter().all(is_more)
            }
            Rules::Xtables(rules) => {
                let is_more = |op: &_| beside && matches!(op, xtables::XtOp::DeleteRule(..));
                let drift = xtables::XtEngine::open()?.drift(rules, &scheme.ownership())?;
                drift.ops.iter().all(is_more)
            }
        })
    }

    /// True if the other engine, or a table that iptables-nft uses, may have held owned rules before.
    pub(super) fn succeeds(&self) -> bool {
        self.succeeds
    }

    /// True if the kernel is known to hold these rules, possibly with additional ones in the same chains.
    pub(super) fn stands(&self) -> bool {
        matches!(self.holds(true), Ok(true))
    }

    /// True if neither engine held owned rules before, so that these rules can be removed after a failure.
    pub(super) fn is_first(&self) -> bool {
        !self.replaces && !self.succeeds && !self.legacy_remains
    }

    /// True if another process has written owned rules since this writer was opened.
    ///
    /// # Errors
    /// The rules cannot be read, so those of another process may exist.
    pub(super) fn is_written_by_another(&self) -> Result<bool> {
        Ok(match self.is_first() {
            true => !engines::ours_left(Named(self.desired.scheme(), None))?.is_empty(),
            // Older rules need only the routing that existed together with them.
            false => self.holds(false)?,
        })
    }

    /// Removes the owned rules of the other engine and of iptables-nft; continues after a failure.
    pub(super) fn take_over(&mut self) -> Removed {
        let named = Named::plan(self.desired);
        let other = || match self.desired.rules {
            Rules::Nft(_) => engines::clean_legacy(named),
            Rules::Xtables(_) => engines::clean_nft(named.0),
        };
        let first = other();
        let left = match &mut self.engine {
            Engine::Nft(engine, _) => leftovers::remove_from(engine, &self.tables, named),
            Engine::Xtables(..) => leftovers::remove(named),
        };
        engines::each([
            twice(first, other),
            twice(left, || leftovers::remove(named)),
        ])
    }

    /// The tables in which older owned rules may remain if [`Writer::take_over`] fails.
    pub(super) fn beside(&self) -> &'static str {
        match self.desired.rules {
            Rules::Nft(_) => "legacy tables or tables of iptables-nft",
            Rules::Xtables(_) => "nf_tables",
        }
    }
}
