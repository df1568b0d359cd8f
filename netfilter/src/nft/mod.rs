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

pub mod compat;
mod context;
mod display;
mod engine;
pub mod expr;
mod headers;
mod lower;
mod model;
mod normal;
#[cfg(test)]
mod properties;
mod raise;
pub mod raw;
mod set;
mod userdata;
pub mod wire;

pub use engine::{
    Kept, NftApplied, NftEngine, NftOp, Snapshot, TableId, Transaction, UNGUARDED, other_encoding,
    plan, text_without_counters,
};
pub use model::*;
