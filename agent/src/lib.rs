//! The node side: the `weir` command, and the node agent.
//!
//! The agent takes the place of Istio's `install-cni`: the same settings, files, sockets, metrics and answers. It stands on
//! [`weir_core`]: settings, journal, threads, log, API server, pods, sandboxes; [`weir_install`] keeps the plugin on the node; [`weir_reconcile`] decides
//! when, how often and on which thread a pod is looked at, [`weir_drift`] notices that something changes its rules, and [`weir_show`] shows what is
//! recorded. Its rooms depend one way, from the bottom up:
//!
//! ```text
//! dataplane   ways to redirect a pod: what it should have, compared and written
//! repair      pods that are outside of the mesh, and should not be
//! ambient     pods whose traffic ztunnel carries: enrolled, verified, handed over, removed
//! serve       health, metrics, the sockets for the plugin and for operators
//! supervisor  the process that joins them
//! ```
//! `ci/rooms` checks that none imports one above it.
//!
//! [`cli`] is the command: the agent and its removal, and what [`weir_command`] has for operators. Rules are made nowhere here: every
//! command and the agent go through [`weir_cni::redirection`], as the plugin does.
#![forbid(unsafe_code)]

mod ambient;
pub mod cli;
mod dataplane;
pub mod repair;
pub(crate) mod serve;
pub(crate) mod supervisor;
