//! nf_tables: rules as values, and the engine that reads and writes them over nfnetlink.
//!
//! [`Ruleset`] > [`Table`] > [`Chain`] > [`Rule`] > [`Statement`]; a [`Set`] belongs to a table. Every value is
//! `PartialEq` and prints itself in the syntax of `nft list ruleset`. A rule is what the kernel holds, not what a person
//! typed: `tcp dport 80` is two matches, and [`Rule::builder`] adds the first where `nft` does.
//!
//! ```text
//! NftEngine::read -> Snapshot    every table that is asked for, with the generation it is of
//! plan(desired, snapshot)     pure: the operations that are missing, printable
//! NftEngine::commit(transaction) one batch, guarded by the generation: all or nothing
//! NftEngine::apply = read, plan, commit, read back, compare
//! ```
//!
//! [`expr`], [`wire`] and [`raw`] are the level of the kernel's messages. They follow its headers; rules are better made
//! of the values here.
//!
//! `linearize` makes expressions of a rule, `delinearize` a rule of expressions; expressions without a statement remain
//! as they are, together with the sets that belong to them. `listing` makes text of expressions: so every rule is
//! listed by one path. A new expression takes its file in [`expr`] and a row there.

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
pub(crate) use engine::{decode, generation, kind};
pub use model::*;

#[cfg(test)]
mod tests;
