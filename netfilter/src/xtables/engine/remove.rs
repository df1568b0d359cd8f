//! Tear-down, one table at a time, so that a failure in one does not prevent the deletion in others.

use super::{Desired, Ownership, XtApplied, XtEngine, XtOp, XtTransport, lock};
use crate::xtables::{Ruleset, XtFamily};
use weir_netlink::Error;

/// What [`XtEngine::remove`] did.
#[derive(Debug, Default)]
pub struct Removed {
    /// The changes that were made, in this order.
    pub ops: Vec<XtOp>,
    /// One error per table, or list of tables, that failed: the owned rules there are kept.
    pub failures: Vec<Error>,
}

impl<T: XtTransport> XtEngine<T> {
    /// Deletes everything that is owned from every existing table, and reads each table back.
    ///
    /// Unlike [`XtEngine::apply`] with an empty ruleset, it continues after a failure and keeps earlier deletions. The lock of
    /// the tools is taken only if something is to be deleted. A failure is a family's list of tables that cannot be read, or
    /// an error of [`XtEngine::apply`] for one table.
    pub fn remove(&mut self, ours: &Ownership) -> Removed {
        let mut removed = Removed::default();
        let mut lock = None;
        let nothing = Ruleset::default();
        for family in [XtFamily::Ip, XtFamily::Ip6] {
            let names = self.names(family).unwrap_or_else(|e| {
                removed.failures.push(e);
                Vec::new()
            });
            for name in names.into_iter().filter(|name| ours.is_in(name)) {
                // A foreign table may be large, and is scanned without being decoded into values.
                let is_named = ours.rules.table(family, &name).is_some();
                let may_hold = match is_named {
                    true => Ok(true),
                    false => self.holds_in(family, &name, ours),
                };
                if lock.is_none() && !matches!(may_hold, Ok(false)) {
                    match lock::take(self.writers, self.lock_file.as_deref()) {
                        Ok(taken) => lock = Some(taken),
                        Err(e) => {
                            removed.failures.push(e);
                            return removed;
                        }
                    }
                }
                let done = may_hold.and_then(|may_hold| {
                    if !may_hold {
                        return Ok(XtApplied::default());
                    }
                    let desired = Desired::Rules(&nothing, ours.clone());
                    self.converge(desired, Some((family, name)))
                });
                match done {
                    Ok(applied) => removed.ops.extend(applied.ops),
                    Err(e) => removed.failures.push(e),
                }
            }
        }
        removed
    }
}
