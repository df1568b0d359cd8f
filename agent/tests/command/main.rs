//! The command `weir` with real namespaces, the real kernel, and the real `nft` as oracle.
//!
//! Also properties of the programs as a whole: they execute nothing and need no other file. All tests are one program, because each program
//! would link all of weir.
// matrix: oldest
// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]

#[macro_use]
mod support;
use weir_testing::lacks;
use weir_testing::rights;

mod ambient;
mod ambient_ebpf;
mod at_once;
mod bad_input;
mod closed_output;
mod demo;
mod demo_ended;
mod documented;
mod engines;
mod fallback;
mod foreign;
mod host_users;
mod image;
mod kinds;
mod kinds_routing;
mod leftovers;
mod legacy_foreign;
mod lifecycle;
mod limits;
mod lost_answers;
mod migration;
mod no_exec;
mod node_ambient;
mod node_ambient_faults;
mod node_ambient_killed;
mod overlap;
mod plan;
mod preflight;
mod restore;
mod restore_upstream;
mod routing;
mod static_chroot;
mod undesired;
mod unmarked;
mod unread;
mod visits;
mod words;
