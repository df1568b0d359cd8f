//! nf_tables: rules as values, and the engine that reads and writes them over nfnetlink.
//!
//! [`Ruleset`] > [`Table`] > [`Chain`] > [`Rule`] > [`Statement`]; a [`Set`] belongs to a table. Every value is
//! `PartialEq` and prints itself in the syntax of `nft list ruleset`. A rule is what the kernel holds, not what a person
//! typed: `tcp dport 80` is two matches, and [`Rule::builder`] adds the first where `nft` does.
//!
//! ```text
//! NftEngine::read -> Snapshot    the requested tables and the generation of the ruleset
//! plan(desired, snapshot)        pure: the operations that are missing, printable
//! NftEngine::commit(transaction) one batch, guarded by the generation: all or nothing
//! NftEngine::apply = read, plan, commit, read back, compare
//! ```
//!
//! [`expr`], [`wire`] and [`raw`] are the level of the kernel's messages and follow its headers; to make rules, use the
//! values of this module.
//!
//! `linearize` converts a rule to expressions, `delinearize` expressions to a rule; expressions without a statement remain
//! as they are, together with the sets that belong to them. `listing` converts expressions to text, so that one path lists
//! every rule. A new expression needs a file in [`expr`] and a row there.

pub mod compat;
mod context;
mod delinearize;
mod display;
mod engine;
pub mod expr;
mod headers;
pub(crate) mod linearize;
mod listing;
mod model;
pub mod raw;
mod set;
mod userdata;
pub mod wire;

pub use engine::{
    Commit, Commits, ElementChanges, Kept, NftApplied, NftEngine, NftOp, Snapshot, TableId,
    Transaction, UNGUARDED, other_encoding, plan, text_without_counters,
};
pub use model::*;

#[cfg(test)]
mod tests;
