//! Retries while another writer interferes: bounded in time, with exponential backoff and random pauses.

use crate::{Error, Result};
use std::cell::Cell;
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

/// What a single exchange may still take when the time of [`within`] is over: an answer that is there is read.
const GRACE: Duration = Duration::from_secs(1);

thread_local! {
    /// When all exchanges and attempts of this thread are to end.
    static END: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Calls `f`, and lets all its exchanges and [`Attempts`] on this thread share one time limit: what begins after it is tried once,
/// and waits for a second at most. Within another call the limit of that one does not count.
pub fn within<R>(limit: Duration, f: impl FnOnce() -> R) -> R {
    struct Before(Option<Instant>);
    impl Drop for Before {
        fn drop(&mut self) {
            END.set(self.0);
        }
    }
    let _before = Before(END.replace(Some(deadline(limit))));
    f()
}

/// Of this time what [`within`] leaves.
fn left(limit: Duration) -> Duration {
    let left = |end: Instant| end.saturating_duration_since(Instant::now());
    END.get().map_or(limit, |end| limit.min(left(end)))
}

/// The same for an exchange.
pub(crate) fn left_for_exchange(limit: Duration) -> Duration {
    left(limit).max(limit.min(GRACE))
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
        let limit = left(limit);
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

    /// As [`Attempts::again`].
    ///
    /// # Errors
    /// The time limit is reached.
    pub fn try_again(&mut self, operation: &str, object: impl Into<String>) -> Result<()> {
        if self.again() {
            return Ok(());
        }
        let (made, limit) = (self.made, self.limit);
        let what = format!("another writer keeps changing it; {made} attempts in {limit:?}");
        Err(Error::exhausted(operation, object, what))
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
    fn attempts_share_the_time_of_what_they_are_part_of() {
        let begun = Instant::now();
        let limit = Duration::from_millis(30);
        within(limit, || {
            for _ in 0..3 {
                let mut attempts = Attempts::begin(Duration::from_secs(60));
                while attempts.again() {}
            }
            assert_eq!(left_for_exchange(Duration::from_secs(60)), GRACE);
            assert_eq!(left_for_exchange(limit), limit);
            // What takes back has a time of its own.
            within(Duration::from_secs(60), || {
                assert!(Attempts::begin(Duration::from_secs(30)).again());
            });
            assert!(!Attempts::begin(Duration::from_secs(60)).again());
        });
        assert!(begun.elapsed() < Duration::from_secs(60));
        assert!(Attempts::begin(Duration::from_secs(60)).again());
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
