//! Shared by the tests that compare rule sets with the real tools.

pub mod golden;
pub mod oracle;
pub mod owners;
pub use weir_testing::rights;
