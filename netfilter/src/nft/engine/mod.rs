//! The engine: reads rulesets from the kernel, plans a change, applies it, reads it back.
//!
//! ```text
//! read -> Snapshot            every table that is asked for, with the generation it is of
//! plan(desired, snapshot)     pure: the operations that are missing, printable
//! commit(transaction)         one batch, guarded by the generation: all or nothing
//! apply = read, plan, commit, read back, compare
//! ```
//! Only tables that the caller names as its own are ever changed.

mod batch;
mod check;
mod dump;
mod objects;
mod plan;
mod read;
mod remedy;
mod snapshot;
mod stray;

#[cfg(test)]
pub(crate) use plan::canonical;
pub use plan::{Kept, Op, Transaction, UNGUARDED, plan};
pub use snapshot::Snapshot;

use super::model::{Family, Ruleset};
use std::time::{Duration, Instant};
use weir_netlink::contention::{Attempts, CONTENTION};
use weir_netlink::nfnetlink::{Kernel, Socket, Transport};
use weir_netlink::{Error, ErrorKind, InForce, Result};

/// A table by family and name.
pub type TableId = (Family, String);

/// How much one reading takes: who may write in a pod's namespace can make tables of any size there, and as values they
/// take several times as much of the memory of the node. A rule has about 500 bytes, an element of a set 40.
const READ_LIMIT: usize = 64 << 20;

/// How many commits in a row may come too late before one is sent without the generation's guard.
///
/// The guard is for our own tables: a plan that was made for another state of them would not give what is desired. But
/// the generation counts the commits to all tables, and a writer who is busy enough with its own keeps every guarded
/// commit from coming in time. What is named by a handle is still changed only if it is there, and reading back
/// decides.
const GUARDED: u32 = 8;

/// A connection to nf_tables in one network namespace.
#[derive(Debug)]
pub struct Engine<T: Transport = Kernel> {
    socket: Socket<T>,
    contention: Duration,
    read_limit: usize,
    /// Bytes of the current reading.
    held: usize,
    /// The kernel said of a dump of the current reading that the ruleset changed meanwhile.
    torn: bool,
}

/// How one round of [`Engine::apply`] ended.
enum Round {
    /// The kernel holds what is desired.
    Done(Applied),
    /// The ruleset changed since it was read; nothing was committed.
    Stale,
    /// Our tables changed after the commit.
    Overwritten,
}

/// What [`Engine::apply`] did.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// What was changed, in this order; empty when the kernel held what is desired.
    pub ops: Vec<Op>,
    /// The generation of the ruleset that was read back and found equal.
    pub generation: u32,
    /// Every table that there is then, ours and foreign.
    pub tables: Vec<TableId>,
    /// How long reading back took; `None` when nothing was written.
    pub read_back: Option<Duration>,
}

impl Engine<Kernel> {
    /// In the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no nfnetlink.
    pub fn open() -> Result<Self> {
        Ok(Self::with_socket(Socket::open()?))
    }
}

impl<T: Transport> Engine<T> {
    /// On a socket that is open already.
    pub fn with_socket(socket: Socket<T>) -> Self {
        Self {
            socket,
            contention: CONTENTION,
            read_limit: READ_LIMIT,
            held: 0,
            torn: false,
        }
    }

    /// Tries again for this long while another writer interferes. Ten seconds unless it is said.
    #[must_use]
    pub fn contention(mut self, limit: Duration) -> Self {
        self.contention = limit;
        self
    }

    /// Reads no more than this at once, in bytes of the kernel's answers. 64 MiB unless it is said.
    #[must_use]
    pub fn read_limit(mut self, bytes: usize) -> Self {
        self.read_limit = bytes;
        self
    }

    /// Makes the kernel hold `desired`, and nothing else in the tables `owned`, then reads it back.
    ///
    /// Nothing is written when nothing differs. Tables that are not named are not touched. When the answer to a commit is
    /// lost, a fresh socket reads what became of it.
    ///
    /// # Errors
    /// What the kernel refused, in its own words, with the operation and the attribute. Another writer kept changing the
    /// owned tables. The kernel holds something else than what it acknowledged. An answer was lost and nothing could be
    /// read afterwards. [`Error::in_force`] says what is known of the change, which is in force as a whole or not at
    /// all.
    pub fn apply(&mut self, desired: &Ruleset, owned: &[TableId]) -> Result<Applied> {
        let mut attempts = Attempts::begin(self.contention);
        let mut stale = 0;
        let mut done = Vec::new();
        loop {
            let is_guarded = stale < GUARDED;
            match self.round(desired, owned, is_guarded, &mut done) {
                Ok(Round::Done(applied)) => return Ok(applied),
                Ok(Round::Stale) => stale += 1,
                // Another writer changed our tables after the commit: what it made of them is where we begin again.
                Ok(Round::Overwritten) => {}
                Err(e) if done.is_empty() => return Err(e),
                Err(e) => return Err(e.with_in_force(InForce::Yes)),
            }
            if !attempts.again() {
                let what = format!(
                    "another writer keeps changing it; {} attempts in {:?}",
                    attempts.made(),
                    attempts.limit()
                );
                let in_force = if done.is_empty() {
                    InForce::No
                } else {
                    InForce::Yes
                };
                let error = Error::exhausted("apply", "the ruleset", what);
                return Err(error.with_in_force(in_force));
            }
        }
    }

