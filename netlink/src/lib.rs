//! Sockets, framing, network namespaces and routing: everything below the rules.
//!
//! Purpose: speak netlink to the kernel without executing any tool and without a C library. Out of scope: what the
//! messages mean to a firewall, a mesh or a container runtime.
//!
//! Four types matter:
//!
//! - [`Netns`] is a network namespace; work inside one happens on a thread made for it.
//! - [`route::Routing`] is links, addresses, routes, policy rules, neighbours, qdiscs, filters and namespace ids.
//! - [`nfnetlink::Socket`] sends requests, dumps and batches to netfilter and matches every answer to its question.
//! - [`events::Events`] is the notifications of the kernel, of both families.
//!
//! All of them return one [`Error`] type: the operation, the object, the errno and the kernel's extended ack. Messages that
//! have no type yet are declared with [`attr`]: encoding, decoding and error paths follow from one declaration.
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
//! // What fails says what was tried, on what, and why.
//! let error = routing.link("eth1").unwrap_err();
//! assert!(error.is_not_found());
//! assert_eq!(error.to_string(), "cannot find link eth1: No such device (ENODEV)");
//! # Ok(())
//! # }
//! ```
//!
//! Addresses with a prefix are those of the crate `ipnet`: the standard library has none, and most users of it have it
//! already. No other crate's type is in a signature.

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
