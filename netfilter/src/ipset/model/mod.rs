//! Sets as plain values, independent of the running kernel.

#[cfg(feature = "testing")]
pub mod arbitrary;
mod entry;
mod header;
mod kind;

pub use entry::{Counters, Entry, Key, KeyPart, ProtoPort, SkbInfo};
pub use header::{Header, Set};
pub(in crate::ipset) use kind::{Dimension, Method, NEVER, Since};
pub use kind::{SetFamily, SetType};
