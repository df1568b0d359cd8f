//! netfilter against real kernels, the tools of others and the system's headers; each file says what it shows.
//!
//! One program: each one more is linked by itself, and has to be carried to every kernel of the matrix.
// Helpers are tests, too: clippy.toml allows them the same.
#![cfg(test)]
#![allow(unreachable_pub)]

mod bytes;
mod common;
mod compat;
mod faults;
mod headers;
mod ipset;
mod ipset_errors;
mod ipset_headers;
mod ipset_random;
mod limits;
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
