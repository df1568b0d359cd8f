//! Rules into one engine: written, read back, taken back.

use super::engines::{self, Removed, holds, legacy_holds_ours, ours, owned};
use super::{Change, Cost, leftovers};
use crate::compile::Rules;
use weir_netfilter::nft::{self, TableId};
use weir_netfilter::xtables;
use weir_netlink::{Error, InForce, Result};

/// One engine in the namespace of this thread, and the rules that it is to hold.
pub(super) struct Writer<'a> {
    rules: &'a Rules,
    engine: Engine,
    /// Whether it held rules of ours before.
    replaces: bool,
}

enum Engine {
    Nft(nft::Engine),
    Xtables(xtables::Engine),
}

/// Rules that were written and read back.
pub(super) struct Written {
    pub(super) changes: Vec<Change>,
    pub(super) cost: Cost,
    /// The tables of nf_tables that there are then, where that was read.
    tables: Vec<TableId>,
}

impl Engine {
    fn open(rules: &Rules) -> Result<Self> {
        Ok(match rules {
            Rules::Nft(_) => Self::Nft(nft::Engine::open()?),
            Rules::Xtables(_) => Self::Xtables(xtables::Engine::open()?),
        })
    }
}

impl<'a> Writer<'a> {
    /// Looks what is there; changes nothing.
    pub(super) fn open(rules: &'a Rules) -> Result<Self> {
        let mut engine = Engine::open(rules)?;
        let replaces = match &mut engine {
            Engine::Nft(engine) => holds(&engine.tables()?),
            Engine::Xtables(_) => legacy_holds_ours()?,
        };
        Ok(Self {
            rules,
            engine,
            replaces,
        })
    }

    /// Writes the rules and reads them back.
    ///
    /// # Errors
    /// [`Error::in_force`] tells what is known about them.
    pub(super) fn write(&mut self) -> Result<Written> {
        match (&mut self.engine, self.rules) {
            (Engine::Nft(engine), Rules::Nft(rules)) => {
                let applied = engine.apply(rules, &owned())?;
                Ok(Written {
                    changes: applied.ops.into_iter().map(Change::Rules).collect(),
                    cost: Cost {
                        read_back: applied.read_back,
                        lock_wait: None,
                    },
                    tables: applied.tables,
                })
            }
            (Engine::Xtables(engine), Rules::Xtables(rules)) => {
                let applied = engine.apply(rules, &ours())?;
                Ok(Written {
                    changes: applied.ops.into_iter().map(Change::legacy).collect(),
                    cost: Cost {
                        read_back: applied.read_back,
                        lock_wait: applied.lock_wait,
                    },
                    tables: Vec::new(),
                })
            }
            _ => Err(Error::refused(
                "write",
                "the rules",
                "they are another engine's",
            )),
        }
    }

    /// After a failure: takes the rules away again when nothing of ours was there before; older rules of ours are not
    /// brought back, so new ones that replaced them stay. Returns what is known then, and what failed.
    pub(super) fn take_back(&self, in_force: InForce) -> (InForce, Vec<Error>) {
        if in_force == InForce::No {
            return (in_force, Vec::new());
        }
        if self.replaces {
            return (self.now().unwrap_or(in_force), Vec::new());
        }
        let gone = || match self.rules {
            Rules::Nft(_) => engines::clean_nft(),
            Rules::Xtables(_) => engines::clean_legacy(&ours()),
        };
        // The second try is for a lost answer.
        let failures = match gone().1 {
            failures if failures.is_empty() => failures,
            _ => gone().1,
        };
        match failures.is_empty() {
            true => (InForce::No, failures),
            false => (self.now().unwrap_or(InForce::Unknown), failures),
        }
    }

    /// Whether the kernel holds exactly these rules now; `None` when it holds others or cannot be read.
    fn now(&self) -> Option<InForce> {
        let differs = match self.rules {
            Rules::Nft(rules) => {
                let drift = nft::Engine::open().and_then(|mut e| e.drift(rules, &owned()));
                !drift.ok()?.ops.is_empty()
            }
            Rules::Xtables(rules) => {
                let drift = xtables::Engine::open().and_then(|mut e| e.drift(rules, &ours()));
                !drift.ok()?.ops.is_empty()
            }
        };
        (!differs).then_some(InForce::Yes)
    }

    /// Takes away what the other engine, or iptables-nft, holds beside these rules; goes on after a failure.
    pub(super) fn take_over(&mut self, written: &Written) -> Removed {
        let none = xtables::Ruleset::default();
        let parts = match &mut self.engine {
            Engine::Nft(engine) => [
                engines::clean_legacy(&ours()),
                leftovers::remove_from(engine, &written.tables, &none),
            ],
            Engine::Xtables(_) => [engines::clean_nft(), leftovers::remove(&none)],
        };
        engines::each(parts)
    }
}
