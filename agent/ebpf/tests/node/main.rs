//! Programs of the node and their maps, from one desired state to another and after failures, with real packets.
// matrix: newest
// Helpers are tests, too: clippy.toml allows them the same.
#![cfg(test)]
#![allow(missing_docs)]

mod changes;
mod failures;
mod flows;
mod remembered;
mod scene;
