//! Common foundation of the parts of the node agent.
//!
//! ```text
//! settings    the table of settings
//! journal     typed events of everything that happens; its sinks are log, metrics, status and the event recorder
//! thread      threads: their runtimes, capabilities and ends
//! log         the log
//! api         the API server: access, connections and their limits, the recorder of Kubernetes events
//! pods        the pods of this node, as watched at the API server
//! sandboxes   the network namespaces of pods
//! socket      the files of listening sockets
//! report      requests of an operator's command to a running agent
//! ```
//!
//! No module imports one below it in this list. Nothing here decides what is done for a pod, and nothing changes the node.
#![forbid(unsafe_code)]

pub mod api;
pub mod journal;
pub mod log;
pub mod pods;
pub mod report;
pub mod sandboxes;
pub mod settings;
pub mod socket;
pub mod thread;
