//! Shared by the tests that compare rule sets with the real tools.

pub mod golden;
pub mod oracle;
pub mod owners;
#[path = "../../../netlink/tests/common/rights.rs"]
pub mod rights;
