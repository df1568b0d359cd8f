//! Shared by the tests of the plugin.
// Clippy grants these to `#[test]` functions only, and no test file uses every helper.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing
)]
#![allow(dead_code, unreachable_pub, clippy::print_stdout)]

pub mod agent;
pub mod backend;
pub mod call;
pub mod node;

#[allow(unused_imports, reason = "no test file uses every one")]
pub use weir_testing::{TempDir, api_server, pods};
