//! The engine: reads rulesets from the kernel, plans a change, applies it, reads it back.
//!
//! ```text
//! read -> Snapshot            the requested tables and the generation of the ruleset
//! plan(desired, snapshot)     pure: the operations that are missing, printable
//! commit(transaction)         one batch, guarded by the generation: all or nothing
//! apply = read, plan, commit, read back, compare
//! ```
//! Only tables that the caller names as owned are ever changed.

mod batch;
mod check;
mod commits;
mod dump;
mod elements;
mod encoding;
mod objects;
mod plan;
mod read;
mod reasons;
mod remedy;
mod snapshot;
mod stray;

pub use commits::{Commit, Commits};
pub use elements::ElementChanges;
pub use encoding::{other_encoding, text_without_counters};
#[cfg(test)]
pub(crate) use plan::canonical;
pub use plan::{Kept, NftOp, Transaction, UNGUARDED, plan};
pub use snapshot::Snapshot;

use super::model::{Ruleset, Table, TableFamily};
use crate::converge::{Committed, Converge, ReadBack, converge};
use dump::no_nf_tables;
use read::Scope;
use std::time::Duration;
use weir_netlink::contention::CONTENTION;
use weir_netlink::nfnetlink::{Refusal, Socket};
use weir_netlink::{Error, NetlinkSocket, Result, Transport};

/// A table by family and name.
pub type TableId = (TableFamily, String);

/// Maximum size of one reading in bytes: a process with CAP_NET_ADMIN in a pod's namespace can create tables of any size
/// there, and as values they take several times as much of the node's memory. A rule has about 500 bytes, an element of
/// a set 40.
const READ_LIMIT: usize = 64 << 20;

/// How many consecutive commits may be refused as stale before one is sent without the generation guard.
///
/// The guard protects the owned tables: a plan that was made for another state of them would not lead to the desired
/// one. But the generation counts the commits to all tables, so a writer that is busy with other tables can make
/// every guarded commit stale. Without the guard, an object named by a handle is still changed only if it exists, and
/// reading back decides.
const GUARDED: u32 = 8;

/// A connection to nf_tables in one network namespace.
#[derive(Debug)]
pub struct NftEngine<T: Transport = NetlinkSocket> {
    socket: Socket<T>,
    contention: Duration,
    read_limit: usize,
    /// Bytes of the current reading about other tables than those whose content is read.
    of_others: usize,
    /// Bytes about these, and their limit.
    of_tables: usize,
    limit_of_tables: usize,
    /// The current reading has reached this limit.
    is_full: bool,
    /// The kernel reported for a dump of the current reading that the ruleset changed meanwhile.
    torn: bool,
}

/// The refusals of a batch, and the index of the operation of each of its messages.
pub(crate) type Refused = (Vec<Refusal>, Vec<usize>);

/// What [`NftEngine::apply`] did.
#[derive(Clone, Debug, PartialEq)]
pub struct NftApplied {
    /// The changes that were made, in this order; empty when the ruleset was in sync.
    pub ops: Vec<NftOp>,
    /// The generation of the ruleset that was read back and is in sync.
    pub generation: u32,
    /// All tables that exist in it, owned and foreign.
    pub tables: Vec<TableId>,
    /// Objects of another writer in the owned tables that were kept.
    pub kept: Vec<Kept>,
    /// Duration of reading back; `None` if nothing was written.
    pub read_back: Option<Duration>,
}

impl NftEngine<NetlinkSocket> {
    /// Opens a netlink socket (`NETLINK_NETFILTER`) in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`Error::is_unsupported`] if the kernel has no nfnetlink; `EMFILE`.
    pub fn open() -> Result<Self> {
        let socket = Socket::open().map_err(no_nf_tables)?;
        Ok(Self::with_socket(socket))
    }
}

impl<T: Transport> NftEngine<T> {
    /// Uses an open socket.
    pub fn with_socket(socket: Socket<T>) -> Self {
        Self {
            socket,
            contention: CONTENTION,
            read_limit: READ_LIMIT,
            of_others: 0,
            of_tables: 0,
            limit_of_tables: READ_LIMIT,
            is_full: false,
            torn: false,
        }
    }

    /// Sets how long reading and applying are retried while another writer interferes. Ten seconds by default.
    #[must_use]
    pub fn contention(mut self, limit: Duration) -> Self {
        self.contention = limit;
        self
    }

    /// Sets the limit of one reading, in bytes of the kernel's answers; chains, sets, and the elements of a rule's set count with
    /// the memory that they take. 64 MiB by default.
    #[must_use]
    pub fn read_limit(mut self, bytes: usize) -> Self {
        self.read_limit = bytes;
        self
    }

    /// Makes the tables `owned` hold `desired` and nothing else, then reads them back.
    ///
    /// Nothing is written if they are in sync. Other tables are not touched. If the answer to a commit is lost, the state
    /// is read on a new socket.
    ///
    /// # Errors
    /// A desired table is not among the owned tables. A refusal of the kernel, with its extended ack, the operation and
    /// the attribute; [`Error::is_unsupported`] if the kernel lacks an expression or a chain type. Another writer kept
    /// changing the owned tables. The actual state is not what the kernel acknowledged. An answer was lost and nothing
    /// could be read afterwards. [`Error::in_force`] reports whether the change is in force; a transaction is in force
    /// as a whole or not at all.
    pub fn apply(&mut self, desired: &Ruleset, owned: &[TableId]) -> Result<NftApplied> {
        refuse_foreign("apply", desired, owned)?;
        let limit = self.contention;
        let mut desired = Desired {
            engine: self,
            ruleset: desired,
            owned,
        };
        let done = converge(&mut desired, limit)?;
        let found = done.observed.ruleset.tables.iter();
        let kept = found.flat_map(|t| Kept::of(t, desired.ruleset.table(t.family, &t.name)));
        Ok(NftApplied {
            kept: kept.collect(),
            ops: done.ops,
            generation: done.observed.generation,
            tables: done.observed.tables,
            read_back: done.read_back,
        })
    }

