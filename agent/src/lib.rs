//! The node side: the `weir` command, and the node agent.
//!
//! The agent replaces Istio's `install-cni`: the same settings, files, sockets, metrics and answers. It is built on
//! [`weir_core`]: settings, journal, threads, log, API server, pods, sandboxes. [`weir_install`] keeps the plugin installed on the
//! node; [`weir_reconcile`] schedules the work for pods on its threads; [`weir_drift`] detects changes of their rules; [`weir_show`]
//! presents what the journal recorded. [`weir_ambient`], [`weir_ebpf`] and [`weir_node_ambient`] redirect pods of ambient mode;
//! [`weir_zds`] passes their namespaces to ztunnel, and [`weir_live`] proves a redirection by connections. [`weir_rules`] reads what the
//! plugin does not. The modules depend on each other in one direction, lower layers first:
//!
//! ```text
//! dataplane   ways to redirect a pod: desired state, compare and write
//! ambient     pods whose traffic ztunnel carries: enrolled, verified, handed over, removed
//! repair      pods that should be in the mesh but are not redirected
//! serve       health, metrics, the sockets for the plugin and for operators
//! supervisor  the process that starts and stops all of them
//! cli         the command line, and what `weir uninstall` does
//! ```
//! `ci/rooms` checks that they do not import each other in a cycle.
//!
//! [`cli`] is the `weir` command: the agent and its removal, and the commands of [`weir_command`] for operators. No rules are built
//! in this crate: every command and the agent use [`weir_cni::redirection`], as the plugin does. Start with `supervisor`.
#![forbid(unsafe_code)]

mod ambient;
pub mod cli;
mod dataplane;
pub mod repair;
pub(crate) mod serve;
pub(crate) mod supervisor;
