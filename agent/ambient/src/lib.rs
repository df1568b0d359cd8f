//! The redirection of pods of ambient mode, whose traffic the node's ztunnel carries.
//!
//! ```text
//! Config, PodOverrides -> Redirect (checked) -> Compiled (rules, policy rules, routes) -> weir_cni::redirection
//! ```
//! ztunnel listens inside of the pod's namespace. Inbound and outbound TCP, and DNS if it is captured, go to its ports by
//! REDIRECT; its own packets carry a mark and are left alone; replies of the application to connections that ztunnel made
//! with the client's address are marked by conntrack and routed back to `lo`. The kubelet's probes arrive from an address
//! of their own and are let through.
//!
//! Rules are planned, applied, compared and removed by [`weir_cni::redirection`], as those of a sidecar are.
//!
//! ```
//! use weir_ambient::{Config, PodOverrides, Redirect};
//! use weir_cni::compile::Engine;
//! use weir_cni::redirection::{Desired, Sandbox};
//! use weir_netlink::Netns;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let redirect = Redirect::new(Config::default(), &PodOverrides::default())?;
//! assert!(redirect.compile(Engine::Nft).to_string().contains("redirect to :15001"));
//!
//! # if Netns::create().is_err_and(|e| e.is_permission()) { return Ok(()); } // an unprivileged user
//! let sandbox = Sandbox::of(Netns::create()?)?;
//! let applied = sandbox.visit_for(Redirect::SCHEME, |visit| visit.apply_intent(&redirect, None))??;
//! assert!(!applied.changes.is_empty());
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod config;
pub mod eni;
pub mod host;
mod nft;
mod redirect;
mod request;
mod xtables;

pub use config::{Config, DnsCapture, PodOverrides};
pub use redirect::{AMBIENT, REPLY_ROUTING, Redirect, TABLES};
pub use request::Request;
