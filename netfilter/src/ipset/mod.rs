//! ipset: sets as values, and the engine that reads and writes them over nfnetlink.
//!
//! ```text
//! Set = Header (name, type, family, options) + Entries
//! IpsetEngine::list, each               kernel -> values
//! IpsetEngine::create, add, delete ...  one method for each verb of the `ipset` command
//! IpsetEngine::apply                    read, plan, change, read back, compare
//! restore::Parser                       text of `ipset save` -> commands; IpsetEngine::restore executes them
//! ```
//! `Display` of a [`Set`] is the text of `ipset save`. One difference: `forceadd` is printed, which ipset 7.17 omits,
//! so that its text would create another set.
//!
//! [`wire`] and [`raw`] are the level of the kernel's messages, and follow its headers.
//!
//! Sets of types that this version does not know are listed with their entries as opaque attributes, and never written.

mod codec;
mod display;
mod engine;
pub mod error;
mod model;
mod options;
mod proto;
pub(crate) mod question;
pub mod raw;
pub mod restore;
pub mod wire;

pub use engine::{Existing, IpsetApplied, IpsetEngine, IpsetOp, Listed, Part, Protocol, plan};
#[cfg(feature = "testing")]
pub use model::arbitrary;
pub use model::{
    Counters, Entry, Header, Key, KeyPart, ProtoPort, Set, SetFamily, SetType, SkbInfo,
};

#[cfg(test)]
mod tests;
