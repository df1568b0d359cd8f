//! Netlink sockets, message framing, network namespaces and routing.
//!
//! Purpose: exchange netlink messages with the kernel without executing a tool and without a C library for netlink. Out of
//! scope: the meaning of the messages to a firewall, a mesh or a container runtime.
//!
//! Four types matter:
//!
//! - [`Netns`] is a network namespace; work inside one runs on a thread created for it.
//! - [`route::Routing`] reads and changes links, addresses, routes, policy rules, neighbours, qdiscs, filters and namespace
//!   ids.
//! - [`nfnetlink::Socket`] sends requests, dumps and batches to netfilter and matches every answer to its request.
//! - [`events::Events`] receives the notifications of both protocols.
//!
//! All of them return one [`Error`] type with the operation, the object, the errno and the kernel's extended ack. Messages
//! that have no type yet are declared with [`attr`]: encoding, decoding and error paths follow from one declaration.
//! Every `unsafe` of this crate is in the private module `sys`; other crates use its typed interfaces: [`xtables`], the
//! sockets of the legacy tables, and [`tuning`].
//!
//! ```
//! use std::net::Ipv4Addr;
//! use std::time::Duration;
//! use weir_netlink::Netns;
//! use weir_netlink::events::{Events, Notification};
//! use weir_netlink::message;
//! use weir_netlink::route::{Changed, RTNLGRP_LINK, RouteEvent, Routing};
//!
//! # fn main() -> weir_netlink::Result<()> {
//! # if Netns::create().is_err_and(|e| e.is_permission()) { return Ok(()); } // an unprivileged user
//! let (pod, node) = (Netns::create()?, Netns::create()?);
//! let routing = Routing::open_in(&pod)?;
//! let mut events = pod.run(|| Events::<message::Rtnetlink>::open(&[RTNLGRP_LINK]))??;
//!
//! // ip link add eth0 type veth peer name veth0 netns NODE; ip address add 10.0.0.2/24 dev eth0; ip link set eth0 up
//! routing.add_veth("eth0", "veth0", &node)?;
//! let link = routing.link("eth0")?;
//! let address = ipnet::Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 2), 24);
//! routing.add_address(link.index, address.into())?;
//! routing.set_up(link.index)?;
//!
//! assert!(routing.addresses()?.iter().any(|a| a.net == address.into()));
//! assert_eq!(Routing::open_in(&node)?.link("veth0")?.kind, link.kind);
//! let told = events.next(Duration::from_secs(5))?;
//! let Some(Notification::Event(RouteEvent::Link(Changed::New(new)))) = told else { panic!("{told:?}") };
//! assert_eq!(new.name, "eth0");
//!
//! // An error names the operation, its object and the reason.
//! let error = routing.link("eth1").unwrap_err();
//! assert!(error.is_not_found());
//! assert_eq!(error.to_string(), "cannot find link eth1: No such device (ENODEV)");
//! # Ok(())
//! # }
//! ```
//!
//! Addresses with a prefix are types of the crate `ipnet`, since the standard library has none. No other crate's type is in a
//! signature.

pub mod attr;
pub mod contention;
mod error;
pub mod events;
pub mod message;
mod netns;
pub mod nfnetlink;
pub mod route;
pub mod socket;
mod sys;
mod transport;
mod userns;

pub use error::{Error, ErrorKind, InForce, Result};
pub use netns::{Netns, NetnsId};
pub use sys::{namespace_type, tuning, xtables};
pub use transport::{NetlinkSocket, Patience, Transport};
pub use userns::Owner;

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
