//! The command `weir` as a user meets it: real namespaces, real kernel, the real `nft` as oracle.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[macro_use]
mod support;

mod bad_input;
mod demo;
mod foreign;
mod lifecycle;
mod plan;
