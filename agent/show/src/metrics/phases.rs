//! Duration of the phases of a redirection, in the plugin and in the agent.

use super::{Labels2, Metrics};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use weir_cni::plugin::{Phase, Phases as Spent};

/// Upper bounds in seconds: a phase takes tenths of a millisecond; on a busy node, or without an agent, about a second.
const BUCKETS: [f64; 14] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];
/// Values of the label `by`.
const BY: [&str; 2] = ["plugin", "agent"];

#[derive(Clone)]
pub(super) struct Phases {
    seconds: Family<Labels2, Histogram, fn() -> Histogram>,
    lock_wait: Histogram,
}

impl Phases {
    pub(super) fn register(r: &mut Registry) -> Self {
        let make: fn() -> Histogram = || Histogram::new(BUCKETS);
        let seconds = Family::new_with_constructor(make);
        let (lock_wait, named) = (make(), Phase::ALL.into_iter().filter_map(name));
        for phase in named {
            for by in BY {
                drop(seconds.get_or_create(&[("by", by), ("phase", phase)]));
            }
        }
        r.register(
            "weir_phase_seconds",
            "Seconds that a redirection or repair spent in a phase (facts, decide, apply, verify), by plugin or agent",
            seconds.clone(),
        );
        r.register(
            "weir_xtables_lock_wait_seconds",
            "Seconds spent waiting for the lock of the iptables tools; pods have no such lock",
            lock_wait.clone(),
        );
        Self { seconds, lock_wait }
    }
}

/// Returns the label of a phase. The lock has a separate metric, and [`Phase`] may get further phases.
fn name(phase: Phase) -> Option<&'static str> {
    match phase {
        Phase::Facts => Some("facts"),
        Phase::Decide => Some("decide"),
        Phase::Apply => Some("apply"),
        Phase::Verify => Some("verify"),
        _ => None,
    }
}

impl Metrics {
    /// Records the time spent on one pod by `plugin` or `agent`.
    pub(super) fn phases(&self, by: &'static str, spent: &Spent) {
        for (phase, time) in spent.spent() {
            let seconds = time.as_secs_f64();
            if let Some(phase) = name(phase) {
                let labels = [("by", by), ("phase", phase)];
                self.phases.seconds.get_or_create(&labels).observe(seconds);
            } else if phase == Phase::LockWait {
                self.phases.lock_wait.observe(seconds);
            }
        }
    }
}
