//! The programs of the node and their maps, from one desired state to another and after failures, with real packets.
// matrix: newest
// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]
#![allow(missing_docs)]

mod changes;
mod failures;
mod flows;
mod remembered;
mod scene;
