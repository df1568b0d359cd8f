//! What the agent does not see at the moment.

use super::{Label, Metrics};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Of so many intervals one must see a round of verification end.
const ROUNDS: u32 = 3;
/// However short the interval is: a busy machine takes its time.
const LEAST: Duration = Duration::from_secs(15);

/// What may be unseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blind {
    /// The pods of the node are not followed, or in ambient mode the namespaces.
    Watch,
    /// No round of verification has ended for too long. Until the pods are known it is the watch that does not see.
    Verification,
    /// The plugin cannot ask for pods.
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

/// How verification comes round.
#[derive(Debug, Default)]
enum Round {
    /// It is off, or waits for the first list of pods.
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
        // Nothing was heard yet.
        sight.set(Blind::Watch, true);
        sight
    }

    fn set(&self, of: Blind, blind: bool) {
        let gauge = self.blind.get_or_create(&[("of", of.name())]);
        gauge.set(i64::from(blind));
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        // Nothing in here panics half-way.
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
    /// Whether something is not seen.
    pub(super) fn blind(&self, of: Blind, blind: bool) {
        self.sight.set(of, blind);
    }

    /// Verification begins, or a round of it has ended; the next one should end after this long.
    pub(super) fn came_round(&self, interval: Duration) {
        let last = Instant::now();
        *self.sight.round() = Round::Every { interval, last };
    }

    /// For how long no round of verification has ended, when that is too long.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        self.sight.overdue()
    }

    /// Before the metrics are told: some of them change because nothing happens.
    pub(super) fn look_at_the_clock(&self) {
        let overdue = self.overdue().is_some();
        self.blind(Blind::Verification, overdue);
        if overdue {
            self.none_is_verified();
        }
    }
}
