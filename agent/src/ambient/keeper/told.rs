//! What the plugin says of the pods that it hands over.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_reconcile::Uid;

/// What the plugin says of a pod that it hands over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::ambient) struct Sandbox {
    /// The API server may know none yet.
    pub(in crate::ambient) addresses: Vec<IpAddr>,
    /// The API server's addresses in the moment of the hand-over, which are of a sandbox before: what it says later is newer.
    pub(in crate::ambient) before: Vec<IpAddr>,
    /// `CNI_NETNS`; empty: it is not said.
    pub(in crate::ambient) netns: PathBuf,
}

/// What the plugin said and was not looked at yet; clones are the same.
#[derive(Debug, Clone, Default)]
pub(in crate::ambient) struct Told(Arc<Mutex<BTreeMap<Uid, Sandbox>>>);

impl Told {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Uid, Sandbox>> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::ambient) fn put(&self, uid: &Uid, sandbox: Sandbox) {
        self.all().insert(Uid::clone(uid), sandbox);
    }

    pub(super) fn take(&self, uid: &str) -> Option<Sandbox> {
        self.all().remove(uid)
    }
}
