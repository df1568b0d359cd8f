//! The command `weir` as a user meets it: real namespaces, real kernel, the real `nft` as oracle.
// matrix: oldest
// Helpers are tests, too: clippy.toml allows them the same.
#![cfg(test)]

#[macro_use]
mod support;
use weir_testing::lacks;
use weir_testing::rights;

mod ambient;
mod ambient_ebpf;
mod bad_input;
mod closed_output;
mod demo;
mod engines;
mod foreign;
mod host_users;
mod leftovers;
mod legacy_foreign;
mod lifecycle;
mod limits;
mod lost_answers;
mod migration;
mod node_ambient;
mod plan;
mod restore;
mod restore_upstream;
mod routing;
mod unmarked;
mod words;
