//! Trying again while another writer interferes: bounded by time, with pauses that grow and are not alike.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// How long an operation is begun again because another writer came in between. A reading takes about a millisecond, so
/// this is thousands of attempts; a container runtime waits longer for a plugin.
pub const CONTENTION: Duration = Duration::from_secs(10);

/// The first pause is up to this long, and each one after it up to twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// But no longer than this.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// The attempts at one operation.
#[derive(Debug)]
pub struct Attempts {
    until: Instant,
    limit: Duration,
    made: u32,
}

impl Attempts {
    /// The first one begins now.
    #[must_use]
    pub fn begin(limit: Duration) -> Self {
        Self {
            until: Instant::now() + limit,
            limit,
            made: 1,
        }
    }

    /// How many were begun.
    #[must_use]
    pub fn made(&self) -> u32 {
        self.made
    }

    /// How long all of them may take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Pauses and begins another one; false when the time is over.
    pub fn again(&mut self) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        // Two writers that pause alike meet again. The first attempt is repeated at once.
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
    fn attempts_end_with_their_time() {
        let begun = Instant::now();
        let mut attempts = Attempts::begin(Duration::from_millis(30));
        while attempts.again() {}
        assert!(begun.elapsed() >= Duration::from_millis(30));
        // Pauses are short: a few attempts at least, and not all of a busy processor's.
        assert!((5..10_000).contains(&attempts.made()), "{attempts:?}");
        assert!(!Attempts::begin(Duration::ZERO).again());
    }
}
