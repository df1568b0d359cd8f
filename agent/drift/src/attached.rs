//! Detects, within half a second, that an eBPF program of a pod was detached or that its link was given another program. The
//! kernel sends no notification for either.
//!
//! A foreign program attached in front of ours is found by the periodic comparison: reading the order requires entering the
//! network namespace.

use crate::OnCommit;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::spawn_blocking;
use weir_ebpf::Links;
use weir_reconcile::Uid;

/// Pause between two polls. It starts at the end of a poll, so that slow answers of the kernel lead to fewer polls.
const LOOK: Duration = Duration::from_millis(500);

/// The links of each pod at its last comparison. Clones share the same map.
#[derive(Clone, Default)]
pub struct Attached(Arc<Mutex<BTreeMap<Uid, Arc<Links>>>>);

impl Attached {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Uid, Arc<Links>>> {
        // No holder of the lock panics in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the links of a pod that was found in sync.
    pub fn put(&self, uid: &str, links: Links) {
        self.all().insert(uid.into(), Arc::new(links));
    }

    /// Stops polling the links of a pod, before they are changed or when the pod leaves.
    pub fn forget(&self, uid: &str) {
        self.all().remove(uid);
    }

    /// Returns the pods with a changed link. Each is returned once, until [`Attached::put`] records it again.
    fn changed(&self) -> Vec<Uid> {
        // Queries to the kernel are made without the lock.
        let all = self.all().clone();
        let changed = all.into_iter().filter(|(_, links)| !links.hold());
        let is_still = |(uid, links): &(Uid, Arc<Links>)| {
            let mut all = self.all();
            let is_still = all.get(uid).is_some_and(|now| Arc::ptr_eq(now, links));
            is_still && all.remove(uid).is_some()
        };
        changed.filter(is_still).map(|(uid, _)| uid).collect()
    }

    /// Polls the links forever, on threads with the required capabilities, and reports each change.
    pub async fn watch(self, on_change: OnCommit) {
        loop {
            tokio::time::sleep(LOOK).await;
            let of_thread = self.clone();
            let changed = spawn_blocking(move || of_thread.changed()).await;
            // The kernel does not report which process changed a link.
            let changed = changed.unwrap_or_default().into_iter();
            changed.for_each(|uid| on_change(uid, None));
        }
    }
}