    /// One reading, plan, commit and reading back; the operations that were acknowledged are added to `done`.
    fn round(
        &mut self,
        desired: &Ruleset,
        owned: &[TableId],
        is_guarded: bool,
        done: &mut Vec<Op>,
    ) -> Result<Round> {
        let observed = self.read_tables(owned)?;
        let mut transaction = plan(desired, &observed, owned);
        if transaction.ops.is_empty() {
            return Ok(Round::Done(Applied {
                ops: std::mem::take(done),
                generation: observed.generation,
                tables: observed.tables,
                read_back: None,
            }));
        }
        let is_guarded = is_guarded && observed.is_of_one_generation;
        if !is_guarded {
            transaction.generation = UNGUARDED;
        }
        let missing = |readback: &Snapshot| plan(desired, readback, owned).ops;
        let committed = self.commit(&transaction);
        let begun = Instant::now();
        let readback = match committed {
            Ok(()) => {
                done.extend(transaction.ops);
                self.verify(owned, observed.generation, is_guarded, missing)?
            }
            Err(e) if e.is_stale_generation() => return Ok(Round::Stale),
            // Without the guard the kernel finds out by itself what is not as it was read.
            Err(e) if !is_guarded && (e.is_not_found() || e.is_exists()) => {
                return Ok(Round::Stale);
            }
            Err(e) if e.in_force() == InForce::Unknown => {
                let found = self.found_out(owned, &observed, missing, e)?;
                done.extend(transaction.ops);
                Some(found)
            }
            Err(e) => return Err(e),
        };
        Ok(match readback {
            Some(readback) => Round::Done(Applied {
                ops: std::mem::take(done),
                generation: readback.generation,
                tables: readback.tables,
                read_back: Some(begun.elapsed()),
            }),
            None => Round::Overwritten,
        })
    }

    /// What became of a commit whose answer was lost, read on another socket. Its error is returned unless the kernel
    /// holds what is desired.
    fn found_out(
        &mut self,
        owned: &[TableId],
        before: &Snapshot,
        missing: impl Fn(&Snapshot) -> Vec<Op>,
        lost: Error,
    ) -> Result<Snapshot> {
        if self.socket.reopen().is_err() {
            return Err(lost);
        }
        let Ok(now) = self.read_tables(owned) else {
            return Err(lost);
        };
        if missing(&now).is_empty() {
            return Ok(now);
        }
        // Nothing was committed since, or nothing of ours is another: each commit gives what it adds new handles.
        let is_as_before = now.generation == before.generation || now.is_same(before);
        Err(match is_as_before {
            true => lost.with_in_force(InForce::No),
            false => lost,
        })
    }

    /// What `apply` would do now.
    ///
    /// # Errors
    /// The ruleset cannot be read.
    pub fn drift(&mut self, desired: &Ruleset, owned: &[TableId]) -> Result<Transaction> {
        Ok(plan(desired, &self.read_tables(owned)?, owned))
    }

    /// Reads back what was committed. `None` when another writer changed it since.
    fn verify(
        &mut self,
        owned: &[TableId],
        planned: u32,
        is_guarded: bool,
        missing: impl Fn(&Snapshot) -> Vec<Op>,
    ) -> Result<Option<Snapshot>> {
        // A commit is one generation: unless another writer made one too, this is what will be read.
        let committed = planned.wrapping_add(1);
        let mut guess = is_guarded.then_some(committed);
        for is_last in [false, false, false, true] {
            let readback = self.read_back(owned, guess.take())?;
            let missing = missing(&readback);
            let Some(first) = missing.first() else {
                return Ok(Some(readback));
            };
            if !is_guarded || readback.generation != committed {
                return Ok(None);
            }
            // While the kernel moves a large set to a larger hash table, a dump can name an element twice and
            // leave another out, with no sign of it. It is the same ruleset, so it is looked at again.
            let only_elements = missing.iter().all(|op| matches!(op, Op::AddElements(..)));
            if only_elements && !is_last {
                continue;
            }
            let detail = format!(
                "the kernel acknowledged the rules but lists others: {} operations away, first: {first}",
                missing.len()
            );
            return Err(Error::malformed("verify", "the ruleset", detail));
        }
        Ok(None)
    }

    /// One more time on a fresh socket when an answer was lost: what was committed is there.
    fn read_back(&mut self, owned: &[TableId], guess: Option<u32>) -> Result<Snapshot> {
        let lost = match self.consistent(Some(owned), guess) {
            Err(e) if !matches!(e.kind, ErrorKind::Exhausted(_)) => e,
            read => return read,
        };
        match self.socket.reopen() {
            Ok(()) => self.consistent(Some(owned), None),
            Err(_) => Err(lost),
        }
    }

    /// Sends a transaction as one batch.
    ///
    /// # Errors
    /// As the kernel answers for the first operation that it refused; [`Error::is_stale_generation`] when the
    /// ruleset changed since it was read. Nothing is changed in either case. When an answer is lost,
    /// [`Error::in_force`] is not known.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<()> {
        if transaction.ops.is_empty() {
            return Ok(());
        }
        check::fits(transaction)?;
        let (batch, origin) = batch::encode(transaction);
        match self.socket.commit(batch)? {
            Ok(()) => Ok(()),
            Err(failures) => Err(remedy::explain(&failures, &transaction.ops, &origin)),
        }
    }
}
