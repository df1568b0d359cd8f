//! Tests of the report with hand-made runs.
#![forbid(unsafe_code)]
// Helpers are tests, too: clippy.toml allows them the same.
#![cfg(test)]

mod browser;
use weir_testing::chromium;
mod example;
mod forms;
mod page;
mod program;
mod readme;
