//! What Prometheus may ask. Names are those of Istio where it has one, and begin with `weir_` otherwise.

use crate::node::install::Step;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;

/// One label.
type Label = [(&'static str, &'static str); 1];

/// All metrics; clones count in the same place.
#[derive(Clone)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    install_ready: Gauge,
    installs: Family<Label, Counter>,
    /// Passes that began.
    pub(crate) passes: Counter,
    /// Passes that had to wait because of those before.
    pub(crate) damped: Counter,
    plugin_lines: Family<Label, Counter>,
    pods_watched: Gauge,
    pod_watch_synced: Gauge,
    pod_watch_restarts: Family<Label, Counter>,
    plugin_pod_lookups: Family<Label, Counter>,
    pods_repaired: Family<[(&'static str, &'static str); 2], Counter>,
    repairs: Family<[(&'static str, &'static str); 2], Counter>,
    drift: Family<Label, Counter>,
    pods_expected: Gauge,
    pods_verified: Gauge,
}

/// What became of a broken pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repaired {
    Success,
    /// Nothing was left to do.
    Skip,
    Fail,
}

/// How a pod's rules differed from what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Something was missing, and nothing else was there instead.
    Missing,
    /// Something else was there.
    Changed,
}

impl Cause {
    /// From lines that begin with the kind of difference.
    pub(crate) fn of(differences: &[String]) -> Self {
        match differences.iter().all(|d| d.starts_with("missing")) {
            true => Self::Missing,
            false => Self::Changed,
        }
    }
}

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
}

