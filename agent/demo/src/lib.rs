//! A demonstration pod: real network namespaces, sockets and rules.
//!
//! [`Lab`] has the namespaces, [`Stage`] opens the listeners of the proxy, the application and the server in them, and
//! sending a [`Flow`] returns the receiver and the address that the receiver saw.
//! It needs no cluster and leaves nothing behind. `weir demo` and the traffic tests use the same code.
//!
//! It does not write rules: the caller writes them into the pod's namespace
//! ([`Lab::netns`] of [`Place::Pod`]) after creating the lab and before sending flows.
//!
//! Start with [`run()`].

#![forbid(unsafe_code)]

mod addresses;
mod ambient;
mod api;
mod flow;
mod interrupt;
mod lab;
mod node;
pub mod node_ambient;
mod ready;
mod redirection;
mod run;
mod scene;
mod scratch;
mod socket;
mod stage;
mod table;
mod trace;

pub use ambient::ambient_scenes;
pub use flow::{Flow, Outcome, Protocol, Receiver};
pub use lab::{Attached, Lab, Place};
pub use node_ambient::run as run_node_ambient;
pub use run::run;
pub use scene::{EXCLUDED_INBOUND_PORT, Played, Scene, excluded_cidr, play, scenes, table};
pub use stage::{
    APPLICATION_PORTS, Mode, PROXY_DNS_PORT, PROXY_INBOUND_PORT, PROXY_OUTBOUND_PORT,
    PROXY_TUNNEL_PORT, SERVER_PORTS, Stage, ZTUNNEL_MARK,
};
pub use table::{Table, Tone};
pub use weir_live::{Owner, original_destination};
