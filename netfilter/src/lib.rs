//! Packet filter rules as plain values, and the engines that read and write them.
//!
//! Nothing here knows Istio, Kubernetes or CNI. There are three engines, each with values of its own, which it
//! reads, plans, applies and reads back: [`nft`] (nf_tables), [`xtables`] (legacy tables) and [`ipset`]. [`probe`] tells
//! what of them a kernel has. Start with [`nft::model`], the rules as values, and [`nft::engine`].
#![forbid(unsafe_code)]

mod converge;
mod diff;
pub mod ipset;
pub mod nft;
pub mod probe;
pub mod xtables;
