//! Sockets, framing, network namespaces and routing: everything below the rules.
//!
//! What it is for: to speak netlink to the kernel without executing anything and without a C library. What it
//! refuses: to know what the messages mean to a firewall, a mesh or a container runtime.
//!
//! - [`Netns`] is a network namespace; work inside one happens on a thread made for it.
//! - [`nfnetlink::Socket`] sends requests, dumps and batches to netfilter and matches every answer to
//!   its question.
//! - [`events::Events`] is what the kernel tells when something changes.
//! - [`attr`] declares attributes once; encoding, decoding and error paths follow from the declaration.
//! - [`route::Routing`] is links, addresses, routes, policy rules, neighbours, qdiscs, filters and namespace ids.
//!
//! All of them fail with one [`Error`]: the operation, the object, the errno and the kernel's own words.
//! Every `unsafe` of the product is in [`sys`].

pub mod attr;
pub mod contention;
mod error;
pub mod events;
pub mod message;
pub mod netns;
pub mod nfnetlink;
pub mod route;
pub mod socket;
pub mod sys;
mod transport;
mod userns;

pub use error::{Error, ErrorKind, InForce, Result};
pub use netns::{Netns, NetnsId};
pub use transport::{Kernel, Patience, Transport};
pub use userns::Owner;
