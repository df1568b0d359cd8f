//! Commits a trial with the engine and deletes it.

use super::rows::OUT;
use super::{At, Trial};
use crate::nft::expr::Expr;
use crate::nft::{
    Chain, NftEngine, NftOp, Rule, Ruleset, Snapshot, Statement, Table, TableFamily, Transaction,
    UNGUARDED, plan,
};
use crate::probe::Answer;
use weir_netlink::{Error, ErrorKind, Result};

/// The name of the table, of its chain and of its set, and the text of comments.
pub(super) const NAME: &str = "weir";

impl At {
    /// The table with this chain and, unless it has no expressions, a rule in it.
    fn table(&self, exprs: Vec<Expr>) -> Table {
        let mut chain = Chain::base(NAME, self.kind.into(), self.hook, self.priority);
        if let (TableFamily::Netdev, Some(base)) = (self.family, &mut chain.base) {
            base.devices.push("lo".to_owned());
        }
        if !exprs.is_empty() {
            chain.rules.push(Rule {
                statements: vec![Statement::Opaque(exprs)],
                ..Rule::default()
            });
        }
        Table {
            chains: vec![chain],
            ..Table::new(self.family, NAME)
        }
    }
}

impl Trial {
    fn table(&self) -> Table {
        let inet = Table::new(TableFamily::Inet, NAME);
        match self {
            Self::Table(family) => Table::new(*family, NAME),
            Self::Chain(at) => at.table(Vec::new()),
            Self::Rule(at, exprs) => at.table(exprs()),
            Self::Set(set) => Table {
                sets: vec![set()],
                ..inet
            },
            Self::SetRule(set, exprs) => Table {
                sets: vec![set()],
                ..OUT.table(exprs())
            },
            Self::TableComment => Table {
                comment: Some(NAME.to_owned()),
                ..inet
            },
            Self::ChainComment => {
                let mut table = OUT.table(Vec::new());
                let comments = table.chains.iter_mut().map(|c| &mut c.comment);
                comments.for_each(|comment| *comment = Some(NAME.to_owned()));
                table
            }
            Self::Generation => inet,
        }
    }
}

/// A connection to nf_tables of a throwaway namespace.
pub(super) struct Lab(NftEngine);

impl Lab {
    /// Opens nf_tables in the network namespace of the calling thread; on failure, returns the answer for every trial.
    pub(super) fn open() -> Result<Self, Answer> {
        let opened = NftEngine::open().and_then(|mut engine| {
            engine.generation()?;
            Ok(Self(engine))
        });
        opened.map_err(|e| match e.is_unsupported() {
            true => Answer::Lack("the kernel has no nf_tables".to_owned()),
            false => Answer::Unknown(e.to_string()),
        })
    }

    /// Commits the table of a trial and deletes it.
    pub(super) fn try_one(&mut self, trial: &Trial) -> Result<()> {
        let table = trial.table();
        let id = (table.family, table.name.clone());
        let owned = std::slice::from_ref(&id);
        let desired = Ruleset {
            tables: vec![table],
        };
        let mut change = plan(&desired, &Snapshot::default(), owned);
        let is_late = matches!(trial, Trial::Generation);
        change.generation = match is_late {
            true => other_than(self.0.generation()?),
            false => UNGUARDED,
        };
        match self.send(&change) {
            Err(e) if is_late && e.is_stale_generation() => return Ok(()),
            sent => sent?,
        }
        let is_read = matches!(trial, Trial::TableComment | Trial::ChainComment);
        let drift = is_read.then(|| self.0.drift(&desired, owned));
        let delete = vec![NftOp::DeleteTable(id.clone())];
        self.send(&Transaction::guarded(UNGUARDED, delete))?;
        match drift.transpose()? {
            _ if is_late => Err(ignored("the kernel ignores the generation of a batch")),
            Some(drift) if !drift.ops.is_empty() => Err(ignored("the kernel does not keep it")),
            _ => Ok(()),
        }
    }

    fn send(&mut self, change: &Transaction) -> Result<()> {
        let refused = self.0.send(change)?.err();
        match refused.and_then(|(refusals, _)| refusals.into_iter().next()) {
            Some(first) => Err(first.into_error("commit it", "")),
            None => Ok(()),
        }
    }
}

/// Returns a generation that differs from the ruleset's. It is never 0, which precedes the 1 of a new namespace: the kernel
/// does not compare it (`nf_tables_valid_genid()`, net/netfilter/nf_tables_api.c).
fn other_than(generation: u32) -> u32 {
    match generation.wrapping_sub(1) {
        0 => u32::MAX,
        before => before,
    }
}

/// The error for a request that was acknowledged without effect: the kernel ignores unknown attributes.
fn ignored(what: &str) -> Error {
    let kind = ErrorKind::Kernel {
        errno: libc::EOPNOTSUPP,
        extack: Some(what.to_owned()),
        attribute: None,
    };
    Error::new("use it", "", kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_netlink::Netns;

    #[test]
    fn a_fresh_namespace_refuses_a_stale_generation() {
        let ns = match Netns::create() {
            Ok(ns) => ns,
            Err(e) => {
                assert!(e.is_permission(), "{e}");
                eprintln!("skipped: {e}");
                return;
            }
        };
        let refused = ns.run(|| {
            let mut lab = Lab::open().expect("nf_tables");
            lab.try_one(&Trial::Generation)
        });
        refused.expect("entered").expect("the kernel looks at it");
    }
}
