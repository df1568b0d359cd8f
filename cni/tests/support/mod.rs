//! Shared by the tests that hold rule sets against the real tools.

pub mod golden;
pub mod oracle;
pub mod owners;
#[path = "../../../netlink/tests/common/rights.rs"]
pub mod rights;