impl Repaired {
    fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Skip => "skip",
            Self::Fail => "fail",
        }
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::default();
        let install_ready = Gauge::default();
        let installs = Family::<Label, Counter>::default();
        let (passes, damped) = (Counter::default(), Counter::default());
        let plugin_lines = Family::<Label, Counter>::default();
        // Counters get the suffix _total.
        registry.register(
            "istio_cni_install_ready",
            "Whether the CNI plugin is installed and in force",
            install_ready.clone(),
        );
        registry.register("istio_cni_installs", "Installs by result", installs.clone());
        registry.register(
            "weir_install_passes",
            "Passes of the installer",
            passes.clone(),
        );
        registry.register(
            "weir_install_damped",
            "Passes that had to wait because of those before them",
            damped.clone(),
        );
        registry.register(
            "weir_plugin_log_lines",
            "Lines of the plugin by what became of them",
            plugin_lines.clone(),
        );
        let (pods_watched, pod_watch_synced) = (Gauge::default(), Gauge::default());
        let pod_watch_restarts = Family::<Label, Counter>::default();
        let plugin_pod_lookups = Family::<Label, Counter>::default();
        registry.register(
            "weir_pods_watched",
            "Pods of this node that are known",
            pods_watched.clone(),
        );
        registry.register(
            "weir_pod_watch_synced",
            "Whether the pods of this node are followed at the moment",
            pod_watch_synced.clone(),
        );
        registry.register(
            "weir_pod_watch_restarts",
            "Failures of the watches of pods and namespaces, by reason",
            pod_watch_restarts.clone(),
        );
        registry.register(
            "weir_plugin_pod_lookups",
            "Questions of the plugin for a pod, by result",
            plugin_pod_lookups.clone(),
        );
        let (pods_repaired, repairs) = (Family::default(), Family::default());
        let drift = Family::<Label, Counter>::default();
        let (pods_expected, pods_verified) = (Gauge::default(), Gauge::default());
        registry.register(
            "istio_cni_repair_pods_repaired",
            "Broken pods by what was done to them",
            pods_repaired.clone(),
        );
        registry.register(
            "weir_repairs",
            "Repairs in place by what led to them, and by their result",
            repairs.clone(),
        );
        registry.register(
            "weir_drift",
            "Pods whose rules were not what they ask for, by how they differed",
            drift.clone(),
        );
        registry.register(
            "weir_pods_expected",
            "Pods of this node that ask for redirection",
            pods_expected.clone(),
        );
        registry.register(
            "weir_pods_verified",
            "Those of them whose rules were read back and found right",
            pods_verified.clone(),
        );
        let info = Family::<Label, Gauge>::default();
        info.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))])
            .set(1);
        registry.register(
            "weir_build_info",
            "Always 1; the version is the label",
            info,
        );
        Self {
            registry: Arc::new(registry),
            install_ready,
            installs,
            passes,
            damped,
            plugin_lines,
            pods_watched,
            pod_watch_synced,
            pod_watch_restarts,
            plugin_pod_lookups,
            pods_repaired,
            repairs,
            drift,
            pods_expected,
            pods_verified,
        }
    }

    pub(crate) fn ready(&self, ready: bool) {
        self.install_ready.set(i64::from(ready));
    }

    pub(crate) fn installed(&self) {
        self.installs.get_or_create(&[("result", "SUCCESS")]).inc();
    }

    pub(crate) fn failed(&self, step: Step) {
        let result = match step {
            Step::Binaries => "COPY_BINARIES_FAILURE",
            Step::Kubeconfig => "CREATE_KUBECONFIG_FAILURE",
            Step::Config => "CREATE_CNI_CONFIG_FAILURE",
        };
        self.installs.get_or_create(&[("result", result)]).inc();
    }

    pub(crate) fn plugin_line(&self, result: LineResult) {
        let result = match result {
            LineResult::Emitted => "emitted",
            LineResult::Quiet => "quiet",
            LineResult::Malformed => "malformed",
            LineResult::Dropped => "dropped",
        };
        self.plugin_lines.get_or_create(&[("result", result)]).inc();
    }

    /// How many pods are known, and whether they are followed at the moment.
    pub(crate) fn pods_watched(&self, known: usize, synced: bool) {
        self.pods_watched
            .set(i64::try_from(known).unwrap_or(i64::MAX));
        self.pod_watch_synced.set(i64::from(synced));
    }

    /// A watch failed and is tried again.
    pub(crate) fn watch_restarted(&self, reason: &'static str) {
        self.pod_watch_restarts
            .get_or_create(&[("reason", reason)])
            .inc();
    }

    /// The plugin asked for a pod.
    pub(crate) fn pod_lookup(&self, result: &'static str) {
        self.plugin_pod_lookups
            .get_or_create(&[("result", result)])
            .inc();
    }

    /// A pod that met the criteria.
    pub(crate) fn repaired(&self, action: &'static str, result: Repaired) {
        let labels = [("type", action), ("result", result.name())];
        self.pods_repaired.get_or_create(&labels).inc();
        if action == "repair" {
            self.repair("criteria", result);
        }
    }

    /// A pod whose namespace was not as it asks.
    pub(crate) fn healed(&self, result: Repaired) {
        self.repair("state", result);
    }

    fn repair(&self, cause: &'static str, result: Repaired) {
        let labels = [("cause", cause), ("result", result.name())];
        self.repairs.get_or_create(&labels).inc();
    }

    /// A pod's rules were not what it asks for.
    pub(crate) fn drift(&self, cause: Cause) {
        let cause = match cause {
            Cause::Missing => "missing",
            Cause::Changed => "changed",
        };
        self.drift.get_or_create(&[("cause", cause)]).inc();
    }

    /// How many pods ask for redirection, and of how many it was seen.
    pub(crate) fn verified(&self, expected: i64, verified: i64) {
        self.pods_expected.set(expected);
        self.pods_verified.set(verified);
    }

    /// The text of `/metrics`.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let metrics = Metrics::new();
        metrics.installed();
        metrics.failed(Step::Binaries);
        metrics.ready(true);
        metrics.plugin_line(LineResult::Dropped);
        metrics.pods_watched(3, true);
        metrics.watch_restarted("gone");
        metrics.pod_lookup("known");
        let text = metrics.text();
        for line in [
            "weir_pods_watched 3",
            "weir_pod_watch_synced 1",
            "weir_pod_watch_restarts_total{reason=\"gone\"} 1",
            "weir_plugin_pod_lookups_total{result=\"known\"} 1",
            "istio_cni_install_ready 1",
            "istio_cni_installs_total{result=\"SUCCESS\"} 1",
            "istio_cni_installs_total{result=\"COPY_BINARIES_FAILURE\"} 1",
            "weir_plugin_log_lines_total{result=\"dropped\"} 1",
            "weir_install_damped_total 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
