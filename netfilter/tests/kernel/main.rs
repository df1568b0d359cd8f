//! netfilter against real kernels, other tools and the system's headers. Each file describes what it tests.
//!
//! All tests are one program: each further program would be linked separately and copied to every kernel of the matrix.
// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]
#![allow(unreachable_pub)]

mod bytes;
mod common;
mod compat;
mod faults;
mod foreign;
mod headers;
mod ipset;
mod ipset_errors;
mod ipset_headers;
mod ipset_random;
mod limits;
mod memory;
mod names;
mod nft_rules;
mod objects;
mod oracle;
mod random;
mod scale;
mod sets;
mod versions;
mod xtables;
mod xtables_engine;
mod xtables_faults;
mod xtables_headers;
mod xtables_oracle;
mod xtables_random;
