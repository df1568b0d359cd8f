//! What the plugin tells and asks.

use super::{Label, Metrics, counters};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// What became of a line of the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineResult {
    Emitted,
    /// Below the level.
    Quiet,
    /// Not a line.
    Malformed,
    /// Too many.
    Dropped,
    /// A connection of another user than root, whatever it would have said.
    Refused,
}

/// What became of a question for a pod.
const LOOKUPS: [&str; 5] = ["known", "unknown", "unsynced", "malformed", "refused"];

#[derive(Clone)]
pub(super) struct Plugin {
    lines: Family<Label, Counter>,
    lookups: Family<Label, Counter>,
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
        }
    }
}

impl Metrics {
    pub(crate) fn plugin_line(&self, result: LineResult) {
        let result = match result {
            LineResult::Emitted => "emitted",
            LineResult::Quiet => "quiet",
            LineResult::Malformed => "malformed",
            LineResult::Dropped => "dropped",
            LineResult::Refused => "refused",
        };
        self.plugin.lines.get_or_create(&[("result", result)]).inc();
    }

    /// The plugin asked for a pod.
    pub(crate) fn pod_lookup(&self, result: &'static str) {
        self.plugin
            .lookups
            .get_or_create(&[("result", result)])
            .inc();
    }
}
