//! netlink against real kernels, the tools of others and the system's headers; each file says what it shows.
// Helpers are tests, too: clippy.toml allows them the same.
#![cfg(test)]
#![allow(unreachable_pub)]

mod common;
mod events;
mod headers;
mod netns;
mod nfnetlink;
mod objects;
mod route;
mod second_author;
