//! Durations of the phases of a redirection, and how the plugin reports them to the node agent.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A phase of the work from reading a pod to verified rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Reading the input: the pod, the addresses of its network namespace, the engine.
    Facts,
    /// Deriving the desired redirection from the input.
    Decide,
    /// Comparing and writing.
    Apply,
    /// Comparing the actual state of the kernel with the desired one.
    Verify,
    /// Waiting for the lock of the iptables tools, if it is taken; part of apply.
    LockWait,
}

/// Upper bound of a plausible duration: a larger value cannot be a measurement.
const MOST: Duration = Duration::from_secs(3600);

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 5] = [
        Self::Facts,
        Self::Decide,
        Self::Apply,
        Self::Verify,
        Self::LockWait,
    ];

    /// The name of the log label for the duration, which is in microseconds.
    fn label(self) -> &'static str {
        match self {
            Self::Facts => "facts_us",
            Self::Decide => "decide_us",
            Self::Apply => "apply_us",
            Self::Verify => "verify_us",
            Self::LockWait => "lock_wait_us",
        }
    }
}

/// The time spent in each phase so far; `None` for a phase that was not reached.
#[derive(Debug, Default)]
pub struct Phases([Cell<Option<Duration>>; Phase::ALL.len()]);

impl Phases {
    /// The message of the log line that carries the durations.
    pub const MESSAGE: &'static str = "phases";

    /// Calls `f` and adds its duration to `phase`.
    pub fn measure<R>(&self, phase: Phase, f: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = f();
        self.add(phase, begun.elapsed());
        result
    }

    /// Adds `time` to `phase`.
    pub fn add(&self, phase: Phase, time: Duration) {
        if let Some(cell) = self.cell(phase) {
            cell.set(Some(cell.get().unwrap_or_default().saturating_add(time)));
        }
    }

    /// Returns the phases that were reached.
    pub fn spent(&self) -> impl Iterator<Item = (Phase, Duration)> + '_ {
        let of = |phase| Some((phase, self.cell(phase)?.get()?));
        Phase::ALL.into_iter().filter_map(of)
    }

    fn cell(&self, phase: Phase) -> Option<&Cell<Option<Duration>>> {
        let at = Phase::ALL.iter().position(|p| *p == phase)?;
        self.0.get(at)
    }

    /// Returns the durations as labels of a log line.
    #[must_use]
    pub fn labels(&self) -> Vec<(&'static str, String)> {
        let label =
            |(phase, time): (Phase, Duration)| (phase.label(), time.as_micros().to_string());
        self.spent().map(label).collect()
    }

    /// Parses a log line that is attributed to the plugin. `None` if it is not about phases, or a duration is implausible.
    #[must_use]
    pub fn of_line(message: &str, labels: &[(String, String)]) -> Option<Self> {
        if message != Self::MESSAGE {
            return None;
        }
        let phases = Self::default();
        for phase in Phase::ALL {
            let found = labels.iter().find(|(key, _)| key == phase.label());
            if let Some((_, text)) = found {
                let time = Duration::from_micros(text.parse().ok()?);
                phases.add(phase, Some(time).filter(|t| *t <= MOST)?);
            }
        }
        Some(phases)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(labels: &[(&str, &str)]) -> Option<Phases> {
        let own = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
        Phases::of_line("phases", &labels.iter().map(own).collect::<Vec<_>>())
    }

    #[test]
    fn what_is_told_is_what_was_measured() {
        let phases = Phases::default();
        phases.add(Phase::Verify, Duration::from_micros(7));
        phases.add(Phase::Facts, Duration::from_micros(1));
        phases.add(Phase::Facts, Duration::from_micros(2));
        assert_eq!(phases.measure(Phase::Decide, || 5), 5);
        let labels = phases.labels();
        assert_eq!(labels[0], ("facts_us", "3".to_owned()));
        assert_eq!(labels[2], ("verify_us", "7".to_owned()));
        let told: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (*k, v.as_str())).collect();
        assert_eq!(of(&told).unwrap().labels(), labels);
    }

    #[test]
    fn what_cannot_be_is_not_counted() {
        assert_eq!(of(&[("pod", "a/b")]).unwrap().spent().count(), 0);
        for text in ["", "-1", "1.5", "3600000001", "99999999999999999999999"] {
            assert!(of(&[("facts_us", text)]).is_none(), "{text}");
        }
        assert!(Phases::of_line("other", &[]).is_none());
    }
}
