//! The pods of this node, as they are watched.

use super::{Blind, Label, Metrics, counters, gauge};
use crate::pods::REASONS;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone)]
pub(super) struct Pods {
    watched: Gauge,
    synced: Gauge,
    restarts: Family<Label, Counter>,
}

impl Pods {
    pub(super) fn register(r: &mut Registry) -> Self {
        Self {
            watched: gauge(r, "weir_pods_watched", "Pods of this node that are known"),
            synced: gauge(
                r,
                "weir_pod_watch_synced",
                "Whether the pods of this node are followed at the moment",
            ),
            restarts: counters(
                r,
                "weir_pod_watch_restarts",
                "Failures of the watches of pods and namespaces, by reason",
                "reason",
                &REASONS,
            ),
        }
    }
}

impl Metrics {
    /// How many pods are known, and whether they are followed at the moment.
    pub(crate) fn pods_watched(&self, known: usize, synced: bool) {
        self.pods
            .watched
            .set(i64::try_from(known).unwrap_or(i64::MAX));
        self.pods.synced.set(i64::from(synced));
        self.blind(Blind::Watch, !synced);
    }

    /// A watch failed and is tried again.
    pub(crate) fn watch_restarted(&self, reason: &'static str) {
        self.pods
            .restarts
            .get_or_create(&[("reason", reason)])
            .inc();
    }
}
