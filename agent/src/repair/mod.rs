//! Repair: pods of this node that are outside of the mesh, and should not be.
//!
//! A pod may start while the plugin is not installed. Two ways lead to such a pod:
//!
//! - **by criteria**, as Istio's own agent finds it: its init container `istio-validation` ended because it
//!   noticed that nothing is redirected (`criteria`). It is repaired in place, deleted, or labelled (`broken`);
//! - **by state**: the pod asks for redirection, and its network namespace lacks the rules or has others (`state`).
//!   It is repaired in place, whatever its containers did.
//!
//! And pods that ask for nothing and have rules of ours all the same are found.
//!
//! In place means: the plugin's own path (`crate::dataplane::sidecar`), from the pod to rules that were read back, in
//! the namespace that is surely the pod's ([`weir_core::sandboxes`]). When a pod is looked at [`weir_reconcile`] decides.

mod broken;
mod criteria;
mod keeper;
pub mod settings;
mod start;
mod state;
mod visit;

pub use settings::{Action, RepairSettings};
pub(crate) use start::start;
