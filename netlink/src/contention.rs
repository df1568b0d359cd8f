//! Retries while another writer interferes: bounded in time, with exponential backoff and random pauses.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// How long an operation is retried because another writer changed the state in between. A read takes about a
/// millisecond, so this allows thousands of attempts.
pub const CONTENTION: Duration = Duration::from_secs(10);

/// Unit of the exponential backoff: the pause after attempt n, from the second on, is random and shorter than
/// `FIRST_PAUSE * 2^n`.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Upper bound of every pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// The longest time that is waited for: `Instant` cannot hold every sum.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The end of `limit` from now; of more than a year, which may stand for no limit at all, a year.
pub(crate) fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit.min(YEAR)
}

/// The attempts made at one operation, and the time limit for all of them.
#[derive(Debug)]
pub struct Attempts {
    until: Instant,
    limit: Duration,
    made: u32,
}

impl Attempts {
    /// Starts the first attempt.
    #[must_use]
    pub fn begin(limit: Duration) -> Self {
        Self {
            until: deadline(limit),
            limit,
            made: 1,
        }
    }

    /// Number of attempts started so far.
    #[must_use]
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Time limit for all attempts together.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Pauses and starts another attempt; false when the time limit is reached.
    pub fn again(&mut self) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        // Two writers with equal pauses would collide again, so pauses are random. The second attempt starts without
        // a pause.
        if self.made > 1 {
            let pause = FIRST_PAUSE * 2_u32.saturating_pow(self.made.min(16));
            let pause = pause.min(LONGEST_PAUSE);
            let micros = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX).max(1);
            let random = RandomState::new().build_hasher().finish() % micros;
            std::thread::sleep(Duration::from_micros(random).min(left));
        }
        self.made = self.made.saturating_add(1);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_a_long_one() {
        let mut attempts = Attempts::begin(Duration::MAX);
        assert!(attempts.again());
    }

    #[test]
    fn attempts_end_with_their_time() {
        let begun = Instant::now();
        let mut attempts = Attempts::begin(Duration::from_millis(30));
        while attempts.again() {}
        assert!(begun.elapsed() >= Duration::from_millis(30));
        // Pauses are short: at least a few attempts fit, but the loop does not spin.
        assert!((5..10_000).contains(&attempts.made()), "{attempts:?}");
        assert!(!Attempts::begin(Duration::ZERO).again());
    }
}
