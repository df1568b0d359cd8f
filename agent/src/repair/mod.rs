//! Repair: pods of this node that are outside of the mesh, and should not be.
//!
//! A pod may start while the plugin is not installed. Two ways lead to such a pod:
//!
//! - **by criteria**, as Istio's own agent finds it: its init container `istio-validation` ended because it
//!   noticed that nothing is redirected (`criteria`). It is repaired in place, deleted, or labelled;
//! - **by state**: the pod asks for redirection, and its network namespace lacks the rules or has others (`state`).
//!   It is repaired in place, whatever its containers did.
//!
//! And pods that ask for nothing and have rules of ours all the same are found (`unasked`).
//!
//! In place means: the plugin's own path, from the pod to rules that were read back, in the one namespace that has a
//! process of the pod and all its addresses (`sandbox`).

pub(crate) mod controller;
mod criteria;
mod pass;
mod selector;
pub mod settings;
pub(crate) mod state;
mod unasked;
mod work;

pub use settings::{Action, RepairSettings};
