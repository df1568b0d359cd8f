//! The node agent: its installer against golden data, and the whole process on directories that stand for a node.
// matrix: newest

// Clippy grants these to `#[test]` functions only.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

mod adds;
mod api_server;
mod attacks;
mod blind;
mod bundle;
mod bundle_rules;
mod burst;
#[allow(dead_code, reason = "tests of the kernel matrix use the rest")]
#[path = "../../../vmtests/matrix/tests/report/chromium.rs"]
mod chromium;
mod commands;
mod cri;
mod drift;
mod faults;
mod golden;
mod groups;
mod heal;
mod lifecycle;
mod metrics;
mod multus;
mod passing;
mod pods;
mod privilege;
mod repair;
#[path = "../../../netlink/tests/common/rights.rs"]
mod rights;
mod scenarios;
mod servers;
mod status;
mod support;
mod unasked;
mod upgrade;
mod validity;