    /// The transaction that [`NftEngine::apply`] would send now; without operations if the tables are in sync.
    ///
    /// # Errors
    /// A desired table is not among the owned tables. The ruleset cannot be read.
    pub fn drift(&mut self, desired: &Ruleset, owned: &[TableId]) -> Result<Transaction> {
        refuse_foreign("compare", desired, owned)?;
        Ok(plan(desired, &self.read_for(desired, owned)?, owned))
    }

    /// Sends a transaction as one batch (`nft -f`). A transaction without operations is not sent.
    ///
    /// # Errors
    /// A value that does not fit its attribute, before anything is sent. The kernel's error for the first operation that
    /// it refused; [`Error::is_stale_generation`] if the ruleset changed since it was read. Nothing is changed in these
    /// cases. If an answer is lost, [`Error::in_force`] is unknown.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<()> {
        if transaction.ops.is_empty() {
            return Ok(());
        }
        match self.send(transaction)? {
            Ok(()) => Ok(()),
            Err((refusals, origin)) => Err(remedy::explain(&refusals, &transaction.ops, &origin)),
        }
    }

    /// Sends a transaction.
    pub(crate) fn send(&mut self, transaction: &Transaction) -> Result<Result<(), Refused>> {
        check::fits(transaction)?;
        let (batch, origin) = batch::encode(transaction);
        let sent = self.socket.commit(batch)?;
        Ok(sent.map_err(|refusals| (refusals, origin)))
    }
}

/// Every desired table must be owned: others are neither compared nor changed.
fn refuse_foreign(operation: &str, desired: &Ruleset, owned: &[TableId]) -> Result<()> {
    let is_foreign = |t: &&Table| !owned.iter().any(|(f, n)| *f == t.family && *n == t.name);
    let Some(t) = desired.tables.iter().find(is_foreign) else {
        return Ok(());
    };
    let reason = "it is not among the owned tables: name it there too";
    let object = format!("table {} {}", t.family, t.name);
    Err(Error::refused(operation, object, reason))
}

/// The desired content of the owned tables.
struct Desired<'a, T: Transport> {
    engine: &'a mut NftEngine<T>,
    ruleset: &'a Ruleset,
    owned: &'a [TableId],
}

impl<T: Transport> Converge for Desired<'_, T> {
    type Observed = Snapshot;
    type Plan = Transaction;
    type Op = NftOp;

    const OBJECT: &'static str = "the ruleset";

    fn observe(&mut self) -> Result<Snapshot> {
        self.engine.read_for(self.ruleset, self.owned)
    }

    fn plan(&mut self, observed: &Snapshot) -> Result<Transaction> {
        let mut transaction = plan(self.ruleset, observed, self.owned);
        if !observed.is_of_one_generation {
            transaction.generation = UNGUARDED;
        }
        Ok(transaction)
    }

    fn ops(plan: &mut Transaction) -> &mut Vec<NftOp> {
        &mut plan.ops
    }

    fn commit(&mut self, plan: &mut Transaction, late: u32) -> Result<Committed> {
        if late >= GUARDED {
            plan.generation = UNGUARDED;
        }
        let is_guarded = plan.generation != UNGUARDED;
        match self.engine.commit(plan) {
            Ok(()) => Ok(Committed::Yes),
            Err(e) if e.is_stale_generation() => Ok(Committed::Late),
            // Without the guard, the kernel refuses operations on objects that are not as they were read.
            Err(e) if !is_guarded && (e.is_not_found() || e.is_exists()) => Ok(Committed::Late),
            Err(e) => Err(e),
        }
    }

    fn read_back(
        &mut self,
        committed: &Transaction,
        before: &Snapshot,
    ) -> Result<ReadBack<Snapshot>> {
        let is_guarded = committed.generation != UNGUARDED;
        // A commit is one generation: unless another writer committed too, this one will be read.
        let generation = before.generation.wrapping_add(1);
        let mut guess = is_guarded.then_some(generation);
        for is_last in [false, false, false, true] {
            let scope = Scope::Desired(self.ruleset, self.owned);
            let found = self.engine.consistent(scope, guess.take())?;
            let missing = plan(self.ruleset, &found, self.owned).ops;
            if missing.is_empty() {
                return Ok(ReadBack::InSync(found));
            }
            if !is_guarded || found.generation != generation {
                break;
            }
            // While the kernel resizes the hash table of a large set, a dump can list an element twice and omit
            // another, without reporting it. The ruleset is the same, so it is read again.
            let only_elements = missing
                .iter()
                .all(|op| matches!(op, NftOp::AddElements(..)));
            if only_elements && !is_last {
                continue;
            }
            return Ok(ReadBack::differs("rules", &missing, true));
        }
        Ok(ReadBack::Overwritten)
    }

    /// Whether nothing was committed since, or no owned object was replaced: a commit assigns new handles to the objects
    /// that it adds.
    fn is_same(&mut self, before: &Snapshot, now: &Snapshot) -> bool {
        now.generation == before.generation || now.is_same(before)
    }

    fn reopen(&mut self) -> Result<()> {
        self.engine.socket.reopen()
    }
}
