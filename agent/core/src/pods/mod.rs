//! The pods of this node, as the API server describes them.
//!
//! [`PodView`] is the retained part of one pod. [`Pods`] holds all of them: one watch writes it, and any thread reads it
//! without waiting for the API server.

mod rest;
mod seen;
pub mod selector;
mod store;
mod view;
pub mod watch;
mod watch_error;

pub use store::{NamespaceView, Pods, Writer};
pub use view::{InitStatus, PodView, REDIRECTION, Terminated};
