//! What Istio's agent counts in ambient mode: the names are there, so that dashboards and alerts find them. They stay
//! 0 as long as this agent has no ambient mode.

use super::{counters, gauge};
use prometheus_client::registry::Registry;

pub(super) fn register(r: &mut Registry) {
    counters(
        r,
        "istio_cni_plugin_requests",
        "Ambient pods that the plugin handed over, by response code",
        "response_code",
        &["200", "400", "500"],
    );
    counters(
        r,
        "nodeagent_reconcile_events",
        "Processed events of pods and namespaces, by type",
        "type",
        &["add", "update", "delete", "unknown"],
    );
    gauge(r, "ztunnel_connected", "Connections of ztunnel");
}
