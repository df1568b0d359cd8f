//! ZDS, the protocol in which a node agent hands the network namespaces of pods to ztunnel (`istio.workload.zds`).
//!
//! ```text
//! ztunnel connects, says hello -> all pods, each acknowledged -> "that was all" -> pods that come and go
//! ```
//! The agent listens on a socket of type SEQPACKET: a packet is a protobuf message, and the one that adds a pod carries a
//! descriptor of its namespace. Every request is answered before the next is sent; one that waits, or is not answered yet, is not sent
//! again. During a roll-over two ztunnels are
//! connected: pods are added to the newest, and removed from all. Eight may be connected; one more replaces the oldest.
//!
//! What is sent has to be right: after a request out of order ztunnel drains all pods and ends. What is received is
//! bounded, and a peer that is silent, slow or speaks nonsense is disconnected; it connects again and is told everything.
//!
//! [`Server`] is the socket and its connections, [`Workloads`] where it learns all pods, [`Handle`] adds and removes one,
//! [`Observer`] is told what happens.
#![forbid(unsafe_code)]

mod connection;
mod listener;
pub mod message;
mod packet;
mod requests;
mod server;

pub use server::{AddError, Handle, Options, Server};

use std::fmt::Debug;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::SystemTime;

/// A network namespace that can be sent.
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
    /// Its network namespace. `None`: it is not known where it is; ztunnel keeps what it has.
    pub netns: Option<Arc<dyn Namespace>>,
}

/// A ztunnel that is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The number of the connection, which no other ever has. The highest is the newest.
    pub id: u64,
    /// Its process, in the pid namespace of this process (`SO_PEERCRED`); 0: it is outside of it.
    pub pid: i32,
    /// When it connected.
    pub since: SystemTime,
    /// `ZdsHello.version`; `None`: it has not said hello yet.
    pub version: Option<i32>,
    /// It has answered the snapshot. Pods are added to the newest of these; while there is none, to the newest that is being
    /// told of all pods, after them.
    pub ready: bool,
    /// Requests that it has acknowledged.
    pub acked: u64,
    /// Requests that wait to be sent to it.
    pub pending: usize,
}

/// Where the server learns all pods, for a ztunnel that connects.
pub trait Workloads: Send + Sync {
    /// All pods that ztunnel carries. `None`: they are not known yet. It drops every pod that is not among them.
    fn all(&self) -> Option<Vec<Workload>>;
}

/// Is told what happens, in the thread where it happens. It must not block.
pub trait Observer: Send + Sync {
    /// How many connections there are now.
    fn connections(&self, count: usize);
    /// A ztunnel has acknowledged all pods: so many with their namespace, so many to be kept.
    fn snapshot(&self, added: usize, kept: usize);
    /// A ztunnel refuses the end of the snapshot. Its connection goes on.
    fn snapshot_refused(&self, why: &str);
    /// A ztunnel refuses a request about this pod.
    fn refused(&self, uid: &str, why: &str);
    /// A ztunnel has answered a request about this pod after who asked had given up: who asks for the same has the answer.
    fn answered(&self, uid: &Uid);
    /// A connection has ended.
    fn closed(&self, why: &str);
    /// A connection was refused: the peer is not ztunnel, or there is no thread for it.
    fn stranger(&self, why: &str);
    /// The socket is bound, or cannot be, for this reason.
    fn socket(&self, failure: Option<&str>);
}
