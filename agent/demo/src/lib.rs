//! A mesh pod that can be watched: real namespaces, real sockets, real rules.
//!
//! [`Lab`] is the place, [`Stage`] puts the proxy, the application and the server into it, and
//! a [`Flow`] sent through it answers with who got it and what address the receiver saw.
//! Nothing needs a cluster and nothing is left behind. What `weir demo` shows and
//! what the traffic tests assert is found out by the same code.
//!
//! It does not make rules: they are programmed into the pod's namespace
//! ([`Lab::netns`] of [`Place::Pod`]) between building the lab and sending flows.

#![forbid(unsafe_code)]

mod addresses;
mod ambient;
mod api;
mod flow;
mod lab;
mod node;
pub mod node_ambient;
mod owner;
pub mod probe;
mod ready;
mod redirection;
mod run;
mod scene;
mod socket;
mod stage;
mod table;
mod trace;

pub use ambient::ambient_scenes;
pub use flow::{Flow, Outcome, Protocol, Receiver};
pub use lab::{Attached, Lab, Place};
pub use node_ambient::run as run_node_ambient;
pub use owner::Owner;
pub use run::run;
pub use scene::{EXCLUDED_INBOUND_PORT, Played, Scene, excluded_cidr, play, scenes, table};
pub use socket::original_destination;
pub use stage::{
    APPLICATION_PORTS, Mode, PROXY_DNS_PORT, PROXY_INBOUND_PORT, PROXY_OUTBOUND_PORT,
    PROXY_TUNNEL_PORT, SERVER_PORTS, Stage, ZTUNNEL_MARK,
};
pub use table::{Table, Tone};
