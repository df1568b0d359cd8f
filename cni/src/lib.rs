//! From a pod to its redirection, and the CNI plugin that puts it in place.
//!
//! A pod becomes [`pod::PodFacts`], these a [`config::SidecarConfig`], this a [`config::Intent`], and
//! [`compile::compile`] makes rules of it: plain data at every step, no kernel and no cluster needed. The
//! plugin's own half is [`protocol`], what the runtime says and hears; [`plugin`], which joins both halves;
//! and [`runtime`], a small container runtime for tests and for trying things out.
#![forbid(unsafe_code)]

pub mod annotation;
pub mod api;
pub mod compile;
pub mod config;
pub mod files;
pub mod fill;
pub mod http;
pub mod json;
pub mod log;
pub mod plugin;
pub mod pod;
pub mod protocol;
pub mod redirection;
pub mod runtime;

pub use plugin::main as plugin_main;
