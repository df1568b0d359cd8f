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
//!
//! The types that most callers need: [`settings::Resolved`], the effective settings; [`journal::Journal`], which records events;
//! [`pods::Pods`], the pods of the node; [`sandboxes::Held`], the network namespace of a pod.
//!
//! ```
//! use std::collections::BTreeMap;
//! use weir_core::settings::{Origin, resolve};
//!
//! let environment = |name: &str| (name == "AMBIENT_ENABLED").then(|| "true".into());
//! let settings = resolve(&BTreeMap::new(), &environment);
//! assert!(settings.bool("AMBIENT_ENABLED"));
//! let from_environment = settings.iter().filter(|s| matches!(s.origin, Origin::Env(_)));
//! assert_eq!(from_environment.count(), 1, "all others have their defaults");
//! ```
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
