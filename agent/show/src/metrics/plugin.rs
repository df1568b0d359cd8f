//! Log lines and look-ups of the plugin, and the sockets for them.

use super::blind::Blind;
use super::{Label, Metrics, counters};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_core::journal::serve::{Event, LineResult, Lookup, Socket};

/// Results of a look-up of a pod.
const LOOKUPS: [&str; 5] = ["known", "unknown", "unsynced", "malformed", "refused"];

#[derive(Clone)]
pub(super) struct Plugin {
    lines: Family<Label, Counter>,
    lookups: Family<Label, Counter>,
    /// True if the log socket, or the pod socket, cannot be bound.
    lost: Arc<[AtomicBool; 2]>,
}

impl Plugin {
    pub(super) fn register(r: &mut Registry) -> Self {
        Self {
            lines: counters(
                r,
                "weir_plugin_log_lines",
                "Log lines of the plugin, by result",
                "result",
                &["emitted", "quiet", "malformed", "dropped", "refused"],
            ),
            lookups: counters(
                r,
                "weir_plugin_pod_lookups",
                "Look-ups of pods by the plugin, by result",
                "result",
                &LOOKUPS,
            ),
            lost: Arc::default(),
        }
    }
}

impl Metrics {
    pub(super) fn of_servers(&self, event: &Event) {
        match event {
            Event::PluginLine { result } => self.plugin_line(*result),
            Event::PodLookup { result } => self.pod_lookup(*result),
            Event::DescriptorsExhausted { .. } => _ = self.exhausted.set(1),
            Event::DescriptorsFree => _ = self.exhausted.set(0),
            _ => {}
        }
        if let Some((socket, failure)) = event.of_socket() {
            let [lines, pods] = &*self.plugin.lost;
            let lost = match socket {
                Socket::Lines => lines,
                Socket::Pods => pods,
                Socket::Entry | Socket::Agent => return,
            };
            lost.store(failure.is_some(), Ordering::Release);
            let any = [lines, pods].iter().any(|l| l.load(Ordering::Acquire));
            self.blind(Blind::Plugin, any);
        }
    }

    fn plugin_line(&self, result: LineResult) {
        let result = match result {
            LineResult::Emitted => "emitted",
            LineResult::Quiet => "quiet",
            LineResult::Malformed => "malformed",
            LineResult::Dropped => "dropped",
            LineResult::Refused => "refused",
        };
        self.plugin.lines.get_or_create(&[("result", result)]).inc();
    }

    fn pod_lookup(&self, result: Lookup) {
        let result = match result {
            Lookup::Known => "known",
            Lookup::Unknown => "unknown",
            Lookup::Unsynced => "unsynced",
            Lookup::Malformed => "malformed",
            Lookup::Refused => "refused",
        };
        let label = [("result", result)];
        self.plugin.lookups.get_or_create(&label).inc();
    }
}
