//! Metrics for Prometheus. They have Istio's names where it has such a metric; other names begin with `weir_`.
//!
//! Every metric is registered at start, with every label value known by then: a rate over a series that appears with its first
//! event misses that event.

mod ambient;
mod blind;
mod format;
mod install;
mod phases;
mod plugin;
mod pods;
mod repair;

pub(crate) use repair::ratio;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::SystemTime;
use weir_core::journal::{Event, Sink, process};
use weir_preflight::system::kernel_release;

/// A set of one label.
type Label = [(&'static str, &'static str); 1];
/// A set of two labels.
type Labels2 = [(&'static str, &'static str); 2];

/// All metrics. Clones share the same counters.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    install: install::Install,
    pods: pods::Pods,
    plugin: plugin::Plugin,
    phases: phases::Phases,
    repair: repair::Repair,
    sight: blind::Sight,
    ambient: ambient::Ambient,
    exhausted: Gauge,
    lines_dropped: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers all metrics.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        for (name, label, value) in [
            ("weir_build_info", "version", version),
            ("weir_kernel_info", "release", kernel_release()),
        ] {
            let info = Family::<[(&'static str, String); 1], Gauge>::default();
            info.get_or_create(&[(label, value)]).set(1);
            registry.register(name, format!("Always 1; the {label} is the label"), info);
        }
        Self {
            ambient: ambient::Ambient::register(&mut registry),
            install: install::Install::register(&mut registry),
            pods: pods::Pods::register(&mut registry),
            plugin: plugin::Plugin::register(&mut registry),
            phases: phases::Phases::register(&mut registry),
            repair: repair::Repair::register(&mut registry),
            sight: blind::Sight::register(&mut registry),
            exhausted: gauge(
                &mut registry,
                "weir_descriptors_exhausted",
                "1 while the agent has no free file descriptor",
            ),
            lines_dropped: counter(
                &mut registry,
                "weir_log_lines_dropped",
                "Dropped log lines: the pipe of stdout or stderr, or the disk of a log file, is full",
            ),
            registry: Arc::new(registry),
        }
    }

    /// Returns the text of `/metrics` in the Prometheus text format 0.0.4.
    pub fn classic_text(&self) -> String {
        format::classic(&self.text())
    }

    /// Returns the text of `/metrics` as OpenMetrics.
    pub fn text(&self) -> String {
        self.look_at_the_clock();
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Sink for Metrics {
    fn record(&self, _: SystemTime, event: &Event) {
        match event {
            Event::Pod(event) => self.of_pods(event),
            Event::Watch(event) => self.of_watch(event),
            Event::Api(event) => self.of_events(event),
            Event::Install(event) => self.of_install(event),
            Event::Process(process::Event::LinesDropped { lines }) => {
                self.lines_dropped.inc_by(*lines);
            }
            Event::Ambient(event) => self.of_ambient(event),
            Event::Serve(event) => self.of_servers(event),
            Event::Process(_) => {}
        }
    }
}

/// Registers a counter with a series for each value of one label. (The encoder adds the suffix `_total`.)
fn counters(
    registry: &mut Registry,
    name: &str,
    help: &str,
    label: &'static str,
    values: &[&'static str],
) -> Family<Label, Counter> {
    let family = Family::<Label, Counter>::default();
    for value in values {
        drop(family.get_or_create(&[(label, value)]));
    }
    registry.register(name, help, family.clone());
    family
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::journal::install::{self, Step};
    use weir_core::journal::serve::{self, LineResult, Lookup};
    use weir_core::journal::watch::{self, Objects};

    #[test]
    fn names() {
        let metrics = Metrics::new();
        let install = |event: install::Event| metrics.record(SystemTime::now(), &event.into());
        let installed = |preempted: Option<&str>| install::Event::Installed {
            configuration: None,
            preempted: preempted.map(str::to_owned),
            quiet: false,
        };
        install(installed(Some("another configuration sorts first")));
        let text = metrics.text();
        assert!(text.contains("\nistio_cni_install_ready 0\n"), "{text}");
        install(installed(None));
        install(install::Event::Failed {
            step: Step::Binaries,
            why: String::new(),
            retry: None,
        });
        let serve = |event: serve::Event| metrics.record(SystemTime::now(), &event.into());
        let result = LineResult::Dropped;
        serve(serve::Event::PluginLine { result });
        let of = || Objects::Pods("n".into());
        let watch = |event: watch::Event| metrics.record(SystemTime::now(), &event.into());
        watch(watch::Event::Fails {
            of: of(),
            known: 2,
            kind: watch::Kind::Gone,
            why: String::new(),
            repeated: false,
        });
        watch(watch::Event::Works {
            of: of(),
            known: 3,
            news: watch::News::Again,
            left_out: None,
        });
        let result = Lookup::Known;
        serve(serve::Event::PodLookup { result });
        let text = metrics.text();
        for line in [
            "weir_pods_watched 3",
            "weir_pod_watch_synced 1",
            "weir_pod_watch_restarts_total{reason=\"gone\"} 1",
            "weir_plugin_pod_lookups_total{result=\"known\"} 1",
            "istio_cni_install_ready 1",
            "istio_cni_installs_total{result=\"SUCCESS\"} 2",
            "istio_cni_installs_total{result=\"COPY_BINARIES_FAILURE\"} 1",
            "istio_cni_installs_total{result=\"CREATE_KUBECONFIG_FAILURE\"} 0",
            "weir_plugin_log_lines_total{result=\"dropped\"} 1",
            "weir_install_damped_total 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
