//! What Istio's agent counts in ambient mode: the names are there, so that dashboards and alerts find them. They stay
//! 0 as long as this agent has no ambient mode.

use super::{counters, gauge};
use prometheus_client::registry::Registry;

pub(super) fn register(r: &mut Registry) {
    counters(
        r,
        "istio_cni_plugin_requests",
        "Pods that the plugin handed over, by the code of the answer",
        "response_code",
        &["200", "400", "500"],
    );
    counters(
        r,
        "nodeagent_reconcile_events",
        "Events of pods and namespaces that were worked on, by their type",
        "type",
        &["add", "update", "delete", "unknown"],
    );
    gauge(r, "ztunnel_connected", "Connections of ztunnel");
}
