//! Tells the reconciler which pods it has to compare.

use crate::OnCommit;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use weir_core::journal::pod::Writer;
use weir_core::pods::Pods;
use weir_reconcile::Uid;

/// The pods whose rules were changed, with the process that did it, if known. Clones share the same map.
#[derive(Debug, Clone, Default)]
pub struct Drifted(Arc<Mutex<BTreeMap<Uid, Option<Writer>>>>);

impl Drifted {
    /// Records a change to the rules of a pod.
    pub fn put(&self, uid: Uid, by: Option<Writer>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.entry(uid).or_default();
        *known = by.or(known.take());
    }

    /// Takes all recorded changes and leaves the map empty.
    pub fn take(&self) -> BTreeMap<Uid, Option<Writer>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Wakes the reconciler. Clones share the same channel.
#[derive(Clone)]
pub struct Wake(Arc<watch::Sender<u64>>);

impl Default for Wake {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Wake {
    /// Wakes all subscribers.
    pub fn wake(&self) {
        self.0.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Returns a receiver that changes with every call of [`Wake::wake`].
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

/// Also wakes the reconciler on each change to the known pods.
pub async fn follow(pods: Pods, wake: Wake) {
    let mut changes = pods.subscribe();
    wake.wake();
    while changes.changed().await.is_ok() {
        wake.wake();
    }
}

/// Returns a callback that stores each change in `drifted` and wakes the reconciler.
pub fn on_commit(drifted: Drifted, wake: Wake) -> OnCommit {
    Arc::new(move |uid, by| {
        drifted.put(uid, by);
        wake.wake();
    })
}
