//! Retries while another writer interferes: bounded in time, with exponential backoff and random pauses.

use crate::{Error, Result};
use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{Duration, Instant};

/// How long an operation is retried because another writer changed the state meanwhile. A read takes about a millisecond,
/// so that thousands of attempts are possible.
pub const CONTENTION: Duration = Duration::from_secs(10);

/// Unit of the exponential backoff: the pause after attempt n, from the second on, is random and shorter than
/// `FIRST_PAUSE * 2^n`.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Upper bound of every pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Upper bound of every time limit, because `Instant` cannot represent every sum.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The time `limit` from now; more than a year, which may mean no limit, counts as a year.
pub(crate) fn deadline(limit: Duration) -> Instant {
    Instant::now() + limit.min(YEAR)
}

/// Time that a single exchange has after the limit of [`within`] is reached, to read an answer that is already queued.
const GRACE: Duration = Duration::from_secs(1);

thread_local! {
    /// The time limit of all exchanges and attempts of this thread.
    static END: Cell<Option<End>> = const { Cell::new(None) };
}

/// The end of a [`within`] call, and its time limit.
#[derive(Clone, Copy, Debug)]
struct End {
    at: Instant,
    limit: Duration,
}

/// Calls `f` with one time limit for all its exchanges and [`Attempts`] on this thread.
///
/// An operation that starts after the limit is tried once and waits at most one second. In a nested call, the outer limit does
/// not apply.
pub fn within<R>(limit: Duration, f: impl FnOnce() -> R) -> R {
    struct Before(Option<End>);
    impl Drop for Before {
        fn drop(&mut self) {
            END.set(self.0);
        }
    }
    let at = deadline(limit);
    let _before = Before(END.replace(Some(End { at, limit })));
    f()
}

/// The part of `limit` that [`within`] leaves.
fn left(limit: Duration) -> Duration {
    let left = |end: End| end.at.saturating_duration_since(Instant::now());
    END.get().map_or(limit, |end| limit.min(left(end)))
}

/// The same for an exchange, which always has at least [`GRACE`].
pub(crate) fn left_for_exchange(limit: Duration) -> Duration {
    left(limit).max(limit.min(GRACE))
}

/// The attempts of one operation, and the time limit for all of them.
#[derive(Debug)]
pub struct Attempts {
    until: Instant,
    limit: Duration,
    /// The limit of [`within`], if it ends before the limit of these attempts.
    whole: Option<Duration>,
    made: u32,
}

impl Attempts {
    /// Starts the first attempt.
    #[must_use]
    pub fn begin(limit: Duration) -> Self {
        let own = limit;
        let limit = left(own);
        Self {
            until: deadline(limit),
            limit,
            whole: END.get().filter(|_| limit < own).map(|end| end.limit),
            made: 1,
        }
    }

    /// Number of attempts started so far.
    #[must_use]
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Pauses and starts another attempt; false if the time limit is reached.
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

    /// As [`Attempts::again`], with an error when the time limit is reached.
    ///
    /// # Errors
    /// [`ErrorKind::Exhausted`](crate::ErrorKind::Exhausted): the limit of these attempts is reached, or that of [`within`],
    /// which other parts of the operation may have used up.
    pub fn try_again(&mut self, operation: &str, object: impl Into<String>) -> Result<()> {
        if self.again() {
            return Ok(());
        }
        let (made, limit) = (self.made, self.limit);
        let what = match self.whole {
            None => format!("another writer keeps changing it; {made} attempts in {limit:?}"),
            Some(whole) => format!(
                "the {whole:?} for the whole operation are over, and another writer has changed this meanwhile; \
                 {made} attempts in the last {limit:?}; try again"
            ),
        };
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
            // A rollback has its own limit.
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
        // The loop does not spin.
        assert!(attempts.made() < 10_000, "{attempts:?}");
        assert!(!Attempts::begin(Duration::ZERO).again());
        // Pauses are short: many attempts fit.
        let mut attempts = Attempts::begin(CONTENTION);
        assert!((0..50).all(|_| attempts.again()), "{attempts:?}");
    }

    #[test]
    fn an_error_says_whose_time_is_over() {
        let given_up = |limit| {
            let mut attempts = Attempts::begin(limit);
            let mut attempt = || attempts.try_again("read", "the ruleset").err();
            let error = std::iter::repeat_with(&mut attempt).flatten().next();
            error.map(|e| e.to_string()).unwrap_or_default()
        };
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(60));
        for own in [given_up(short), within(long, || given_up(short))] {
            assert!(own.contains("another writer keeps changing it"), "{own}");
        }
        let whole = within(short, || given_up(long));
        assert!(whole.contains("20ms for the whole operation"), "{whole}");
        assert!(!whole.contains("keeps changing"), "{whole}");
    }
}
