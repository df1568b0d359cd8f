//! Fetching and preparing kernels, against a small archive on this machine and kernels of a few bytes.
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
