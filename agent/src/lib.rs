//! The node side: the `weir` command, and the node agent.
//!
//! The agent takes the place of Istio's `install-cni`: the same settings, files, sockets, metrics and answers. Its rooms
//! depend one way, from the bottom up:
//!
//! ```text
//! settings    the table of settings          thread      what a thread begins with
//! journal     typed events of everything that happens; its sinks are log, metrics, status and the event recorder
//! log         lines for people               metrics, status   what is shown of the journal
//! api         the API server: access, connections and their limits, the recorder of Kubernetes events
//! pods        what the API server says of this node's pods
//! sandboxes   the network namespace of a pod, and how it is known
//! dataplane   ways to redirect a pod: what it should have, compared and written
//! reconcile   work by pod: when, how often, on which thread
//! drift       notices at once that something changes the rules of a pod
//! repair      pods that are outside of the mesh, and should not be
//! ambient     pods whose traffic ztunnel carries: enrolled, verified, handed over, removed
//! install     the plugin and its configuration on the node
//! serve       health, metrics, the sockets for the plugin and for operators
//! supervisor  the process that joins them
//! ```
//! `ci/rooms` checks that none imports one above it.
//!
//! [`cli`] is the command; `bundle` is a node's report for support. Rules are made nowhere here: every command and the
//! agent go through [`weir_cni::redirection`], as the plugin does.
#![forbid(unsafe_code)]

mod ambient;
mod api;
mod bundle;
pub mod cli;
mod dataplane;
#[cfg(test)]
mod documented;
mod drift;
pub mod install;
pub(crate) mod journal;
pub(crate) mod log;
pub(crate) mod metrics;
pub mod pods;
mod reconcile;
pub mod repair;
pub mod sandboxes;
pub(crate) mod serve;
pub mod settings;
pub(crate) mod status;
pub(crate) mod supervisor;
pub(crate) mod thread;
