//! Repair of pods on this node that should be in the mesh but are not redirected.
//!
//! A pod may start while the plugin is not installed. Such a pod is found in two ways:
//!
//! - **by criteria**, as in Istio's agent: its init container `istio-validation` failed because it
//!   detected that traffic is not redirected (`criteria`). The pod is repaired in place, deleted, or labelled (`broken`);
//! - **by state**: the pod asks for redirection, but the rules in its network namespace are missing or differ (`state`).
//!   The pod is repaired in place, regardless of the status of its containers.
//!
//! Pods that have our rules without asking for redirection are reported, too.
//!
//! A repair in place uses the plugin's own path (`crate::dataplane::sidecar`), from the pod object to rules that were read back, in
//! a network namespace that is verified to be the pod's ([`weir_core::sandboxes`]). [`weir_reconcile`] schedules the work.

mod broken;
mod criteria;
mod keeper;
pub mod settings;
mod start;
mod state;
mod visit;

pub use settings::{Action, RepairSettings};
pub(crate) use start::start;
