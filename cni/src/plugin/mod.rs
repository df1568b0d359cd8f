//! The plugin: the verbs of CNI for pods whose traffic is redirected.
//!
//! [`Plugin`] implements [`Handler`](crate::protocol::Handler). It decides, in the fixed order of [`Plugin::enrol`],
//! whether a pod is redirected, and changes the kernel through a [`Backend`].
//!
//! The steps of ADD:
//!
//! 1. the node agent's own pod is let through before any other check: otherwise the agent could not start after a reboot;
//! 2. containers that are not Kubernetes pods, and pods of excluded namespaces, are let through;
//! 3. the other pods are looked up: at the node agent, which watches the pods of its node, else at the API server;
//! 4. an unusable kubeconfig fails every pod of 2 and 3 except those that the node agent knows;
//! 5. ambient pods are handed over to the node agent;
//! 6. pods with a sidecar get their rules.

mod ambient;
mod attempts;
mod backend;
mod enrol;
mod hand_over;
mod handler;
mod kernel;
mod look_up;
mod phases;
mod program;
mod selector;
mod sidecar;

pub use ambient::{Enablement, NotAmbient};
pub use attempts::Limits;
pub use backend::{Backend, DesiredRedirection, Deviation, named_engine};
pub use enrol::Plugin;
pub use hand_over::body as hand_over_body;
pub use kernel::KernelBackend;
pub use look_up::{NetnsOfPod, POD_PATH, PodAnswer, PodQuestion};
pub use phases::{Phase, Phases};
pub use program::main;

/// Name of the kubeconfig in the run directory.
pub const KUBECONFIG: &str = "istio-cni-kubeconfig";
/// Name of the log file in the run directory.
pub const LOG_FILE: &str = "istio-cni.log";
/// Name of the agent's log socket in the run directory.
pub const LOG_SOCKET: &str = "log.sock";
/// Name of the agent's event socket in the run directory.
pub const EVENT_SOCKET: &str = "pluginevent.sock";
/// Path of the request for CHECK at the event socket.
pub const CHECK_PATH: &str = "/cmdcheck";
/// Name of the socket in the run directory at which the agent answers lookups of pods.
pub const POD_SOCKET: &str = "pods.sock";
/// Prefix of the names of the node agent's pods.
pub const AGENT_POD_PREFIX: &str = "istio-cni-node-";
