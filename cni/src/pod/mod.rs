//! A pod, and what its redirection depends on.
//!
//! [`Pod`] is the part of the API object that matters here, [`PodFacts`] what is concluded from it, and
//! [`SidecarDecision`] whether the pod is redirected at all, with the reason in words when it is not.

mod decision;
mod facts;
mod manifest;
mod namespace;
mod object;
mod redirect;

pub use decision::{SidecarDecision, Skip};
pub use facts::PodFacts;
pub use namespace::{Namespace, NamespaceMetadata};
pub use object::{
    Container, EnvVar, OwnerReference, Pod, PodMetadata, PodSpec, PodStatus, SecurityContext,
};
pub use redirect::{PodRedirect, redirect_from};
