//! What a redirection is configured with, as text and as typed values.
//!
//! [`SidecarConfig`] holds what people and programs give to the command: strings, as they gave them. It comes from a
//! file, and is completed from the environment by [`fill`](crate::fill::fill). [`Intent`] is the same with every
//! string understood: ports, users, networks. A pod is understood without that text
//! ([`PodRedirect`](crate::pod::PodRedirect)): its annotations become typed values once, and these an [`Intent`]. Nothing is compiled and no kernel is asked before all of it is understood,
//! so that a typing error in the last list leaves no half-made rules.

mod error;
mod intent;
mod names;
mod sidecar;
mod size;
mod switches;
pub mod text;
mod validate;
mod values;

pub use error::InputError;
pub use intent::{
    Dns, Inbound, InboundMode, Intent, OutboundRanges, OwnerGroups, Ranges, TproxyMark,
};
pub(crate) use intent::{listeners, loopback};
pub use names::NameFiles;
pub(crate) use names::lookup as lookup_name;
pub use sidecar::SidecarConfig;
pub use size::MAX_RULES;
pub use validate::validate;
pub(crate) use values::MAX_ID;
pub use values::{IdRange, InterfaceName, PortRange};
