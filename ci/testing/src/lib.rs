//! What the tests of all crates share. Only dev-dependencies and programs of `ci` name this crate.
//!
//! - [`namespace()`], [`namespace_or_skip!`]: a throwaway network namespace, or the reason why there is none
//! - [`rights`], [`lacks`]: what this user or this kernel does not allow, one probe for each
//! - [`tool`]: runs a tool of the machine in a namespace
//! - [`Ends`], [`Process`]: threads and processes that end with the test
//! - [`sockets`]: sockets where others were, and where nobody listens
//! - [`effort`]: how many random cases, and their seed
//! - [`c`]: what a C compiler takes names of the system's headers for
//! - [`TempDir`], [`BpfFs`], [`groups`]: folders, bpf file systems and control groups that go away with their value
//! - [`api_server`], [`pods`], [`certificates`]: a fake API server, and objects for it
//! - [`container`]: mounts as a container has them
//! - [`chromium`]: a browser without a window
//! - [`ztunnel`]: a ztunnel that only speaks ZDS
#![forbid(unsafe_code)]
// Tests may panic, and so may what only they call.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs
)]

pub mod api_server;
mod bpffs;
pub mod c;
pub mod certificates;
pub mod chromium;
pub mod container;
mod dir;
pub mod effort;
mod ends;
pub mod groups;
pub mod lacks;
mod namespace;
pub mod pods;
pub mod rights;
pub mod sockets;
pub mod tool;
pub mod ztunnel;

pub use bpffs::BpfFs;
pub use dir::{TempDir, copy_program, write_script};
pub use ends::{Ends, Process};
pub use namespace::{granted, namespace};
