//! What the agent currently cannot observe.

use super::{Label, Metrics};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A verification pass must end within this many intervals.
const ROUNDS: u32 = 3;
/// Lower bound of that limit, for short intervals on a busy machine.
const LEAST: Duration = Duration::from_secs(15);

/// A source of information that may be unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blind {
    /// The watch of pods, or in ambient mode of namespaces, does not work.
    Watch,
    /// The last verification pass is overdue. Until the pods are known, [`Blind::Watch`] is reported instead.
    Verification,
    /// The plugin cannot look up pods.
    Plugin,
}

const ALL: [Blind; 3] = [Blind::Watch, Blind::Verification, Blind::Plugin];

impl Blind {
    fn name(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Verification => "verification",
            Self::Plugin => "plugin",
        }
    }
}

/// The schedule of verification.
#[derive(Debug, Default)]
enum Round {
    /// Off, or waiting for the first list of pods.
    #[default]
    Off,
    Every {
        interval: Duration,
        last: Instant,
    },
}

#[derive(Clone)]
pub(super) struct Sight {
    blind: Family<Label, Gauge>,
    round: Arc<Mutex<Round>>,
}

impl Sight {
    pub(super) fn register(r: &mut Registry) -> Self {
        let blind = Family::<Label, Gauge>::default();
        for of in ALL {
            drop(blind.get_or_create(&[("of", of.name())]));
        }
        r.register(
            "weir_blind",
            "1 for what the agent cannot observe at the moment",
            blind.clone(),
        );
        let sight = Self {
            blind,
            round: Arc::default(),
        };
        // No list was received yet.
        sight.set(Blind::Watch, true);
        sight
    }

    fn set(&self, of: Blind, blind: bool) {
        let gauge = self.blind.get_or_create(&[("of", of.name())]);
        gauge.set(i64::from(blind));
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        // No holder of the lock panics in the middle of a change.
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overdue(&self) -> Option<Duration> {
        match *self.round() {
            Round::Off => None,
            Round::Every { interval, last } => {
                let limit = interval.saturating_mul(ROUNDS).max(LEAST);
                Some(last.elapsed()).filter(|since| *since > limit)
            }
        }
    }
}

impl Metrics {
    /// Sets the state of one source.
    pub(super) fn blind(&self, of: Blind, blind: bool) {
        self.sight.set(of, blind);
    }

    /// Records the start of verification or the end of a pass. The next pass should end within `interval`.
    pub(super) fn came_round(&self, interval: Duration) {
        let last = Instant::now();
        *self.sight.round() = Round::Every { interval, last };
    }

    /// Returns the time since the last pass if it is overdue.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        self.sight.overdue()
    }

    /// Updates the metrics that change with time alone. Called before they are encoded.
    pub(super) fn look_at_the_clock(&self) {
        let overdue = self.overdue().is_some();
        self.blind(Blind::Verification, overdue);
        if overdue {
            self.none_is_verified();
        }
    }
}
