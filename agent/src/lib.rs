//! The node side: the `weir` command, and what it is made of.
//!
//! [`cli`] is the command; `bundle` is a node's report for support; [`node`] is the agent of a node; [`demo`] is a pod that can be watched. Rules are made nowhere here: every command
//! goes through [`weir_cni::redirection`], as the plugin does.
#![forbid(unsafe_code)]

mod bundle;
pub mod cli;
pub mod demo;
pub mod node;
pub mod preflight;
mod probe;
