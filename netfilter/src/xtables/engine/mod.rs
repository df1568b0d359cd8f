//! The engine: reads tables from the kernel, plans a change, applies it, reads it back.
//!
//! ```text
//! read -> Snapshot              every table that exists, with bytes and counters
//! plan(desired, snapshot, ...)  pure: the operations that are missing, printable
//! commit(transaction)           one replacement for each family and table, counters kept
//! apply = lock, read, plan, commit, read back, compare
//! remove                        the same for each table by itself, going on after a failure
//! ```
//! A replacement is atomic for its table. Everything is encoded and checked before the first one; when a later
//! one fails, the tables before it are put back, with their counters.

mod check;
mod commit;
mod desired;
mod lock;
mod ownership;
mod plan;
mod read;
mod remove;
mod replay;
mod transport;

pub use check::Checked;
use desired::{Change, Desired};
pub use lock::Writers;
pub use ownership::Ownership;
pub use plan::{Op, Transaction, plan};
pub use read::Snapshot;
pub use remove::Removed;
pub use replay::plan_restore;
pub use transport::{Kernel, Transport};

use super::ext::{Form, Part};
use super::sets::{Sets, SocketSets};
use super::text::Script;
use super::{Family, Ruleset};
use crate::converge::converge;
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;
use weir_netlink::Result;
use weir_netlink::contention::CONTENTION;

/// A table by family and name.
pub type TableId = (Family, String);

/// A connection to the legacy tables of one network namespace.
pub struct Engine<T: Transport = Kernel> {
    transport: T,
    sets: Box<dyn Sets + Send>,
    writers: Writers,
    contention: Duration,
    /// What the kernel was asked about extensions.
    known: HashMap<(Family, Part, Form), bool>,
}

/// What [`Engine::apply`] did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applied {
    /// What was changed, in this order; empty when the kernel held what is desired.
    pub ops: Vec<Op>,
    /// How many tables were replaced, repeats included.
    pub replaced: usize,
    /// How long the lock of the tools was waited for; `None` when it was not taken.
    pub lock_wait: Option<Duration>,
    /// How long reading back took; `None` when nothing was written, and for [`Engine::restore`], which does not.
    pub read_back: Option<Duration>,
}

impl<T: Transport> fmt::Debug for Engine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("writers", &self.writers)
            .finish_non_exhaustive()
    }
}

impl Engine<Kernel> {
    /// In the network namespace of the calling thread, where nobody else writes.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_RAW.
    pub fn open() -> Result<Self> {
        Ok(Self::with_transport(
            Kernel::open()?,
            Box::new(SocketSets::open()?),
        ))
    }
}

impl<T: Transport> Engine<T> {
    /// On a connection that is open already, with somebody who knows the sets.
    pub fn with_transport(transport: T, sets: Box<dyn Sets + Send>) -> Self {
        Self {
            transport,
            sets,
            writers: Writers::OnlyUs,
            contention: CONTENTION,
            known: HashMap::new(),
        }
    }

    /// With another one who knows the sets.
    #[must_use]
    pub fn sets(mut self, sets: Box<dyn Sets + Send>) -> Self {
        self.sets = sets;
        self
    }

    /// Tries again for this long while another writer interferes. Ten seconds unless it is said.
    #[must_use]
    pub fn contention(mut self, limit: Duration) -> Self {
        self.contention = limit;
        self
    }

    /// Says who else may write here.
    #[must_use]
    pub fn writers(mut self, writers: Writers) -> Self {
        self.writers = writers;
        self
    }

    /// Makes the kernel hold `desired`, and nothing else of ours, then reads it back.
    ///
    /// Nothing is written when nothing differs. Rules of others stay as they are, byte for byte, with their
    /// counters; so do the counters of our rules that stay.
    ///
    /// # Errors
    /// What the kernel refused, with the table; every table is as it was then, but for one that came
    /// into being. The lock could not be had in time. Another writer kept changing a table. The
    /// kernel holds something else than what it acknowledged. [`Error::in_force`](weir_netlink::Error::in_force)
    /// says what is known of the change; what could not be put back is named.
    pub fn apply(&mut self, desired: &Ruleset, ours: &Ownership) -> Result<Applied> {
        self.change(Desired::Rules(desired, ours.clone()))
    }

    /// What `apply` would do now. No table comes into being by it.
    ///
    /// # Errors
    /// The tables cannot be read, or what is wished cannot be written.
    pub fn drift(&mut self, desired: &Ruleset, ours: &Ownership) -> Result<Transaction> {
        plan(desired, &self.read()?, ours)
    }

    /// Runs a script (`iptables-restore`; with `keep`, `iptables-restore --noflush`).
    ///
    /// # Errors
    /// As [`Engine::apply`]; a command that cannot be done, with its line. Nothing is changed then.
    pub fn restore(&mut self, script: &Script, keep: bool) -> Result<Applied> {
        self.change(Desired::Script(script, keep))
    }

    fn change(&mut self, desired: Desired<'_>) -> Result<Applied> {
        let lock = lock::take(self.writers)?;
        let mut applied = self.converge(desired, None)?;
        applied.lock_wait = lock.waited;
        Ok(applied)
    }

    /// In one table, or in all that exist.
    fn converge(&mut self, desired: Desired<'_>, table: Option<TableId>) -> Result<Applied> {
        let limit = self.contention;
        let is_compared = matches!(desired, Desired::Rules(..));
        let mut change = Change {
            engine: self,
            desired,
            table,
            replaced: 0,
            pending: false,
        };
        let done = converge(&mut change, limit)?;
        Ok(Applied {
            ops: done.ops,
            replaced: change.replaced,
            lock_wait: None,
            read_back: done.read_back.filter(|_| is_compared),
        })
    }
}
