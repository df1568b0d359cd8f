//! The API server, as far as a CNI plugin needs it: read one pod, read one
//! namespace.
//!
//! The kubeconfig is always named explicitly. A missing one is an error, never
//! a reason to look elsewhere; one that would run a program for its credentials
//! is refused. Requests have a limit and every failure says which file, which
//! server, which object, why, and what to do.
//!
//! Two requests do not need a client library: this is rustls, and the few lines of
//! HTTP of [`crate::http`]. What the agent never writes is refused with its
//! name: proxies, passwords, plain HTTP.

mod base64;
mod client;
mod error;
mod kubeconfig;
mod server;
mod tls;

pub use client::{Client, REQUEST_LIMIT};
pub use error::{Error, Reason};
pub use kubeconfig::check;
