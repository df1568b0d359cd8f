//! Learns about the agent's own pod while it exists.
//!
//! The kubelet stops the containers of a pod whose object is already gone (`kubectl delete pod --force`, the garbage
//! collection of pods) with the same SIGTERM. That pod can no longer be queried then, and the token bound to
//! it is rejected within seconds, although its DaemonSet continues and creates the next pod.

use super::{Object, Owner, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_core::journal::Journal;
use weir_core::journal::install::Event;
use weir_core::pods::Pods;
use weir_core::thread::rights;

/// Pause after a failed query: the first, doubled after each further failure up to the second.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A pod of a DaemonSet.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// `metadata.uid` of the pod.
    uid: String,
    /// Name of the DaemonSet, in the pod's namespace.
    pub(crate) daemon_set: String,
    pub(crate) node: Option<String>,
    pub(crate) service_account: Option<String>,
}

impl Known {
    /// Returns the names in upstream's chart.
    pub(crate) fn usual() -> Self {
        Self {
            uid: String::new(),
            daemon_set: "istio-cni-node".into(),
            node: None,
            service_account: Some("istio-cni".into()),
        }
    }

    /// Reads the pod; `None` if it belongs to no DaemonSet.
    pub(crate) fn of(pod: &Object) -> Option<Self> {
        let mut owners = pod.metadata.owner_references.iter();
        let owner = owners.find(|owner| owner.kind == "DaemonSet")?;
        Some(Self {
            uid: pod.metadata.uid.clone(),
            daemon_set: owner.name.clone(),
            node: pod.text("/nodeName").map(str::to_owned),
            service_account: pod.text("/serviceAccountName").map(str::to_owned),
        })
    }
}

/// The known owner, kept for the end of the agent.
#[derive(Debug, Default)]
pub(crate) struct Memory(Mutex<Option<Known>>);

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Option<Known>> {
        // No holder of the lock panics in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self) -> Option<Known> {
        self.lock().clone()
    }

    pub(crate) fn set(&self, known: Known) {
        *self.lock() = Some(known);
    }
}

impl Owner {
    /// Queries the agent's own pod until there is an answer, on a separate thread, so that nothing waits for it.
    pub fn learn(&self, journal: &Journal) {
        if self.always_removes || !self.is_a_pod() {
            return;
        }
        let (owner, told) = (self.clone(), journal.clone());
        let thread = std::thread::Builder::new()
            .name("owner".into())
            .spawn(move || {
                told.rights(rights::enter("owner"));
                owner.ask_until_known(&told);
            });
        if let Err(e) = thread {
            let why = format!("cannot start a thread: {e}");
            journal.record(Event::OwnerNotAsked { why });
        }
    }

    fn ask_until_known(&self, journal: &Journal) {
        let mut pause = RETRY.0;
        loop {
            match self.ask_for_pod() {
                Ok(None) => return,
                Ok(Some(known)) => {
                    let daemon_set = format!("{}/{}", self.namespace, known.daemon_set);
                    journal.record(Event::OwnerKnown { daemon_set });
                    return self.memory.set(known);
                }
                Err(e) => journal.record(Event::OwnerUnknown {
                    why: e.error.reason.cause(),
                }),
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(RETRY.1);
        }
    }

    fn ask_for_pod(&self) -> Result<Option<Known>> {
        // Without such a pod, the agent was started manually.
        let pod = self.pod(&self.client()?)?;
        Ok(pod.as_ref().and_then(Known::of))
    }

    /// Returns true if the watch of pods saw that the object of this pod disappeared while the agent ran.
    pub(crate) fn pod_went(&self) -> bool {
        let (Some(known), Some(pods)) = (self.memory.get(), &self.pods) else {
            return false;
        };
        let seen = |pods: &Pods| pods.get(&self.namespace, &self.pod);
        pods.synced() && seen(pods).is_none_or(|view| view.uid() != known.uid)
    }
}
