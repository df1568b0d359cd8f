//! Fetching and preparing kernels, against a small archive on this machine and kernels of a few bytes.
#![forbid(unsafe_code)]

mod archive;
mod elf;
mod faults;
mod fetch;
mod own;
mod program;
mod server;
mod update;
