//! The data that the plugin reports about pods that it hands over.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_reconcile::Uid;

/// The data that the plugin reports about a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::ambient) struct Sandbox {
    /// Its addresses; the API server may not know them yet.
    pub(in crate::ambient) addresses: Vec<IpAddr>,
    /// The API server's addresses at the time of the hand-over, which belong to a previous sandbox: any later value is newer.
    pub(in crate::ambient) before: Vec<IpAddr>,
    /// `CNI_NETNS`; empty if not given.
    pub(in crate::ambient) netns: PathBuf,
}

/// Reports of the plugin that are not processed yet. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(in crate::ambient) struct Told(Arc<Mutex<BTreeMap<Uid, Sandbox>>>);

impl Told {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Uid, Sandbox>> {
        // No code panics while holding the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::ambient) fn put(&self, uid: &Uid, sandbox: Sandbox) {
        self.all().insert(Uid::clone(uid), sandbox);
    }

    pub(super) fn take(&self, uid: &str) -> Option<Sandbox> {
        self.all().remove(uid)
    }
}
