//! Plan, change, read back, compare.

use super::plan::{IpsetOp, plan, temporary};
use super::{Existing, IpsetEngine};
use crate::converge::{Committed, Converge, ReadBack, converge};
use crate::ipset::codec;
use crate::ipset::model::Set;
use weir_netlink::contention::CONTENTION;
use weir_netlink::{Error, ErrorKind, InForce, Result, Transport};

/// What [`IpsetEngine::apply`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpsetApplied {
    /// The changes that were made, in this order; empty when the sets were in sync.
    pub ops: Vec<IpsetOp>,
}

impl<T: Transport> IpsetEngine<T> {
    /// Makes the sets `owned` equal `desired`, destroys owned sets that are not desired, then reads them back.
    ///
    /// Other sets are not touched. Nothing is written if the sets are in sync. ipset has no transactions: the changes take
    /// effect one after the other, but the content of a set with other options is replaced atomically, see [`plan`].
    ///
    /// # Errors
    /// A desired set is not among the owned sets, or a value does not fit its attribute: nothing is changed. A refusal of the
    /// kernel; earlier changes remain, and the next call continues from there. Deletions are independent: the error names
    /// all sets that cannot be destroyed. The actual state is not what the kernel acknowledged. [`Error::in_force`] is no if
    /// the sets are unchanged, unknown if only some operations are in force.
    pub fn apply(&mut self, desired: &[Set], owned: &[String]) -> Result<IpsetApplied> {
        refuse_foreign("apply", desired, owned)?;
        // Before any change, and before the plan converts them to the canonical form.
        for set in desired {
            let name = &set.header.name;
            codec::check_header("create", &set.header)?;
            let mut entries = set.entries.iter();
            entries.try_for_each(|e| codec::check_entry("add", name, e))?;
        }
        let mut desired = Desired {
            engine: self,
            sets: desired,
            owned,
        };
        let done = converge(&mut desired, CONTENTION)?;
        Ok(IpsetApplied { ops: done.ops })
    }

    /// The operations that [`IpsetEngine::apply`] would send now; empty if the sets are in sync.
    ///
    /// # Errors
    /// A desired set is not among the owned sets. The sets cannot be read.
    pub fn drift(&mut self, desired: &[Set], owned: &[String]) -> Result<Vec<IpsetOp>> {
        refuse_foreign("compare", desired, owned)?;
        Ok(plan(desired, &self.read_owned(owned)?, owned))
    }

    /// The owned sets that exist, and unfinished replacements of them.
    fn read_owned(&mut self, owned: &[String]) -> Result<Vec<Set>> {
        let mut sets: Vec<Set> = Vec::new();
        for name in owned
            .iter()
            .cloned()
            .chain(owned.iter().map(|n| temporary(n)))
        {
            if sets.iter().any(|s| s.header.name == name) {
                continue;
            }
            match self.list(Some(&name)) {
                Ok(listed) => sets.extend(listed.into_iter().map(|l| l.set)),
                Err(e) if e.is_not_found() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(sets)
    }

    /// Executes the operations in order, up to the first failure. A failed deletion, as of a set that a rule refers to, does
    /// not stop the others, since no operation depends on it; the error names all that failed.
    fn run_all(&mut self, desired: &[Set], ops: &[IpsetOp]) -> Result<()> {
        let mut failed: Option<Error> = None;
        for op in ops {
            let Err(e) = self.run(op) else {
                continue;
            };
            let is_lost = !matches!(
                e.kind,
                ErrorKind::Kernel { .. } | ErrorKind::Translated { .. }
            );
            match &mut failed {
                None => failed = Some(e),
                Some(first) => first.object += &format!(" (and: {e})"),
            }
            let is_removal = matches!(op, IpsetOp::Destroy(name) if desired.iter().all(|s| s.header.name != *name));
            // After a lost answer, the socket could return it as the answer to the next request.
            if !is_removal || is_lost && self.socket.reopen().is_err() {
                break;
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn run(&mut self, op: &IpsetOp) -> Result<()> {
        match op {
            IpsetOp::Create(header) => self.create(header, Existing::Refuse),
            IpsetOp::Add(set, entries) => self.add(set, entries, Existing::Accept),
            IpsetOp::Delete(set, entries) => self.delete(set, entries, Existing::Accept),
            IpsetOp::Swap(a, b) => self.swap(a, b),
            IpsetOp::Destroy(set) => match self.destroy(set) {
                Err(e) if e.is_not_found() => Ok(()),
                other => other,
            },
        }
    }

    /// Destroys the unfinished replacement after a failure. Only that failure is reported.
    fn drop_temporary(&mut self, ops: &[IpsetOp]) {
        for op in ops {
            if let IpsetOp::Swap(temporary, _) = op {
                let _ = self.destroy(temporary);
            }
        }
    }
}

/// Every desired set must be owned: others are neither compared nor changed.
fn refuse_foreign(operation: &str, desired: &[Set], owned: &[String]) -> Result<()> {
    let Some(s) = desired.iter().find(|s| !owned.contains(&s.header.name)) else {
        return Ok(());
    };
    let reason = "it is not among the owned sets: name it there too";
    let object = format!("set {}", s.header.name);
    Err(Error::refused(operation, object, reason))
}

/// The desired content of the owned sets.
struct Desired<'a, T: Transport> {
    engine: &'a mut IpsetEngine<T>,
    sets: &'a [Set],
    owned: &'a [String],
}

impl<T: Transport> Converge for Desired<'_, T> {
    type Observed = Vec<Set>;
    type Plan = Vec<IpsetOp>;
    type Op = IpsetOp;

    const OBJECT: &'static str = "the sets";

    fn observe(&mut self) -> Result<Vec<Set>> {
        self.engine.read_owned(self.owned)
    }

    fn plan(&mut self, observed: &Vec<Set>) -> Result<Vec<IpsetOp>> {
        Ok(plan(self.sets, observed, self.owned))
    }

    fn ops(plan: &mut Vec<IpsetOp>) -> &mut Vec<IpsetOp> {
        plan
    }

    /// ipset has no transactions: an operation remains in force if the next one is refused.
    fn commit(&mut self, ops: &mut Vec<IpsetOp>, _: u32) -> Result<Committed> {
        let Err(e) = self.engine.run_all(self.sets, ops) else {
            return Ok(Committed::Yes);
        };
        if self.reopen().is_ok() {
            self.engine.drop_temporary(ops);
        }
        Err(e.with_in_force(InForce::Unknown))
    }

    fn read_back(&mut self, _: &Vec<IpsetOp>, _: &Vec<Set>) -> Result<ReadBack<Vec<Set>>> {
        let now = self.observe()?;
        let missing = self.plan(&now)?;
        Ok(match missing.is_empty() {
            true => ReadBack::InSync(now),
            false => ReadBack::differs("sets", &missing, false),
        })
    }

    fn is_same(&mut self, before: &Vec<Set>, now: &Vec<Set>) -> bool {
        // Timeouts count down.
        plan(self.sets, before, self.owned) == plan(self.sets, now, self.owned)
    }

    fn reopen(&mut self) -> Result<()> {
        self.engine.socket.reopen()
    }
}
