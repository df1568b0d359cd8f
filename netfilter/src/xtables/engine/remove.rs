//! Tear-down: each table by itself, so that one that fails keeps no other from being cleaned.

use super::{Applied, Desired, Engine, Op, Ownership, Transport, lock};
use crate::xtables::{Family, Ruleset};
use weir_netlink::Error;

/// What [`Engine::remove`] did.
#[derive(Debug, Default)]
pub struct Removed {
    /// What was removed, in this order.
    pub ops: Vec<Op>,
    /// Every table, or list of tables, that failed: what is ours there stays.
    pub failures: Vec<Error>,
}

impl<T: Transport> Engine<T> {
    /// Removes all that is ours from every table that exists, and reads each back. Unlike [`Engine::apply`] of nothing it
    /// goes on after a failure: what could be removed stays removed.
    ///
    /// A failure is the list of a family's tables that cannot be read, or what [`Engine::apply`] says of a table.
    pub fn remove(&mut self, ours: &Ownership) -> Removed {
        let mut removed = Removed::default();
        let _lock = match lock::take(self.writers) {
            Ok(lock) => lock,
            Err(e) => {
                removed.failures.push(e);
                return removed;
            }
        };
        let nothing = Ruleset::default();
        for family in [Family::Ip, Family::Ip6] {
            let names = self.names(family).unwrap_or_else(|e| {
                removed.failures.push(e);
                Vec::new()
            });
            for name in names {
                // A foreign table may be large, and is looked through without being held as values.
                let is_named = ours.rules.table(family, &name).is_some();
                let may_hold = match is_named {
                    true => Ok(true),
                    false => self.holds_in(family, &name, ours),
                };
                let done = may_hold.and_then(|may_hold| {
                    if !may_hold {
                        return Ok(Applied::default());
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
