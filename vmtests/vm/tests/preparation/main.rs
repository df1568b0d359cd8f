//! Fetching and preparing kernels, against a small archive on this machine and kernels of a few bytes.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod archive;
mod elf;
mod faults;
mod fetch;
mod own;
mod program;
mod real;
mod server;
mod update;
