//! The common test support of all crates. It is only a dev-dependency, and a dependency of programs in `ci`.
//!
//! - [`namespace()`], [`namespace_or_skip!`]: a temporary network namespace, or the reason why there is none
//! - [`rights`], [`lacks`]: what this user or this kernel does not support, with a probe for each
//! - [`tool`]: runs a tool of the system in a namespace
//! - [`Ends`], [`Process`]: threads and processes that end with the test
//! - [`sockets`]: sockets at addresses that were in use, and addresses without a listener
//! - [`mod@sysctl`]: reads and writes sysctls of a namespace
//! - [`effort`]: the number of random cases, and their seed
//! - [`c`]: values of C expressions from the system's headers
//! - [`TempDir`], [`BpfFs`], [`groups`]: directories, BPF file systems and control groups that are removed on drop
//! - [`api_server`], [`pods`], [`certificates`]: a fake API server, and objects for it
//! - [`container`]: mounts as in a container
//! - [`descriptors`]: a thread that has no more file descriptors
//! - [`chromium`]: a headless browser
//! - [`ztunnel`]: a fake ztunnel that only speaks ZDS
#![forbid(unsafe_code)]
// Tests may panic, and so may functions that only tests call.
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
pub mod descriptors;
mod dir;
pub mod effort;
mod ends;
pub mod groups;
pub mod lacks;
mod namespace;
pub mod pods;
pub mod rights;
pub mod sockets;
pub mod sysctl;
pub mod tool;
pub mod ztunnel;

pub use bpffs::{BpfFs, mount_for_links};
pub use dir::{TempDir, copy_program, write_script};
pub use ends::{Ends, Process};
pub use namespace::{granted, namespace};
