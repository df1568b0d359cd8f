//! The configuration of a redirection, as text and as typed values.
//!
//! [`SidecarConfig`] holds the input of the command as strings. It is read from a file and completed from the
//! environment by [`fill`](crate::fill::fill). [`Intent`] has the same content as typed values: ports, users,
//! networks. A pod does not use [`SidecarConfig`]: its annotations are parsed once to typed values
//! ([`PodRedirect`](crate::pod::PodRedirect)), and these become an [`Intent`]. All input is parsed before any rule is
//! compiled or the kernel is accessed, so a typing error in the last list leaves no partial rules.

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
pub(crate) use error::{beginning, quoted, said};
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
