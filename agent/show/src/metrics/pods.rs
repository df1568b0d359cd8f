//! The watch of the pods of this node.

use super::blind::Blind;
use super::{Label, Metrics, counter, counters, gauge};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_core::journal::watch::{Event, Kind, Objects};

#[derive(Clone)]
pub(super) struct Pods {
    watched: Gauge,
    synced: Gauge,
    restarts: Family<Label, Counter>,
    unreadable: Counter,
    /// True if the pods, and the namespaces where needed, are in sync with the API server.
    current: Arc<[AtomicBool; 2]>,
}

impl Pods {
    pub(super) fn register(r: &mut Registry) -> Self {
        Self {
            watched: gauge(
                r,
                "weir_pods_watched",
                "Pods of this node in the cache of the agent",
            ),
            synced: gauge(
                r,
                "weir_pod_watch_synced",
                "1 while the pods of this node are watched and their list is current",
            ),
            restarts: counters(
                r,
                "weir_pod_watch_restarts",
                "Failures of the watches of pods and namespaces, by reason",
                "reason",
                &Kind::ALL.map(Kind::label),
            ),
            unreadable: counter(
                r,
                "weir_pod_watch_unreadable",
                "Objects of the API server that the agent cannot decode; it keeps using their last decodable state",
            ),
            current: Arc::new([false, true].map(AtomicBool::new)),
        }
    }
}

impl Metrics {
    pub(super) fn of_watch(&self, event: &Event) {
        let (of, known, synced) = match event {
            Event::Begins { of } => (of, 0, false),
            Event::Works {
                of,
                known,
                left_out,
                ..
            } => (of, *known, left_out.is_none()),
            Event::Fails {
                of, known, kind, ..
            } => {
                let label = [("reason", kind.label())];
                self.pods.restarts.get_or_create(&label).inc();
                (of, *known, false)
            }
            Event::Unreadable { .. } => {
                self.pods.unreadable.inc();
                return;
            }
            Event::Off { .. } | Event::Paged { .. } => return,
        };
        let [of_pods, of_namespaces] = &*self.pods.current;
        let current = match of {
            Objects::Pods(_) => {
                let known = i64::try_from(known).unwrap_or(i64::MAX);
                self.pods.watched.set(known);
                self.pods.synced.set(i64::from(synced));
                of_pods
            }
            Objects::Namespaces { needed: true } => of_namespaces,
            Objects::Namespaces { needed: false } => return,
        };
        current.store(synced, Ordering::Release);
        let all = [of_pods, of_namespaces];
        let is_blind = !all.iter().all(|kind| kind.load(Ordering::Acquire));
        self.blind(Blind::Watch, is_blind);
    }
}
