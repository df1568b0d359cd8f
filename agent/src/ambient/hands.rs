//! What is done to the world for a pod. Each of these may fail, hang until its limit, or lose its answer; tests put faults
//! in their place.

use super::by_plugin::ByPlugin;
use crate::dataplane::{Hindrance, Spent};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_ambient::PodOverrides;
use weir_cni::redirection::Fingerprint;
use weir_core::journal::ambient::{By, State};
use weir_core::journal::pod::Repair;
use weir_core::sandboxes::Held;
use weir_core::sandboxes::place::Identity;
use weir_live::Proof;
use weir_netlink::NetnsId;
use weir_zds::Peer;

/// The rules of a pod as they were verified.
#[derive(Debug, Clone)]
pub(super) struct Captured {
    pub(super) netns: NetnsId,
    /// What was asked for.
    pub(super) asked: Asked,
    pub(super) engine: Option<By>,
    /// From before they were compared; `None`: the next look compares them.
    pub(super) fingerprint: Option<Fingerprint>,
    /// What keeps packets from them though they are in force, or why that is not known.
    pub(super) hindered: Option<Hindrance>,
    pub(super) compared: Instant,
    /// The namespace, until the rules are removed. `None` where there is no real one.
    pub(super) held: Option<Arc<Held>>,
}

impl Captured {
    /// What the pod is once the proxy has it, and what is to be said about that.
    pub(super) fn state(&self) -> (State, Option<String>) {
        match self.hindered.clone() {
            None => (State::Enrolled, None),
            Some(Hindrance::Unknown(why)) => (State::Enrolled, Some(why)),
            Some(Hindrance::Foreign(what)) => (State::Conflict, Some(what)),
        }
    }

    /// In this namespace; what was found of its rules is not known yet.
    pub(super) fn at(held: Arc<Held>, asked: &Asked) -> Self {
        Self {
            netns: held.id(),
            asked: asked.clone(),
            engine: None,
            fingerprint: None,
            hindered: None,
            compared: Instant::now(),
            held: Some(held),
        }
    }
}

/// What is asked for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) identity: Identity,
    pub(super) overrides: PodOverrides,
    /// What the addresses in `identity` are by, where that is not the API server alone.
    pub(super) by_plugin: Option<ByPlugin>,
}

/// What was found and done.
#[derive(Debug)]
pub(super) enum Outcome {
    /// All was as it should be.
    Same,
    /// There were no rules of this pod, or those of another agent.
    Made { summary: String },
    /// There were, and something changed them.
    Healed(Repair),
}

/// Why rules are not known to be in force.
#[derive(Debug)]
pub(super) struct NotCaptured {
    pub(super) why: String,
    /// Its namespace, where that is sure all the same.
    pub(super) at: Option<Box<Captured>>,
}

impl From<String> for NotCaptured {
    fn from(why: String) -> Self {
        Self { why, at: None }
    }
}

/// Why nothing was removed.
#[derive(Debug)]
pub(super) enum NotReleased {
    /// Nothing of the pod runs on this node, in whatever namespace.
    Absent(String),
    /// Which namespace is the pod's cannot be told.
    Unseen(String),
    /// It is known, and they may be there still.
    Failed(String),
}

impl From<String> for NotReleased {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The rules in the pod's namespace.
pub(super) trait Rules: Send + Sync {
    /// Finds the namespace, compares the rules and writes what differs. `before` is what an earlier call found: while
    /// that holds nothing is compared. Nothing older than `since` answers where the namespace is.
    ///
    /// # Errors
    /// The namespace is not surely the pod's; the rules cannot be read or written.
    fn capture(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        since: Instant,
        spent: &mut Spent,
    ) -> Result<(Captured, Outcome), NotCaptured>;

    /// Makes connections in the namespace and finds where they land; `None`: that is not wanted, or not possible here.
    fn prove(&self, _captured: &Captured) -> Option<Proof> {
        None
    }

    /// Removes them.
    ///
    /// # Errors
    /// They may be there still, or nothing of the pod is there.
    fn release(&self, asked: &Asked, before: Option<&Captured>) -> Result<(), NotReleased>;
}

/// A pod as the proxy knows it.
#[derive(Debug, Clone)]
pub(super) struct Workload {
    pub(super) uid: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) namespace: Arc<str>,
    pub(super) service_account: Arc<str>,
    /// `None`: it is to be kept as it is.
    pub(super) captured: Option<Captured>,
}

/// The proxy of the node.
pub(super) trait Proxy: Send + Sync {
    /// The newest connection; `None`: there is none.
    fn newest(&self) -> Option<u64>;

    /// All connections, oldest first.
    fn peers(&self) -> Vec<Peer>;

    /// Has the newest connection take the pod. Returns that connection; `None`: it has not answered within the limit, and when it
    /// does the pod is looked at again.
    ///
    /// # Errors
    /// There is none, or it refuses, or was lost.
    fn add(&self, workload: &Workload, limit: Duration) -> Result<Option<u64>, String>;

    /// Has every connection forget the pod. Without one there is nothing to forget.
    ///
    /// # Errors
    /// One may not have.
    fn remove(&self, uid: &str) -> Result<(), String>;
}

/// The host's part: probes of the kubelet are not captured.
pub(super) trait Probes: Send + Sync {
    /// These are addresses of the pod, also where another pod had them before.
    ///
    /// # Errors
    /// The host's rules may not know them.
    fn put(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String>;

    /// They are its addresses no more. Those that are another pod's now stay.
    ///
    /// # Errors
    /// The host's rules may know them still.
    fn remove(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String>;

    /// These are all addresses of pods, each with the UID of its pod. Others that an earlier agent left are removed, in the
    /// background, but for those of `spared` pods: by UID, and by the addresses that are known of them.
    fn expect(&self, all: BTreeMap<IpAddr, Arc<str>>, spared: BTreeMap<Arc<str>, Vec<IpAddr>>);

    /// All pods of the mesh are captured: what agents with another setting left at the node is not needed any more.
    fn all_captured(&self) {}

    /// Removes everything from the node's namespace, for good. Returns what was removed.
    ///
    /// # Errors
    /// What may be there still.
    fn end(&self) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}

/// All of them.
#[derive(Clone)]
pub(super) struct Hands {
    pub(super) rules: Arc<dyn Rules>,
    pub(super) proxy: Arc<dyn Proxy>,
    pub(super) probes: Arc<dyn Probes>,
}
