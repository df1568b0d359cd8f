//! The engine: reads tables from the kernel, plans a change, applies it, reads it back.
//!
//! ```text
//! read -> Snapshot              every table that exists, with bytes and counters
//! plan(desired, snapshot, ...)  pure: the operations that are missing, printable
//! commit(transaction)           one replacement for each family and table, counters kept
//! apply = lock, read, plan, commit, read back, compare
//! remove                        the same for each table by itself, continuing after a failure
//! ```
//! A replacement is atomic for its table. All tables are encoded and checked before the first replacement; if a later
//! replacement fails, the tables before it are restored with their counters.

mod check;
mod commit;
mod desired;
mod listing;
mod lock;
mod ownership;
mod plan;
mod read;
mod remove;
mod replay;
mod sizes;
mod transport;

pub use check::Checked;
pub(crate) use commit::revision_request;
use desired::{Change, Desired};
pub use listing::XtListing;
pub use lock::Writers;
pub use ownership::{OwnerChains, Ownership};
pub use plan::{Transaction, XtOp, canonical_table, plan};
pub use read::Snapshot;
pub use remove::Removed;
pub use replay::plan_restore;
pub use sizes::{XtOutline, XtSizes};
pub use transport::{XtSockets, XtTransport};

use super::ext::{Form, Part};
use super::sets::{Sets, SocketSets};
use super::text::Script;
use super::{Ruleset, XtFamily};
use crate::converge::converge;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use weir_netlink::Result;
use weir_netlink::contention::CONTENTION;

/// A table by family and name.
pub type TableId = (XtFamily, String);

/// A connection to the legacy tables of one network namespace.
#[doc(alias = "IPT_SO_SET_REPLACE")]
pub struct XtEngine<T: XtTransport = XtSockets> {
    transport: T,
    sets: Box<dyn Sets + Send>,
    writers: Writers,
    lock_file: Option<PathBuf>,
    contention: Duration,
    /// The extensions whose revisions were requested, and the kernel's answers.
    known: HashMap<(XtFamily, Part, Form), bool>,
}

/// What [`XtEngine::apply`] did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct XtApplied {
    /// The changes that were made, in this order; empty if the tables were in sync.
    pub ops: Vec<XtOp>,
    /// Number of replacements of tables, including repetitions.
    pub replaced: usize,
    /// How long the engine waited for the lock of the tools; `None` if it was not taken.
    pub lock_wait: Option<Duration>,
    /// Duration of reading back; `None` if nothing was written, and for [`XtEngine::restore`], which does not read back.
    pub read_back: Option<Duration>,
}

impl<T: XtTransport> fmt::Debug for XtEngine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("writers", &self.writers)
            .finish_non_exhaustive()
    }
}

impl XtEngine<XtSockets> {
    /// Opens the tables of the calling thread's network namespace, with [`Writers::OnlyUs`].
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`.
    pub fn open() -> Result<Self> {
        Ok(Self::with_transport(
            XtSockets::open()?,
            Box::new(SocketSets::open()?),
        ))
    }
}

impl<T: XtTransport> XtEngine<T> {
    /// Uses an open connection, and `sets` to resolve the names of sets.
    pub fn with_transport(transport: T, sets: Box<dyn Sets + Send>) -> Self {
        Self {
            transport,
            sets,
            writers: Writers::OnlyUs,
            lock_file: None,
            contention: CONTENTION,
            known: HashMap::new(),
        }
    }

    /// Sets another resolver of set names.
    #[must_use]
    pub fn sets(mut self, sets: Box<dyn Sets + Send>) -> Self {
        self.sets = sets;
        self
    }

    /// Sets how long reading and applying are retried while another writer interferes. Ten seconds by default.
    #[must_use]
    pub fn contention(mut self, limit: Duration) -> Self {
        self.contention = limit;
        self
    }

    /// Sets whether other programs write the tables, so that the lock of the tools is needed.
    #[must_use]
    pub fn writers(mut self, writers: Writers) -> Self {
        self.writers = writers;
        self
    }

    /// Sets the path of the lock file, for a process whose `/run` is not that of the tools. The environment variable
    /// `XTABLES_LOCKFILE`, which the tools read, too, has precedence.
    #[must_use]
    pub fn lock_file(mut self, file: Option<PathBuf>) -> Self {
        self.lock_file = file;
        self
    }

    /// Makes the tables hold `desired`, and no other owned rules, then reads them back.
    ///
    /// Nothing is written if they are in sync. Foreign rules are kept byte for byte, with their counters; owned rules that
    /// are kept keep their counters.
    ///
    /// # Errors
    /// A desired table or user chain is not owned: nothing is read or changed. A refusal of the kernel, with the table; every table is restored, except that a table that was created remains. The
    /// lock could not be acquired in time. Another writer kept changing a table. The actual state is not what the kernel
    /// acknowledged. [`Error::in_force`](weir_netlink::Error::in_force) reports whether the change is in force; the error
    /// names tables that could not be restored.
    pub fn apply(&mut self, desired: &Ruleset, ours: &Ownership) -> Result<XtApplied> {
        ours.refuse_foreign("apply", desired)?;
        self.change(Desired::Rules(desired, ours.clone()))
    }

    /// The transaction that [`XtEngine::apply`] would commit now; without operations if the tables are in sync. Creates no
    /// table.
    ///
    /// # Errors
    /// A desired table or user chain is not owned. The tables cannot be read, or the desired rules cannot be encoded.
    pub fn drift(&mut self, desired: &Ruleset, ours: &Ownership) -> Result<Transaction> {
        ours.refuse_foreign("compare", desired)?;
        plan(desired, &self.read()?, ours)
    }

    /// Runs a script (`iptables-restore`; with `keep`, `iptables-restore --noflush`).
    ///
    /// # Errors
    /// As [`XtEngine::apply`]; a command that cannot be executed, with its line: nothing is changed.
    pub fn restore(&mut self, script: &Script, keep: bool) -> Result<XtApplied> {
        self.change(Desired::Script(script, keep))
    }

    fn change(&mut self, desired: Desired<'_>) -> Result<XtApplied> {
        let lock = lock::take(self.writers, self.lock_file.as_deref())?;
        let mut applied = self.converge(desired, None)?;
        applied.lock_wait = lock.waited;
        Ok(applied)
    }

    /// Converges one table, or all existing tables.
    fn converge(&mut self, desired: Desired<'_>, table: Option<TableId>) -> Result<XtApplied> {
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
        Ok(XtApplied {
            ops: done.ops,
            replaced: change.replaced,
            lock_wait: None,
            read_back: done.read_back.filter(|_| is_compared),
        })
    }
}
