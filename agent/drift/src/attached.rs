//! Notices within half a second that a program of a pod was detached, or that its link has another one: the kernel reports neither.
//!
//! That another program was put before it is found by the rounds: to know the order the namespace would have to be entered.

use crate::OnCommit;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::spawn_blocking;
use weir_ebpf::Links;
use weir_reconcile::Uid;

/// From the end of one look to the next one, so that links that the kernel is slow to tell of are asked for less often.
const LOOK: Duration = Duration::from_millis(500);

/// The links of pods as they were when they were compared; clones are the same.
#[derive(Clone, Default)]
pub struct Attached(Arc<Mutex<BTreeMap<Uid, Arc<Links>>>>);

impl Attached {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Uid, Arc<Links>>> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// They are in sync.
    pub fn put(&self, uid: &str, links: Links) {
        self.all().insert(uid.into(), Arc::new(links));
    }

    /// They are about to be changed, or the pod leaves.
    pub fn forget(&self, uid: &str) {
        self.all().remove(uid);
    }

    /// The pods with a link that does not hold. Each is told of once, until it is compared again.
    fn changed(&self) -> Vec<Uid> {
        // The lock is not held while the kernel is asked.
        let all = self.all().clone();
        let changed = all.into_iter().filter(|(_, links)| !links.hold());
        let is_still = |(uid, links): &(Uid, Arc<Links>)| {
            let mut all = self.all();
            let is_still = all.get(uid).is_some_and(|now| Arc::ptr_eq(now, links));
            is_still && all.remove(uid).is_some()
        };
        changed.filter(is_still).map(|(uid, _)| uid).collect()
    }

    /// Looks again and again, on a thread with the rights for it.
    pub async fn watch(self, on_change: OnCommit) {
        loop {
            tokio::time::sleep(LOOK).await;
            let of_thread = self.clone();
            let changed = spawn_blocking(move || of_thread.changed()).await;
            // Which process it was, the kernel does not say.
            let changed = changed.unwrap_or_default().into_iter();
            changed.for_each(|uid| on_change(uid, None));
        }
    }
}
