//! The part of the API server that a CNI plugin needs: read one pod, read one
//! namespace. The node agent sends it a few more requests when it terminates.
//!
//! The kubeconfig is always named explicitly. A missing one is an error, never
//! a reason to look elsewhere; one that would run a program for its credentials
//! is refused. Requests have a time limit, and every error names the file, the
//! server, the object, the reason and the remedy.
//!
//! # Why not kube
//! kube is the usual library, and the plugin used it first. For these two requests kube made the static plugin
//! 6.64 MB, where 6 MiB is the limit, and added code that executes programs (credentials of kind `exec`), which
//! this product never does. So this module uses rustls and the few lines of HTTP in [`crate::http`]. Kubeconfig
//! features that the agent never writes are refused by name: proxies, passwords, plain HTTP to anything but
//! loopback.

mod base64;
mod client;
mod error;
mod kubeconfig;
mod server;
mod tls;
mod verifier;

pub use client::{Client, REQUEST_LIMIT};
pub use error::{Error, Reason};
pub use kubeconfig::{bearer, check};
pub use server::Server;
pub use tls::client_config;
