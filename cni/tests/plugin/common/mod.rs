//! Shared by the tests of the plugin.

pub mod agent;
pub mod backend;
pub mod call;
pub mod node;

pub use weir_testing::{TempDir, api_server, pods};
