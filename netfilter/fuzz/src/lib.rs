//! Gives changed input to every decoder of weir, on stable Rust.
//!
//! What it is for: to find input that makes a decoder panic, wait or eat memory. What it refuses: coverage
//! feedback, which needs a compiler of its own; real input is the start instead, kept in `corpus`.
//!
//! - [`Target`] is one decoder, [`TARGETS`] are all of them.
//! - [`fuzz`] changes inputs of a corpus and gives them to a target until the time is over.
//! - [`corpus()`] reads a folder of inputs; [`record()`] makes those that only a kernel can give.
//! - [`Conversation`] is what a kernel said, as one input.
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
