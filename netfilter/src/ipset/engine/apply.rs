//! Plan, change, read back, compare.

use super::plan::{Op, plan, temporary};
use super::{Engine, Existing};
use crate::converge::{Committed, Converge, ReadBack, converge};
use crate::ipset::codec;
use crate::ipset::model::Set;
use weir_netlink::Transport;
use weir_netlink::contention::CONTENTION;
use weir_netlink::{Error, ErrorKind, InForce, Result};

/// What [`Engine::apply`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// What was changed, in this order; empty when the kernel held what is desired.
    pub ops: Vec<Op>,
}

impl<T: Transport> Engine<T> {
    /// Makes the sets `owned` be `desired`, and absent when not desired, then reads them back. Sets that are
    /// not named are not touched. Nothing is written when nothing differs.
    ///
    /// # Errors
    /// A desired set is not among the owned ones. What the kernel refused; what was done before stays, and the
    /// next call goes on from there. Sets that are to go do not wait for each other: all that cannot be destroyed are
    /// named. The kernel holds something else than it acknowledged. [`Error::in_force`] says what
    /// is known: no when the sets are as they were, not known when some operations are in force and others are not.
    pub fn apply(&mut self, desired: &[Set], owned: &[String]) -> Result<Applied> {
        if let Some(s) = desired.iter().find(|s| !owned.contains(&s.header.name)) {
            let reason = "it is not among the sets that may be changed: name it there too";
            return Err(Error::refused(
                "apply",
                format!("set {}", s.header.name),
                reason,
            ));
        }
        // Before anything is made, and before the plan brings them into the form that the kernel keeps.
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
        Ok(Applied { ops: done.ops })
    }

    /// What `apply` would do now.
    ///
    /// # Errors
    /// The sets cannot be read.
    pub fn drift(&mut self, desired: &[Set], owned: &[String]) -> Result<Vec<Op>> {
        Ok(plan(desired, &self.read_owned(owned)?, owned))
    }

    /// The owned sets that are there, and those that were being built for them.
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

    /// One after the other, up to the first that fails. But on the removal of a set nothing depends: one that fails, as of a
    /// set that a rule names, keeps no other set, and the error names all that failed.
    fn run_all(&mut self, desired: &[Set], ops: &[Op]) -> Result<()> {
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
            let is_removal =
                matches!(op, Op::Destroy(name) if desired.iter().all(|s| s.header.name != *name));
            // After a lost answer the next would be taken for it.
            if !is_removal || is_lost && self.socket.reopen().is_err() {
                break;
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn run(&mut self, op: &Op) -> Result<()> {
        match op {
            Op::Create(header) => self.create(header, Existing::Refuse),
            Op::Add(set, entries) => self.add(set, entries, Existing::Accept),
            Op::Delete(set, entries) => self.delete(set, entries, Existing::Accept),
            Op::Swap(a, b) => self.swap(a, b),
            Op::Destroy(set) => match self.destroy(set) {
                Err(e) if e.is_not_found() => Ok(()),
                other => other,
            },
        }
    }

    /// After a failure: the half-built set is nobody's. The failure itself is what is reported.
    fn drop_temporary(&mut self, ops: &[Op]) {
        for op in ops {
            if let Op::Swap(temporary, _) = op {
                let _ = self.destroy(temporary);
            }
        }
    }
}

/// What the owned sets are to be.
struct Desired<'a, T: Transport> {
    engine: &'a mut Engine<T>,
    sets: &'a [Set],
    owned: &'a [String],
}

impl<T: Transport> Converge for Desired<'_, T> {
    type Observed = Vec<Set>;
    type Plan = Vec<Op>;
    type Op = Op;

    const OBJECT: &'static str = "the sets";

    fn observe(&mut self) -> Result<Vec<Set>> {
        self.engine.read_owned(self.owned)
    }

    fn plan(&mut self, observed: &Vec<Set>) -> Result<Vec<Op>> {
        Ok(plan(self.sets, observed, self.owned))
    }

    fn ops(plan: &mut Vec<Op>) -> &mut Vec<Op> {
        plan
    }

    /// There is no transaction: what one operation did stays when the next is refused.
    fn commit(&mut self, ops: &mut Vec<Op>, _: u32) -> Result<Committed> {
        let Err(e) = self.engine.run_all(self.sets, ops) else {
            return Ok(Committed::Yes);
        };
        if self.reopen().is_ok() {
            self.engine.drop_temporary(ops);
        }
        Err(e.with_in_force(InForce::Unknown))
    }

    fn read_back(&mut self, _: &Vec<Op>, _: &Vec<Set>) -> Result<ReadBack<Vec<Set>>> {
        let now = self.observe()?;
        let missing = self.plan(&now)?;
        Ok(match missing.is_empty() {
            true => ReadBack::InSync(now),
            false => ReadBack::differs("sets", &missing, false),
        })
    }

    fn is_same(&mut self, before: &Vec<Set>, now: &Vec<Set>) -> bool {
        // Timeouts run down.
        plan(self.sets, before, self.owned) == plan(self.sets, now, self.owned)
    }

    fn reopen(&mut self) -> Result<()> {
        self.engine.socket.reopen()
    }
}
