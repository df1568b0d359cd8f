//! The pods of the mesh, which the proxy receives when it connects.

use super::hands::{Captured, Workload};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All pods of the mesh on this node. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(super) struct Roster(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Every pod of the node was examined once. Before that, a snapshot would make the proxy drop pods.
    complete: bool,
    workloads: BTreeMap<Arc<str>, Workload>,
    /// Pods whose answer from the proxy arrived when no caller waited for it any more.
    answered: BTreeSet<Arc<str>>,
}

impl Roster {
    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or updates a pod of the mesh, with its network namespace.
    pub(super) fn put(&self, workload: Workload) {
        let uid = Arc::clone(&workload.uid);
        self.state().workloads.insert(uid, workload);
    }

    /// Adds a pod of the mesh unless it is known already.
    pub(super) fn keep(&self, workload: Workload) {
        let uid = Arc::clone(&workload.uid);
        self.state().workloads.entry(uid).or_insert(workload);
    }

    /// Marks the network namespace as unknown: the proxy keeps its present entry.
    pub(super) fn unsure(&self, uid: &str) {
        if let Some(workload) = self.state().workloads.get_mut(uid) {
            workload.captured = None;
        }
    }

    /// Returns how the pod was captured last, if known.
    pub(super) fn captured(&self, uid: &str) -> Option<Captured> {
        self.state().workloads.get(uid)?.captured.clone()
    }

    /// Removes a pod that left the mesh.
    pub(super) fn remove(&self, uid: &str) {
        self.state().workloads.remove(uid);
    }

    /// Records an answer of the proxy that no caller received.
    pub(super) fn answered(&self, uid: &Arc<str>) {
        self.state().answered.insert(Arc::clone(uid));
    }

    /// Takes the pods answered since the last call.
    pub(super) fn take_answered(&self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.state().answered)
    }

    /// Marks that every pod was examined.
    pub(super) fn complete(&self) {
        self.state().complete = true;
    }

    /// Returns all pods; `None` until every pod was examined.
    pub(super) fn all(&self) -> Option<Vec<Workload>> {
        let state = self.state();
        state
            .complete
            .then(|| state.workloads.values().cloned().collect())
    }
}
