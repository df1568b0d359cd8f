//! Rate limits of requests to the API server, and backoff after failures.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// A token bucket of requests.
#[derive(Debug)]
pub struct Pace {
    /// Capacity of the bucket: requests without a pause.
    burst: f64,
    /// Requests per second, on average.
    rate: f64,
    left: f64,
    filled: Instant,
    /// No request is sent before this time.
    held: Option<Instant>,
}

impl Pace {
    /// The rate for watches, whose start needs a few requests, and for events.
    pub(crate) fn steady(now: Instant) -> Self {
        Self::new(20.0, 1.0, now)
    }

    /// The rate for repairs of broken pods: all pods of a node are handled within seconds.
    pub fn quick(now: Instant) -> Self {
        Self::new(100.0, 20.0, now)
    }

    fn new(burst: f64, rate: f64, now: Instant) -> Self {
        Self {
            burst,
            rate,
            left: burst,
            filled: now,
            held: None,
        }
    }

    /// Holds back requests until this time, at the server's request.
    pub fn hold(&mut self, until: Instant) {
        self.held = self.held.max(Some(until));
    }

    /// Returns how long requests are held back.
    pub fn held(&self, now: Instant) -> Duration {
        let held = self.held.map(|until| until.saturating_duration_since(now));
        held.unwrap_or_default()
    }

    /// Takes one request from the bucket and returns how long it has to wait.
    pub fn take(&mut self, now: Instant) -> Duration {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + since * self.rate).min(self.burst) - 1.0;
        self.filled = now;
        Duration::from_secs_f64((-self.left / self.rate).max(0.0)).max(self.held(now))
    }

    /// Returns a request that was taken and is not sent.
    pub(crate) fn give_back(&mut self) {
        self.left = (self.left + 1.0).min(self.burst);
    }
}

const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);
/// Time without a failure after which the pause starts at the shortest again.
const FORGET: Duration = Duration::from_secs(60);

/// Pauses between attempts. Each is longer than the one before, and they are randomized so that the nodes do not
/// all return to a server at the same moment.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    failed: Option<Instant>,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            next: SHORTEST,
            failed: None,
        }
    }
}

impl Backoff {
    /// Returns the pause after a failure.
    pub fn pause(&mut self, now: Instant) -> Duration {
        let quiet = |failed: Instant| now.saturating_duration_since(failed) > FORGET + self.next;
        if self.failed.is_none_or(quiet) {
            self.next = SHORTEST;
        }
        self.failed = Some(now);
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause.mul_f64(0.75 + 0.5 * chance())
    }
}

/// Returns a random number from 0 to 1, from a hasher's seed: the standard library has no other source of randomness.
fn chance() -> f64 {
    let bits = u32::try_from(RandomState::new().build_hasher().finish() >> 32).unwrap_or(0);
    f64::from(bits) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_one_a_second() {
        let now = Instant::now();
        let mut pace = Pace::steady(now);
        let waits: Vec<Duration> = (0..22).map(|_| pace.take(now)).collect();
        assert!(waits.iter().take(20).all(Duration::is_zero), "{waits:?}");
        assert_eq!(waits[21], Duration::from_secs(2));
        assert_eq!(
            pace.take(now + Duration::from_secs(60)),
            Duration::ZERO,
            "filled again"
        );
    }

    #[test]
    fn a_server_that_wants_to_be_left_alone_is() {
        let now = Instant::now();
        let mut pace = Pace::steady(now);
        pace.hold(now + Duration::from_secs(9));
        pace.hold(now + Duration::from_secs(5));
        assert_eq!(pace.take(now), Duration::from_secs(9));
        assert_eq!(
            pace.take(now + Duration::from_secs(7)),
            Duration::from_secs(2)
        );
        assert_eq!(pace.take(now + Duration::from_secs(9)), Duration::ZERO);
    }

    #[test]
    fn pauses_grow_and_are_forgotten() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let pauses: Vec<f64> = (0..9).map(|_| backoff.pause(start).as_secs_f64()).collect();
        for (n, pause) in pauses.iter().enumerate() {
            let middle = (0.5 * f64::from(1 << n)).min(30.0);
            assert!(
                (0.75 * middle..=1.25 * middle).contains(pause),
                "{pauses:?}"
            );
        }
        let later = start + Duration::from_secs(91);
        assert!(backoff.pause(later) < Duration::from_secs(1));
    }
}
