//! netlink against real kernels, other tools and the system's headers. Each file describes what it tests.
// Helpers are part of the tests: clippy.toml grants them the same exceptions.
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
mod second_author_links;
mod second_author_others;
