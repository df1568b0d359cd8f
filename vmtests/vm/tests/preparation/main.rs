//! Fetching and preparing kernels, with a small local archive and kernels of a few hundred bytes.
#![forbid(unsafe_code)]
// Helpers are tests, too: clippy.toml allows them the same.
#![cfg(test)]

mod archive;
mod elf;
mod faults;
mod fetch;
mod own;
mod program;
mod real;
mod server;
mod update;
