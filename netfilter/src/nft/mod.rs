//! nf_tables: rules as values, and the engine that reads and writes them over nfnetlink.

pub mod compat;
mod context;
mod display;
pub mod engine;
pub mod expr;
mod lower;
pub mod model;
mod normal;
#[cfg(test)]
mod properties;
mod raise;
pub mod raw;
mod set;
mod userdata;
pub mod wire;

pub use engine::{Applied, Engine, Kept, Op, Snapshot, TableId, Transaction, plan};
pub use model::*;
