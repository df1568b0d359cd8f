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
mod objects;
mod plan;
mod read;
mod remedy;

#[cfg(test)]
pub(crate) use plan::canonical;
pub use plan::{Op, Transaction, plan};
pub use read::Snapshot;

use super::model::{Family, Ruleset};
use std::time::{Duration, Instant};
use weir_netlink::nfnetlink::{Kernel, Socket, Transport};
use weir_netlink::{Error, Result};

/// A table by family and name.
pub type TableId = (Family, String);

/// How often a read that was interrupted, or a commit that came too late, is begun again. Every
/// round needs another writer in between, so a handful is a storm already.
const ATTEMPTS: usize = 16;

/// A connection to nf_tables in one network namespace.
#[derive(Debug)]
pub struct Engine<T: Transport = Kernel> {
    socket: Socket<T>,
}

/// What [`Engine::apply`] did.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// What was changed, in this order; empty when the kernel held what was wished.
    pub ops: Vec<Op>,
    /// The generation of the ruleset that was read back and found equal.
    pub generation: u32,
    /// Every table that there is then, whosoever it is.
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
        Self { socket }
    }

    /// Makes the kernel hold `desired`, and nothing else in the tables `owned`, then reads it back.
    ///
    /// Nothing is written when nothing differs. Tables that are not named are not touched.
    ///
    /// # Errors
    /// What the kernel refused, in its own words, with the operation and the attribute; nothing is
    /// changed then. Somebody else kept changing the ruleset. The kernel holds something else than
    /// what it acknowledged. An answer was lost: the change is in force as a whole or not at all, and the
    /// next apply, of this engine too, finds out which.
    pub fn apply(&mut self, desired: &Ruleset, owned: &[TableId]) -> Result<Applied> {
        for _ in 0..ATTEMPTS {
            let observed = self.read_tables(owned)?;
            let transaction = plan(desired, &observed, owned);
            if transaction.ops.is_empty() {
                return Ok(Applied {
                    ops: Vec::new(),
                    generation: observed.generation,
                    tables: observed.tables,
                    read_back: None,
                });
            }
            match self.commit(&transaction) {
                Ok(()) => return self.verify(desired, owned, transaction),
                Err(e) if e.is_stale_generation() => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::exhausted(
            "apply",
            "the ruleset",
            "somebody else keeps changing it",
        ))
    }

    /// What `apply` would do now.
    ///
    /// # Errors
    /// The ruleset cannot be read.
    pub fn drift(&mut self, desired: &Ruleset, owned: &[TableId]) -> Result<Transaction> {
        Ok(plan(desired, &self.read_tables(owned)?, owned))
    }

    fn verify(
        &mut self,
        desired: &Ruleset,
        owned: &[TableId],
        done: Transaction,
    ) -> Result<Applied> {
        let begun = Instant::now();
        let mut attempts = ATTEMPTS;
        // A commit is one generation: unless somebody else made another, this is what will be read.
        let mut before = Some(done.generation.wrapping_add(1));
        loop {
            attempts -= 1;
            let readback = self.consistent(Some(owned), before.take())?;
            let missing = plan(desired, &readback, owned).ops;
            let Some(first) = missing.first() else {
                return Ok(Applied {
                    ops: done.ops,
                    generation: readback.generation,
                    tables: readback.tables,
                    read_back: Some(begun.elapsed()),
                });
            };
            // While the kernel moves a large set to a larger hash table, a dump can name an element twice and
            // leave another out, with no sign of it. It is the same ruleset, so it is looked at again.
            let only_elements = missing.iter().all(|op| matches!(op, Op::AddElements(..)));
            if only_elements && attempts > 0 {
                continue;
            }
            let detail = format!(
                "the kernel acknowledged the rules but lists others: {} operations away, first: {first}",
                missing.len()
            );
            return Err(Error::malformed("verify", "the ruleset", detail));
        }
    }

    /// Sends a transaction as one batch.
    ///
    /// # Errors
    /// As the kernel answers for the first operation that it refused; [`Error::is_stale_generation`] when the
    /// ruleset changed since it was read. Nothing is changed in either case.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<()> {
        if transaction.ops.is_empty() {
            return Ok(());
        }
        let (batch, origin) = batch::encode(transaction);
        match self.socket.commit(batch)? {
            Ok(()) => Ok(()),
            Err(failures) => Err(remedy::explain(&failures, &transaction.ops, &origin)),
        }
    }
}
