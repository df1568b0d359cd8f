//! Sets as plain values: the same on every machine.

#[cfg(feature = "testing")]
pub mod arbitrary;
mod entry;
mod header;
mod kind;

pub use entry::{Counters, Entry, Key, ProtoPort, SkbInfo};
pub use header::{Header, Set};
pub use kind::{SetFamily, SetType};
