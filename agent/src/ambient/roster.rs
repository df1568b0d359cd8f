//! What the proxy is told when it connects: every pod of the mesh.

use super::hands::{Captured, Workload};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All pods of the mesh; clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Roster(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Every pod of the node was looked at once. Before that a snapshot would make the proxy drop pods.
    complete: bool,
    workloads: BTreeMap<Arc<str>, Workload>,
    /// Those about which the proxy has said something after nobody waited for it any more.
    answered: BTreeSet<Arc<str>>,
}

impl Roster {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is in the mesh, in this namespace.
    pub(super) fn put(&self, workload: Workload) {
        let uid = Arc::clone(&workload.uid);
        self.state().workloads.insert(uid, workload);
    }

    /// It is in the mesh. Where is known already, or is not known yet.
    pub(super) fn keep(&self, workload: Workload) {
        let uid = Arc::clone(&workload.uid);
        self.state().workloads.entry(uid).or_insert(workload);
    }

    /// It is not known any more where it is: the proxy keeps it as it has it.
    pub(super) fn unsure(&self, uid: &str) {
        if let Some(workload) = self.state().workloads.get_mut(uid) {
            workload.captured = None;
        }
    }

    /// How it was captured last, where that is known.
    pub(super) fn captured(&self, uid: &str) -> Option<Captured> {
        self.state().workloads.get(uid)?.captured.clone()
    }

    /// It is not in the mesh any more.
    pub(super) fn remove(&self, uid: &str) {
        self.state().workloads.remove(uid);
    }

    /// The proxy has said something about it that nobody has heard yet.
    pub(super) fn answered(&self, uid: &Arc<str>) {
        self.state().answered.insert(Arc::clone(uid));
    }

    /// Those since the last call.
    pub(super) fn take_answered(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.state().answered)
    }

    /// Every pod was looked at.
    pub(super) fn complete(&self) {
        self.state().complete = true;
    }

    /// All of them; `None` while not all were looked at.
    pub(super) fn all(&self) -> Option<Vec<Workload>> {
        let state = self.state();
        state
            .complete
            .then(|| state.workloads.values().cloned().collect())
    }
}
