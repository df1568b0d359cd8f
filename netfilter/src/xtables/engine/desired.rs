//! The desired state of legacy tables, for the common loop.

use super::{
    Ownership, Snapshot, TableId, Transaction, XtEngine, XtOp, XtTransport, plan, plan_restore,
};
use crate::converge::{Committed, Converge, ReadBack};
use crate::xtables::Ruleset;
use crate::xtables::text::Script;
use weir_netlink::{ErrorKind, InForce, Result};

/// The desired state, or the script that leads to it.
pub(super) enum Desired<'a> {
    /// These rules, and no other owned rules.
    Rules(&'a Ruleset, Ownership),
    /// A script that is applied to the existing rules; true if tables are not flushed first.
    Script(&'a Script, bool),
}

/// A change of one engine.
pub(super) struct Change<'a, T: XtTransport> {
    pub(super) engine: &'a mut XtEngine<T>,
    pub(super) desired: Desired<'a>,
    /// The only table in scope; `None` for all existing tables.
    pub(super) table: Option<TableId>,
    /// Number of replacements of tables, including repetitions.
    pub(super) replaced: usize,
    /// Whether a child process may still be replacing a table, so that the state that was read may change.
    pub(super) pending: bool,
}

impl<T: XtTransport> Change<'_, T> {
    fn read(&mut self) -> Result<Snapshot> {
        match &self.table {
            Some(table) => self.engine.read_tables(std::slice::from_ref(table)),
            None => self.engine.read(),
        }
    }

    fn planned(&self, observed: &Snapshot) -> Result<Transaction> {
        match &self.desired {
            Desired::Rules(rules, ours) => plan(rules, observed, ours),
            Desired::Script(script, keep) => plan_restore(script, observed, *keep),
        }
    }
}

impl<T: XtTransport> Converge for Change<'_, T> {
    type Observed = Snapshot;
    type Plan = Transaction;
    type Op = XtOp;

    const OBJECT: &'static str = "the legacy tables";

    fn observe(&mut self) -> Result<Snapshot> {
        self.read()
    }

    fn plan(&mut self, observed: &Snapshot) -> Result<Transaction> {
        let transaction = self.planned(observed)?;
        let absent = transaction.absent();
        if absent.is_empty() {
            return Ok(transaction);
        }
        // The tables must exist before they can be replaced. They are read again, since they need not be empty then.
        self.engine.read_tables(&absent)?;
        let there = self.read()?;
        self.planned(&there)
    }

    fn ops(plan: &mut Transaction) -> &mut Vec<XtOp> {
        &mut plan.ops
    }

    fn commit(&mut self, plan: &mut Transaction, _: u32) -> Result<Committed> {
        match self.engine.commit(plan) {
            Ok(replaced) => {
                self.replaced += replaced;
                if let Desired::Rules(_, ours) = &mut self.desired {
                    // The listed rules are deleted now, so another rule that equals one of them is foreign.
                    ours.rules = Ruleset::default();
                }
                Ok(Committed::Yes)
            }
            Err(e) if e.errno() == Some(libc::EAGAIN) && e.in_force == InForce::No => {
                Ok(Committed::Late)
            }
            Err(e) => {
                self.pending |= matches!(e.kind, ErrorKind::TimedOut(_));
                Err(e)
            }
        }
    }

    fn read_back(&mut self, _: &Transaction, _: &Snapshot) -> Result<ReadBack<Snapshot>> {
        // The commands of a script do not define a state that could be compared.
        if matches!(self.desired, Desired::Script(..)) {
            return Ok(ReadBack::InSync(Snapshot::default()));
        }
        let now = self.read()?;
        let missing = self.planned(&now)?.ops;
        Ok(match missing.is_empty() {
            true => ReadBack::InSync(now),
            false => ReadBack::differs("rules", &missing, false),
        })
    }

    fn is_same(&mut self, before: &Snapshot, now: &Snapshot) -> bool {
        !self.pending && before.ruleset == now.ruleset
    }

    /// Does nothing: each request is one system call, so that no answer can be late.
    fn reopen(&mut self) -> Result<()> {
        Ok(())
    }

    fn is_idempotent(&self) -> bool {
        matches!(self.desired, Desired::Rules(..))
    }
}
