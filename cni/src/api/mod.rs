//! The requests to the API server that a CNI plugin needs: read one pod, read one namespace. The node agent sends a few
//! more when it terminates.
//!
//! The path of the kubeconfig is always explicit. A missing file is an error; there is no search in other places. A
//! kubeconfig that would run a program for its credentials is refused. Requests have a time limit, and every error names
//! the file, the server, the object, the reason and the remedy.
//!
//! # Why not kube
//! kube is the usual library, and the plugin used it first. With kube for these two requests the static plugin had
//! 6.64 MB, above the limit of 4 MiB, and contained code that executes programs (credentials of kind `exec`), which
//! this product never does. So this module uses rustls and the few lines of HTTP in [`crate::http`]. It refuses, by name,
//! kubeconfig features that the agent never writes: proxies, passwords, plain HTTP to addresses other than loopback.

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
