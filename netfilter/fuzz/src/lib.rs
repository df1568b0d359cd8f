//! A fuzzer for every decoder of weir, on stable Rust.
//!
//! It finds input that makes a decoder panic, hang or exhaust memory. It does not use coverage feedback, which needs a special
//! compiler; it starts from real input, which is in `corpus`.
//!
//! - [`Target`] is one decoder; [`TARGETS`] lists all of them.
//! - [`fuzz`] mutates inputs of a corpus and runs a target with them until a deadline.
//! - [`corpus()`] reads a folder of inputs; [`record()`] creates those that only a kernel can produce.
//! - [`Conversation`] is the answers of a kernel as one input.
#![forbid(unsafe_code)]

mod conversation;
mod corpus;
mod mutate;
mod random;
mod record;
mod run;
mod targets;

pub use conversation::Conversation;
pub use corpus::corpus;
pub use mutate::mutate;
pub use random::Random;
pub use record::record;
pub use run::{Crash, Outcome, fuzz, guarded};
pub use targets::{TARGETS, Target};
