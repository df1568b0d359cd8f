//! Plan, change, read back, compare.

use super::plan::{Op, plan, temporary};
use super::{Engine, Existing};
use crate::ipset::model::Set;
use weir_netlink::nfnetlink::Transport;
use weir_netlink::{Error, InForce, Result};

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
    /// next call goes on from there. The kernel holds something else than it acknowledged. [`Error::in_force`] says what
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
        let ops = self.drift(desired, owned)?;
        if ops.is_empty() {
            return Ok(Applied { ops });
        }
        if let Err(e) = ops.iter().try_for_each(|op| self.run(op)) {
            return self.found_out(desired, owned, ops, e);
        }
        let missing = self.drift(desired, owned);
        let missing = missing.map_err(|e| e.with_in_force(InForce::Yes))?;
        match missing.first() {
            None => Ok(Applied { ops }),
            Some(first) => {
                let first = first.to_string();
                let first = first.lines().next().unwrap_or_default();
                let detail = format!(
                    "the kernel acknowledged the sets but lists others, or another writer changes them: \
                     still to do: {first}"
                );
                let error = Error::malformed("verify", "the sets", detail);
                Err(error.with_in_force(InForce::Yes))
            }
        }
    }

    /// What is in force after an operation failed, read on another socket. Its error is returned unless the kernel holds
    /// what is desired: only an answer was lost then.
    fn found_out(
        &mut self,
        desired: &[Set],
        owned: &[String],
        ops: Vec<Op>,
        failed: Error,
    ) -> Result<Applied> {
        if self.socket.reopen().is_err() {
            return Err(failed.with_in_force(InForce::Unknown));
        }
        self.drop_temporary(&ops);
        let in_force = match self.drift(desired, owned) {
            Ok(missing) if missing.is_empty() => return Ok(Applied { ops }),
            Ok(missing) if missing == ops => InForce::No,
            // Some of them are, or nobody knows.
            _ => InForce::Unknown,
        };
        Err(failed.with_in_force(in_force))
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
