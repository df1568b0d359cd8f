//! Metrics of the installation on the node.

use super::{Label, Metrics, counter, counters, gauge};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use weir_core::journal::install::{Event, Step};

/// Results of an installation, with Istio's names.
const RESULTS: [&str; 4] = [
    "SUCCESS",
    "COPY_BINARIES_FAILURE",
    "CREATE_KUBECONFIG_FAILURE",
    "CREATE_CNI_CONFIG_FAILURE",
];

#[derive(Clone)]
pub(super) struct Install {
    ready: Gauge,
    installs: Family<Label, Counter>,
    passes: Counter,
    damped: Counter,
}

impl Install {
    pub(super) fn register(r: &mut Registry) -> Self {
        Self {
            ready: gauge(
                r,
                "istio_cni_install_ready",
                "Whether the CNI plugin is installed and in force",
            ),
            installs: counters(
                r,
                "istio_cni_installs",
                "Installs by result",
                "result",
                &RESULTS,
            ),
            passes: counter(r, "weir_install_passes", "Passes of the installer"),
            damped: counter(
                r,
                "weir_install_damped",
                "Passes of the installer that were delayed by its rate limit",
            ),
        }
    }
}

impl Metrics {
    pub(super) fn of_install(&self, event: &Event) {
        let Install {
            ready,
            installs,
            passes,
            damped,
        } = &self.install;
        let result = |result| _ = installs.get_or_create(&[("result", result)]).inc();
        match event {
            Event::PassBegins => _ = passes.inc(),
            Event::Damped => _ = damped.inc(),
            Event::Installed { preempted, .. } => {
                ready.set(i64::from(preempted.is_none()));
                result("SUCCESS");
            }
            Event::NotInForce { .. } => _ = ready.set(0),
            Event::Failed { step, .. } => result(match step {
                Step::Binaries => "COPY_BINARIES_FAILURE",
                Step::Kubeconfig => "CREATE_KUBECONFIG_FAILURE",
                Step::Config => "CREATE_CNI_CONFIG_FAILURE",
            }),
            _ => {}
        }
    }
}
