//! Redirection of pods of ambient mode, whose traffic goes through the node's ztunnel.
//!
//! ```text
//! Config, PodOverrides -> Redirect (checked) -> Compiled (rules, policy rules, routes) -> weir_cni::redirection
//! ```
//! ztunnel listens in the pod's network namespace. Inbound and outbound TCP, and DNS if it is captured, are redirected to its
//! ports (REDIRECT); its own packets carry a mark and are not redirected; replies of the application to connections that ztunnel
//! made with the client's address are marked by conntrack and routed back to `lo`. The kubelet's probes have a dedicated source
//! address and are accepted.
//!
//! [`weir_cni::redirection`] plans, applies, compares and removes the rules, as for a sidecar. Start with [`Redirect`].
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
mod lost;
mod nft;
mod redirect;
mod request;
mod xtables;
pub mod ztunnel;

pub use config::{Config, DnsCapture, PodOverrides};
pub use redirect::{AMBIENT, REPLY_ROUTING, Redirect, TABLES};
pub use request::Request;
