//! Packet filter rules as plain values, and the engines that read and write them.
//!
//! Nothing here knows Istio, Kubernetes or CNI. Start with [`nft::model`], the rules as values.
#![forbid(unsafe_code)]

pub mod nft;
pub mod xtables;
