//! The configuration of a redirection as typed values: ports, users, networks.
//!
//! The annotations of a pod are parsed once to typed values ([`PodRedirect`](crate::pod::PodRedirect)), and these become an
//! [`Intent`]. All input is parsed before any rule is compiled or the kernel is accessed, so a typing error in the last
//! list leaves no partial rules.

mod error;
mod intent;
mod names;
mod size;
pub mod text;
mod values;

pub(crate) use error::beginning;
pub use error::{InputError, quoted, said};
pub use intent::{
    Dns, Inbound, InboundMode, Intent, OutboundRanges, OwnerGroups, Ranges, TproxyMark, loopback,
};
pub use names::NameFiles;
pub use names::lookup as lookup_name;
pub use size::MAX_RULES;
pub(crate) use values::MAX_ID;
pub use values::{IdRange, InterfaceName, PortRange, ids};

#[cfg(test)]
pub(crate) mod texts;
