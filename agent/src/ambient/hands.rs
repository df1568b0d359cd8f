//! The side effects for a pod, as traits. Each operation may fail, block until its limit, or lose its answer; tests substitute
//! implementations with faults.

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

/// The rules of a pod as last verified.
#[derive(Debug, Clone)]
pub(super) struct Captured {
    pub(super) netns: NetnsId,
    /// The request that led to them.
    pub(super) asked: Asked,
    pub(super) engine: Option<By>,
    /// Fingerprint taken before the comparison; `None`: the next visit compares them.
    pub(super) fingerprint: Option<Fingerprint>,
    /// What keeps packets from the rules although they are in force, or why that is unknown.
    pub(super) hindered: Option<Hindrance>,
    pub(super) compared: Instant,
    /// The network namespace, held until the rules are removed. `None` without a real one.
    pub(super) held: Option<Arc<Held>>,
}

impl Captured {
    /// Returns the state of the pod once the proxy has it, and the reason to show.
    pub(super) fn state(&self) -> (State, Option<String>) {
        match self.hindered.clone() {
            None => (State::Enrolled, None),
            Some(Hindrance::Unknown(why)) => (State::Enrolled, Some(why)),
            Some(Hindrance::Foreign(what)) => (State::Conflict, Some(what)),
        }
    }

    /// True if it is unknown whether packets reach the rules, or will: this is tried again.
    pub(super) fn is_in_doubt(&self) -> bool {
        matches!(self.hindered, Some(Hindrance::Unknown(_)))
    }

    /// Creates an entry for this network namespace, without results about its rules. The next request for the pod is the same one but
    /// that a captured pod may lose addresses, so that its rules need not be compared again.
    pub(super) fn at(held: Arc<Held>, asked: &Asked) -> Self {
        let identity = asked.identity.clone().with_any_of_addresses();
        Self {
            netns: held.id(),
            asked: Asked {
                identity,
                ..asked.clone()
            },
            engine: None,
            fingerprint: None,
            hindered: None,
            compared: Instant::now(),
            held: Some(held),
        }
    }
}

/// The request to capture a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) identity: Identity,
    pub(super) overrides: PodOverrides,
    /// The plugin's addresses, if those in `identity` do not come from the API server alone.
    pub(super) by_plugin: Option<ByPlugin>,
}

/// What was found and written.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The rules were in sync.
    Same,
    /// The rules were written: there were none, or those of another agent.
    Made { summary: String },
    /// The rules had drifted and were repaired.
    Healed(Repair),
}

/// The reason why rules are not known to be in force.
#[derive(Debug)]
pub(super) struct NotCaptured {
    pub(super) why: String,
    /// The pod's network namespace, if it is known nevertheless.
    pub(super) at: Option<Box<Captured>>,
    /// The drift that was found, also if it was repaired and something else failed; without differences if there was none. `None`: it is
    /// not known.
    pub(super) drift: Option<Box<Repair>>,
}

impl From<String> for NotCaptured {
    fn from(why: String) -> Self {
        let (at, drift) = (None, None);
        Self { why, at, drift }
    }
}

/// The reason why nothing was removed.
#[derive(Debug)]
pub(super) enum NotReleased {
    /// No process of the pod runs on this node, in any network namespace.
    Absent(String),
    /// The network namespace of the pod cannot be determined.
    Unseen(String),
    /// The network namespace is known, and the rules may still be present.
    Failed(String),
}

impl From<String> for NotReleased {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// The rules in the pod's network namespace.
pub(super) trait Rules: Send + Sync {
    /// Finds the network namespace, compares the rules and writes the differences. `before` is the result of an earlier call: while
    /// it is valid nothing is compared. Observations older than `since` are not used to find the network namespace.
    ///
    /// # Errors
    /// No network namespace is verified to be the pod's, or the rules cannot be read or written.
    fn capture(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        since: Instant,
        spent: &mut Spent,
    ) -> Result<(Captured, Outcome), NotCaptured>;

    /// Opens test connections in the network namespace and reports whether the proxy receives them; `None` if disabled or impossible.
    fn prove(&self, _captured: &Captured) -> Option<Proof> {
        None
    }

    /// Removes the rules.
    ///
    /// # Errors
    /// The rules may still be present, or nothing of the pod runs.
    fn release(&self, asked: &Asked, before: Option<&Captured>) -> Result<(), NotReleased>;
}

/// A pod as sent to the proxy.
#[derive(Debug, Clone)]
pub(super) struct Workload {
    pub(super) uid: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) namespace: Arc<str>,
    pub(super) service_account: Arc<str>,
    /// `None`: the proxy keeps its present entry.
    pub(super) captured: Option<Captured>,
}

/// The proxy of the node.
pub(super) trait Proxy: Send + Sync {
    /// Returns the newest connection; `None` if there is none.
    fn newest(&self) -> Option<u64>;

    /// Returns all connections, oldest first.
    fn peers(&self) -> Vec<Peer>;

    /// Sends the pod to the newest connection. Returns that connection; `None`: it has not answered within the limit, and its answer
    /// will trigger another job for the pod.
    ///
    /// # Errors
    /// There is no connection, it refused the pod, or it was lost.
    fn add(&self, workload: &Workload, limit: Duration) -> Result<Option<u64>, String>;

    /// Removes the pod from every connection. Without a connection there is nothing to do.
    ///
    /// # Errors
    /// A connection may still have the pod.
    fn remove(&self, uid: &str) -> Result<(), String>;
}

/// The rules of the host, which exempt probes of the kubelet from capture.
pub(super) trait Probes: Send + Sync {
    /// Adds addresses of the pod, also if another pod had them before.
    ///
    /// # Errors
    /// The host's rules may lack them.
    fn put(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String>;

    /// Removes addresses of the pod. Those that now belong to another pod stay.
    ///
    /// # Errors
    /// The host's rules may still have them.
    fn remove(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String>;

    /// Sets all addresses of pods, each with the UID of its pod. Other addresses, left by an earlier agent, are removed in the
    /// background, except those of `spared` pods, matched by UID and by known address.
    fn expect(&self, all: BTreeMap<IpAddr, Arc<str>>, spared: BTreeMap<Arc<str>, Vec<IpAddr>>);

    /// Called when all pods of the mesh are captured: what agents with another setting left at the node is no longer needed.
    fn all_captured(&self) {}

    /// Removes everything from the node's network namespace permanently. Returns what was removed.
    ///
    /// # Errors
    /// What may still be present.
    fn end(&self) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}

/// All side effects.
#[derive(Clone)]
pub(super) struct Hands {
    pub(super) rules: Arc<dyn Rules>,
    pub(super) proxy: Arc<dyn Proxy>,
    pub(super) probes: Arc<dyn Probes>,
}
