//! Pods of ambient mode, the proxy of the node, and the host's part.

mod about;

use super::pod::{Contention, Healed, PodRef};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_cni::compile::Engine;
use weir_live::{Answer, Proof};
use weir_zds::Peer;

/// How a pod is that is in the mesh, or should be, or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Something has to be known first, such as its address.
    Waiting,
    /// Its rules are being made, or compared for the first time.
    Enrolling,
    /// Its rules are in force and verified. The proxy, or the host, does not know it yet: its traffic is captured, and
    /// not answered. Or its annotation is not written: other nodes send to it in plain text.
    Pending,
    /// Its rules are in force and verified, the proxy has taken it, and probes from the host reach it.
    Enrolled,
    /// As enrolled, and foreign rules or policies keep packets from its own, or that is not known: some of its traffic may be in
    /// plain text. It stays with the proxy, without which it would have no network.
    Conflict,
    /// Its rules cannot be made or verified: its traffic may be in plain text.
    Failed,
    /// It does not belong to the mesh any more, and what was made for it is being removed.
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

    /// As metrics and `/status.json` have it.
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

/// What captures the traffic of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Rules of this engine of netfilter.
    Rules(Engine),
    /// Programs of eBPF.
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

/// A pod that is in the mesh, or should be, or was.
#[derive(Debug, Clone)]
pub struct Member {
    pub pod: PodRef,
    pub state: State,
    /// Since when.
    pub since: SystemTime,
    /// Which rules it had when they were seen last.
    pub engine: Option<By>,
    /// When they were seen to be right, the last time.
    pub verified_at: Option<SystemTime>,
    /// Whether a connection of it landed at the proxy, when its rules were written last; `None`: none was made.
    pub proved: Option<Answer>,
    /// Why it is not enrolled, or what keeps packets from its rules.
    pub why: Option<Box<str>>,
}

/// What the proxy of the node does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proxy {
    /// How many connections there are.
    Connections(usize),
    /// The connections, oldest first, with what each has acknowledged.
    Peers(Arc<[Peer]>),
    /// It was told of all pods.
    Snapshot { added: usize, kept: usize },
    /// It refuses the end of that. It is told of pods all the same.
    SnapshotRefused { why: String },
    /// It refuses a pod.
    Refused { uid: Arc<str>, why: String },
    /// A connection ended.
    Closed { why: String },
    /// Another process wanted to be the proxy.
    Stranger { why: String },
    /// The socket was bound, or cannot be.
    Socket { failure: Option<String> },
}

/// What a program of eBPF did to a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Whose it is; `None`: no pod of this node has its address.
    pub pod: Option<PodRef>,
    /// The inode of the network namespace that the program belongs to.
    pub netns: u64,
    pub dropped: bool,
    /// As metrics have it.
    pub verdict: &'static str,
    /// As metrics have it.
    pub reason: &'static str,
    /// In words: from where to where, and what became of it.
    pub what: String,
    /// How many of the same pod and reason were not told before it; `None`: nor is this one.
    pub more: Option<u64>,
}

/// What happens in ambient mode.
#[derive(Debug)]
pub enum Event {
    /// The pods of the mesh, and how they are.
    Members { members: Arc<[Member]> },
    /// A pod is in another state.
    Turned {
        pod: PodRef,
        from: Option<State>,
        /// `None`: it is no matter of the mesh any more.
        to: Option<State>,
        why: Option<String>,
    },
    /// Its rules were made or found anew in a namespace, and verified.
    Enrolled {
        pod: PodRef,
        summary: String,
        /// The proxy has it.
        is_taken: bool,
        took: Duration,
    },
    /// Connections were made in its namespace, and this is where they landed.
    Proved { pod: PodRef, proof: Proof },
    /// Its rules were not as they should be, and are now.
    Healed(Healed),
    /// Something changes its rules again and again.
    Contention(Contention),
    /// The annotation that other programs read cannot be written. It is tried again.
    NotAnnotated { pod: PodRef, why: String },
    /// The plugin told these addresses of it too, and its namespace does not have them.
    AddressesAbsent { pod: PodRef, absent: Vec<IpAddr> },
    /// One of its annotations cannot be read, and counts as not set.
    AnnotationIgnored { pod: PodRef, what: String },
    /// What changed about a pod or a namespace was dealt with: `add`, `update`, `delete`.
    Reconciled { kind: &'static str },
    /// The plugin handed a pod over, and this was the answer; with 200, why it is not enrolled.
    HandedOver {
        status: u16,
        pod: String,
        why: Option<String>,
    },
    /// The proxy.
    Proxy(Proxy),
    /// What the host needs is in force, or is not, or had to be made again.
    Host {
        purpose: Purpose,
        failure: Option<String>,
        healed: Option<String>,
        /// The same was told a moment ago: it is counted.
        quiet: bool,
    },
    /// What an agent with another setting had made at the node is removed: pods are captured in another way now, or no
    /// longer.
    NodeCleaned { what: String },
    /// It cannot be, for this reason. It is tried again.
    NodeNotCleaned { why: String },
    /// `config.json` cannot be written. It is tried again.
    NotShared { why: String },
    /// Changes of the node's routing are reported by the kernel, or cannot be.
    RoutingReports { failure: Option<String> },
    /// The kernel had more changes of the node's routing to report than were read in time.
    RoutingReportsLost,
    /// A program of eBPF captured a packet, let it pass or dropped it, and reported that.
    Packet(Packet),
    /// Programs could not report so many packets.
    PacketsNotReported { more: u64 },
    /// Reports of programs are read, or cannot be.
    PacketReports { failure: Option<String> },
}

/// What rules of the host are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Probes of the kubelet reach pods that are captured in their own namespaces.
    Probes,
    /// The same where programs in those namespaces let them through, without rules of the host.
    ProbesByPrograms,
    /// Pods are captured in the node's namespace.
    Capture,
}

impl Purpose {
    /// As metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Probes | Self::ProbesByPrograms => "probes",
            Self::Capture => "capture",
        }
    }
}
