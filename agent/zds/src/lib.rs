//! ZDS, the protocol by which a node agent passes the network namespaces of pods to ztunnel (`istio.workload.zds`).
//!
//! ```text
//! ztunnel connects, sends hello -> all pods, each acknowledged -> end of the snapshot -> added and removed pods
//! ```
//! The agent listens on a SEQPACKET socket: each packet is a protobuf message, and one that adds a pod carries a
//! descriptor of its network namespace. Each request is answered before the next one is sent; a request that is queued or not answered yet
//! is not sent again. During a roll-over two ztunnels are
//! connected: pods are added to the newest and removed from all. Up to eight may be connected; one more replaces the oldest.
//!
//! The order of requests matters: after one out of order, ztunnel drains all pods and exits. Received data is
//! bounded, and a peer that is silent, slow or violates the protocol is disconnected; it reconnects and gets a new snapshot.
//!
//! [`Server`] is the socket with its connections, [`Workloads`] supplies all pods, [`Handle`] adds and removes pods,
//! [`Observer`] receives events. Start with [`Server::start`].
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use weir_zds::{AddError, Observer, Options, Server, Uid, Workload, Workloads};
//!
//! struct NoPods;
//! impl Workloads for NoPods {
//!     fn all(&self) -> Option<Vec<Workload>> {
//!         Some(Vec::new())
//!     }
//! }
//! # struct Ignore;
//! # impl Observer for Ignore {
//! #     fn connections(&self, _: usize) {}
//! #     fn snapshot(&self, _: usize, _: usize) {}
//! #     fn snapshot_refused(&self, _: &str) {}
//! #     fn refused(&self, _: &str, _: &str) {}
//! #     fn answered(&self, _: &Uid) {}
//! #     fn closed(&self, _: &str) {}
//! #     fn stranger(&self, _: &str) {}
//! #     fn socket(&self, _: Option<&str>) {}
//! # }
//! # fn main() -> std::io::Result<()> {
//! # let dir = weir_testing::TempDir::new();
//! let options = Options::new(dir.file("ztunnel.sock"));
//! let server = Server::start(options, Arc::new(NoPods), Arc::new(Ignore))?;
//! let pod = Workload {
//!     uid: "uid-1".into(),
//!     name: "web-0".into(),
//!     namespace: "shop".into(),
//!     service_account: "web".into(),
//!     netns: Some(Arc::new(std::fs::File::open("/proc/thread-self/ns/net")?)),
//! };
//! let added = server.handle().add(&pod, Duration::from_secs(1));
//! assert_eq!(added, Err(AddError::NoProxy), "no ztunnel is connected");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod connection;
mod listener;
pub mod message;
mod packet;
mod requests;
mod server;

pub use listener::may_bind_at;
pub use server::{AddError, Handle, Options, Server};

use std::fmt::Debug;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::SystemTime;

/// A descriptor of a network namespace that can be sent.
pub trait Namespace: AsFd + Debug + Send + Sync {}

impl<T: AsFd + Debug + Send + Sync> Namespace for T {}

/// `metadata.uid` of a pod.
pub type Uid = Arc<str>;

/// A pod.
#[derive(Clone, Debug)]
pub struct Workload {
    /// `metadata.uid`
    pub uid: Uid,
    /// `metadata.name`
    pub name: Arc<str>,
    /// `metadata.namespace`
    pub namespace: Arc<str>,
    /// `spec.serviceAccountName`
    pub service_account: Arc<str>,
    /// Its network namespace. `None` if not known: ztunnel keeps the one that it has.
    pub netns: Option<Arc<dyn Namespace>>,
}

/// A connected ztunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The unique number of the connection. The highest is the newest.
    pub id: u64,
    /// Its process ID in the PID namespace of this process (`SO_PEERCRED`); 0 if it is outside.
    pub pid: i32,
    /// When it connected.
    pub since: SystemTime,
    /// `ZdsHello.version`; `None` before the hello message.
    pub version: Option<i32>,
    /// Its snapshot is complete. Pods are added to the newest such connection; while there is none, to the newest one whose
    /// snapshot is in progress, after that.
    pub ready: bool,
    /// Number of acknowledged requests.
    pub acked: u64,
    /// Number of queued requests.
    pub pending: usize,
}

/// The source of all pods, for the snapshot of a new connection.
pub trait Workloads: Send + Sync {
    /// Returns all enrolled pods; `None` if not known yet. ztunnel drops every pod that is not among them.
    fn all(&self) -> Option<Vec<Workload>>;
}

/// Receives events, on the thread where they occur. It must not block, and not use the [`Handle`].
pub trait Observer: Send + Sync {
    /// The number of connections changed.
    fn connections(&self, count: usize);
    /// A snapshot is complete: number of pods sent with their namespace, and of pods to be kept.
    fn snapshot(&self, added: usize, kept: usize);
    /// A ztunnel refused the end of the snapshot. Its connection continues.
    fn snapshot_refused(&self, why: &str);
    /// A ztunnel refused a request about this pod.
    fn refused(&self, uid: &str, why: &str);
    /// A ztunnel answered a request about this pod after the caller gave up: the next call with the same request gets the answer.
    fn answered(&self, uid: &Uid);
    /// A connection has ended.
    fn closed(&self, why: &str);
    /// A connection was refused: the peer is not ztunnel, or no thread can be started.
    fn stranger(&self, why: &str);
    /// The socket was bound, or binding failed for this reason.
    fn socket(&self, failure: Option<&str>);
}
