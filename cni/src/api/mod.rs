//! The API server, as far as a CNI plugin needs it: read one pod, read one
//! namespace. The node agent asks it a few questions more when it ends.
//!
//! The kubeconfig is always named explicitly. A missing one is an error, never
//! a reason to look elsewhere; one that would run a program for its credentials
//! is refused. Requests have a limit and every failure says which file, which
//! server, which object, why, and what to do.
//!
//! # Why not kube
//! kube is the library for this, and the plugin was written with it first. For its two requests kube made
//! the static plugin 6.64 MB, where 6 MiB is the limit, and brought code that executes programs (credentials of
//! kind `exec`), which nothing in this product may. So this is rustls and the few lines of HTTP of
//! [`crate::http`]. What the agent never writes into a kubeconfig is refused by its name: proxies,
//! passwords, plain HTTP to anything but loopback.

mod base64;
mod client;
mod error;
mod kubeconfig;
mod pinned;
mod server;
mod tls;

pub use client::{Client, REQUEST_LIMIT};
pub use error::{Error, Reason};
pub use kubeconfig::{bearer, check};
pub use server::Server;
pub use tls::client_config;
