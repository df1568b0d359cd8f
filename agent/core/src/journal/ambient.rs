//! Events of ambient mode: pods, the node's proxy, and the host's part.

mod about;

use super::pod::{Contention, Healed, PodRef};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_cni::compile::Engine;
use weir_live::{Answer, Proof};
use weir_zds::Peer;

/// The state of a pod that is enrolled, should be, or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Required information, such as its address, is not known yet.
    Waiting,
    /// Its rules are being written, or compared for the first time.
    Enrolling,
    /// Its rules are in force and verified, but the proxy or the host does not know the pod yet, so its captured traffic is
    /// not answered; or its annotation is not written, so other nodes send to it in plain text.
    Pending,
    /// Its rules are in force and verified, the proxy has acknowledged the pod, and probes from the host reach it. With a reason, it
    /// is unknown whether foreign rules keep packets from its rules, or whether other programs change them.
    Enrolled,
    /// Enrolled, but foreign rules or policies keep packets from its rules: some of its traffic may be in plain text. The proxy keeps
    /// the pod, which would have no network without it.
    Conflict,
    /// Its rules cannot be written or verified: its traffic may be in plain text.
    Failed,
    /// It no longer belongs to the mesh, and its redirection is being removed.
    Leaving,
}

impl State {
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Enrolling,
        Self::Pending,
        Self::Enrolled,
        Self::Conflict,
        Self::Failed,
        Self::Leaving,
    ];

    /// Returns the name in metrics and `/status.json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Enrolling => "enrolling",
            Self::Pending => "pending",
            Self::Enrolled => "enrolled",
            Self::Conflict => "conflict",
            Self::Failed => "failed",
            Self::Leaving => "leaving",
        }
    }
}

/// The mechanism that captures the traffic of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Netfilter rules of this engine.
    Rules(Engine),
    /// eBPF programs.
    Ebpf,
}

impl std::fmt::Display for By {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rules(engine) => engine.fmt(f),
            Self::Ebpf => f.write_str("ebpf"),
        }
    }
}

/// A pod that is enrolled, should be, or was.
#[derive(Debug, Clone)]
pub struct Member {
    pub pod: PodRef,
    pub state: State,
    /// Start of this state.
    pub since: SystemTime,
    /// The mechanism found at the last look.
    pub engine: Option<By>,
    /// Time of the last successful verification.
    pub verified_at: Option<SystemTime>,
    /// Result of the test connection after the last write of its rules; `None` if there was none.
    pub proved: Option<Answer>,
    /// Reason why it is not enrolled, what keeps packets from its rules, or what is unknown about it.
    pub why: Option<Box<str>>,
}

/// An event of the node's proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// The number of connections changed.
    Connections(usize),
    /// The connections, oldest first, with the pods that each has acknowledged.
    Peers(Arc<[Peer]>),
    /// The snapshot is complete.
    Snapshot { added: usize, kept: usize },
    /// It refused the end of the snapshot. Pods are still sent.
    SnapshotRefused { why: String },
    /// It refused a pod.
    Refused { uid: Arc<str>, why: String },
    /// A connection ended.
    Closed { why: String },
    /// A process that is not the proxy connected.
    Stranger { why: String },
    /// The socket was bound, or binding failed.
    Socket { failure: Option<String> },
}

/// A packet reported by an eBPF program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The pod with its address; `None` if no pod of this node has it.
    pub pod: Option<PodRef>,
    /// Inode of the network namespace that the program serves.
    pub netns: u64,
    pub dropped: bool,
    /// Name in the metrics.
    pub verdict: &'static str,
    /// Name in the metrics.
    pub reason: &'static str,
    /// Source, destination and verdict, as text.
    pub what: String,
    /// Number of suppressed reports of the same pod and reason before it; `None` if this one is suppressed, too.
    pub more: Option<u64>,
}

/// An event of ambient mode.
#[derive(Debug)]
pub enum Event {
    /// All pods of the mesh with their states, in any order.
    Members { members: Arc<Vec<Member>> },
    /// A pod changed its state.
    Turned {
        pod: PodRef,
        from: Option<State>,
        /// `None`: it is no longer tracked.
        to: Option<State>,
        /// With `to: None`: a setting excludes the pod.
        why: Option<String>,
    },
    /// Its rules were written or found in a network namespace, and verified.
    Enrolled {
        pod: PodRef,
        summary: String,
        /// The proxy has acknowledged it.
        is_taken: bool,
        took: Duration,
    },
    /// Result of test connections in its network namespace.
    Proved { pod: PodRef, proof: Proof },
    /// Its rules had drifted and were repaired.
    Healed(Healed),
    /// Another writer keeps changing its rules.
    Contention(Contention),
    /// The annotation that other programs read cannot be written. The write is retried.
    NotAnnotated { pod: PodRef, why: String },
    /// The plugin also reported these addresses, which its network namespace does not have.
    AddressesAbsent { pod: PodRef, absent: Vec<IpAddr> },
    /// One of its annotations is invalid and counts as not set.
    AnnotationIgnored { pod: PodRef, what: String },
    /// A change to a pod or namespace was handled: `add`, `update`, `delete`.
    Reconciled { kind: &'static str },
    /// The plugin handed over a pod; `status` is the answer. With 200, `why` is the reason why the pod is not enrolled.
    HandedOver {
        status: u16,
        pod: String,
        why: Option<String>,
    },
    /// An event of the proxy.
    Proxy(Proxy),
    /// The host's part is in force, has failed, or was repaired.
    Host {
        purpose: Purpose,
        failure: Option<String>,
        healed: Option<String>,
        /// The same event was reported a moment ago: it is only counted.
        quiet: bool,
    },
    /// Removed what an agent with another setting had written at the node: pods are now captured in another way, or no
    /// longer.
    NodeCleaned { what: String },
    /// That removal failed and is retried.
    NodeNotCleaned { why: String },
    /// `config.json` cannot be written. The write is retried.
    NotShared { why: String },
    /// Notifications of the node's routing are received, or cannot be.
    RoutingReports { failure: Option<String> },
    /// Notifications of the node's routing were lost: they were not read in time.
    RoutingReportsLost,
    /// An eBPF program reported a packet that it captured, passed or dropped.
    Packet(Packet),
    /// The programs could not report this number of packets.
    PacketsNotReported { more: u64 },
    /// Reports of the programs are read, or cannot be.
    PacketReports { failure: Option<String> },
}

/// The purpose of the host's part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Lets kubelet probes reach pods that are captured in their own network namespaces.
    Probes,
    /// The same where eBPF programs in those namespaces let probes through, without rules at the host.
    ProbesByPrograms,
    /// Captures pods in the node's network namespace.
    Capture,
}

impl Purpose {
    /// Name in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Probes | Self::ProbesByPrograms => "probes",
            Self::Capture => "capture",
        }
    }
}
