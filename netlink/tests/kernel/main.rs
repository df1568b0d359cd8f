//! netlink against real kernels, the tools of others and the system's headers; each file says what it shows.
// Clippy grants these to `#[test]` functions only, not to their helpers.
#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used
)]

mod common;
mod events;
mod headers;
mod netns;
mod nfnetlink;
mod objects;
mod route;
mod second_author;
