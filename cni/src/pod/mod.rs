//! A pod, and the properties that its redirection depends on.
//!
//! [`Pod`] is the part of the API object that is used here, and [`PodFacts`] is derived from it.
//! [`Skip::of`] decides whether the pod is redirected, and returns the reason if it is not.

mod decision;
mod environment;
mod facts;
mod manifest;
mod namespace;
mod object;
mod redirect;

pub use decision::Skip;
pub use environment::NodeEnvironment;
pub use facts::PodFacts;
pub use namespace::{Namespace, NamespaceMetadata};
pub use object::{
    Container, EnvVar, OwnerReference, Pod, PodMetadata, PodSpec, PodStatus, SecurityContext,
};
pub use redirect::{PodRedirect, redirect_from};
