//! `weir preflight` on the real kernel: its answers against the real tools, what it leaves unchanged, and how
//! it ends.
// Clippy grants these to `#[test]` functions only.
// Helpers are tests, too: clippy.toml allows them the same.
#![cfg(test)]

#[macro_use]
#[allow(dead_code, unused_macros)]
#[path = "../command/support.rs"]
mod support;

mod batch;
mod nft_scripts;
mod numbers;
mod oracle;
use weir_testing::rights;
mod run;
mod tools;
mod unchanged;
mod works;
