//! The connection to ztunnel by ZDS.

use super::hands::{Captured, Proxy, Workload};
use super::roster::Roster;
use std::sync::Arc;
use std::time::Duration;
use weir_core::journal::Journal;
use weir_core::journal::ambient::{self, Event};
use weir_core::sandboxes::{Held, Sandboxes};
use weir_drift::Wake;
use weir_zds::{AddError, Handle, Namespace, Observer, Peer, Uid};

/// Time limit for ztunnel to remove a pod. A later answer is returned to the next attempt.
const LIMIT: Duration = Duration::from_secs(2);

/// The connected proxy.
pub(super) struct Ztunnel(pub(super) Handle);

impl Proxy for Ztunnel {
    fn newest(&self) -> Option<u64> {
        self.0.newest()
    }

    fn peers(&self) -> Vec<Peer> {
        self.0.peers()
    }

    fn add(&self, workload: &Workload, limit: Duration) -> Result<Option<u64>, String> {
        let workload = told(workload, |captured| captured.held.clone());
        match self.0.add(&workload, limit) {
            Ok(by) => Ok(Some(by)),
            Err(AddError::Waits) => Ok(None),
            Err(e) => Err(e.to_string()),
        }
    }

    fn remove(&self, uid: &str) -> Result<(), String> {
        self.0.remove(uid, LIMIT).map_err(|e| e.to_string())
    }
}

fn told(
    workload: &Workload,
    held: impl FnOnce(&Captured) -> Option<Arc<Held>>,
) -> weir_zds::Workload {
    let held = workload.captured.as_ref().and_then(held);
    weir_zds::Workload {
        uid: Arc::clone(&workload.uid),
        name: Arc::clone(&workload.name),
        namespace: Arc::clone(&workload.namespace),
        service_account: Arc::clone(&workload.service_account),
        netns: held.map(|held| held as Arc<dyn Namespace>),
    }
}

/// Supplies all pods to a ztunnel that connects.
pub(super) struct All {
    pub(super) roster: Roster,
    pub(super) sandboxes: Sandboxes,
}

impl weir_zds::Workloads for All {
    /// A network namespace that is no longer verified to be the pod's is not sent: ztunnel keeps its entry, and gets the
    /// network namespace when it is found again.
    fn all(&self) -> Option<Vec<weir_zds::Workload>> {
        let surely = |captured: &Captured| {
            let held = self.sandboxes.kept(&captured.asked.identity)?;
            (held.id() == captured.netns).then_some(held)
        };
        let all = self.roster.all()?;
        Some(all.iter().map(|w| told(w, surely)).collect())
    }
}

/// Records what ztunnel does in the journal and wakes the keeper.
pub(super) struct Told {
    pub(super) journal: Journal,
    pub(super) roster: Roster,
    pub(super) wake: Wake,
}

impl Told {
    fn record(&self, proxy: ambient::Proxy) {
        self.journal.record(Event::Proxy(proxy));
    }
}

impl Observer for Told {
    fn connections(&self, count: usize) {
        self.record(ambient::Proxy::Connections(count));
        self.wake.wake();
    }

    fn snapshot(&self, added: usize, kept: usize) {
        self.record(ambient::Proxy::Snapshot { added, kept });
        self.wake.wake();
    }

    fn snapshot_refused(&self, why: &str) {
        let why = why.to_owned();
        self.record(ambient::Proxy::SnapshotRefused { why });
        self.wake.wake();
    }

    fn refused(&self, uid: &str, why: &str) {
        let (uid, why) = (uid.into(), why.to_owned());
        self.record(ambient::Proxy::Refused { uid, why });
    }

    fn answered(&self, uid: &Uid) {
        self.roster.answered(uid);
        self.wake.wake();
    }

    fn closed(&self, why: &str) {
        let why = why.to_owned();
        self.record(ambient::Proxy::Closed { why });
    }

    fn stranger(&self, why: &str) {
        let why = why.to_owned();
        self.record(ambient::Proxy::Stranger { why });
    }

    fn socket(&self, failure: Option<&str>) {
        let failure = failure.map(str::to_owned);
        self.record(ambient::Proxy::Socket { failure });
    }
}
