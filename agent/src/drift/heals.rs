//! Repairs of one pod: at once, until another writer reverts them again and again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So many repairs within [`Heals::WINDOW`] are taken for contention.
const CONTENTION: usize = 5;

/// When Kubernetes was told last of a repair of one pod.
#[derive(Debug, Default)]
pub(crate) struct Notices(Option<Instant>);

impl Notices {
    /// Events about repairs of one pod come no faster.
    const PAUSE: Duration = Duration::from_secs(600);

    /// Whether an event is due now, which is counted as sent then.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|at| now - at >= Self::PAUSE);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// When rules were repaired lately.
#[derive(Debug, Default)]
pub(crate) struct Heals {
    at: VecDeque<Instant>,
    not_before: Option<Instant>,
    pauses: u32,
}

impl Heals {
    /// Repairs that are this old are forgotten.
    pub(crate) const WINDOW: Duration = Duration::from_secs(60);
    /// A comparison takes a few milliseconds; one that takes so long gives its worker back.
    const COSTLY: Duration = Duration::from_secs(2);
    const AFTER_COSTLY: Duration = Duration::from_secs(10);
    /// The longest pause.
    const LONGEST: Duration = Duration::from_secs(30);

    /// One more. How many there were within the window, and how long the next has to wait, under contention.
    pub(crate) fn add(&mut self, now: Instant) -> Option<(usize, Duration)> {
        let is_old = |at: &Instant| now.duration_since(*at) > Self::WINDOW;
        while self.at.front().is_some_and(is_old) {
            self.at.pop_front();
        }
        self.at.push_back(now);
        if self.at.len() <= CONTENTION {
            self.pauses = 0;
            return None;
        }
        while self.at.len() > CONTENTION * 4 {
            self.at.pop_front();
        }
        let pause = Duration::from_secs(1 << self.pauses.min(5)).min(Self::LONGEST);
        self.pauses = self.pauses.saturating_add(1);
        self.not_before = Some(now + pause);
        Some((self.at.len(), pause))
    }

    /// The comparison took so long: a pod decides what it costs, and each of its commits leads to another one.
    pub(crate) fn took(&mut self, time: Duration, now: Instant) {
        if time >= Self::COSTLY {
            self.not_before = self.not_before.max(Some(now + Self::AFTER_COSTLY));
        }
    }

    /// How long the next repair still has to wait.
    pub(crate) fn pause(&self, now: Instant) -> Option<Duration> {
        let left = self.not_before?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_costly_comparison_is_followed_by_a_pause() {
        let (mut heals, now) = (Heals::default(), Instant::now());
        heals.took(Duration::from_millis(1900), now);
        assert_eq!(heals.pause(now), None);
        heals.took(Duration::from_secs(2), now);
        assert_eq!(heals.pause(now), Some(Duration::from_secs(10)));
        assert_eq!(heals.pause(now + Duration::from_secs(10)), None);
    }
}
