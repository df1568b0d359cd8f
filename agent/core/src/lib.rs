//! What every part of the node agent stands on.
//!
//! ```text
//! settings    the table of settings
//! journal     typed events of everything that happens; its sinks are log, metrics, status and the event recorder
//! thread      what a thread begins with, and how it ends
//! log         lines for people
//! api         the API server: access, connections and their limits, the recorder of Kubernetes events
//! pods        what the API server says of this node's pods
//! sandboxes   the network namespace of a pod, and how it is known
//! report      what an operator's command asks a running agent
//! ```
//!
//! None imports one below it in this list. Nothing here decides what is done for a pod, and nothing changes the node.
#![forbid(unsafe_code)]

pub mod api;
pub mod journal;
pub mod log;
pub mod pods;
pub mod report;
pub mod sandboxes;
pub mod settings;
pub mod thread;
