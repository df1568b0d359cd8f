//! Limits how often the installation is repaired while another installer keeps reverting it.

use std::time::{Duration, Instant};

/// Time to refill one token: 0.2 passes per second.
const REFILL: Duration = Duration::from_secs(5);
/// Minimum distance of a pass without a token from the one before: until it is done, pods start without the plugin.
/// Including the duration of the pass, a change is repaired within a second.
const PACE: Duration = Duration::from_millis(900);
/// Maximum debt, so that hours of contention do not slow down the agent for hours afterwards.
const LONGEST_DEBT: Duration = Duration::from_secs(60);
/// Number of consecutive waits above which there is contention.
const PATIENCE: u32 = 5;

/// A bucket with one token. A pass without a token keeps its distance from the one before, proceeds, and owes the token.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    /// When the next token is available.
    free_at: Option<Instant>,
    /// When the last pass began or will begin.
    last: Option<Instant>,
    waits: u32,
}

/// Whether a pass may begin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Yes, now.
    Now {
        /// If contention has ended: the number of passes that had to wait.
        after_contention: Option<u32>,
    },
    /// After a wait.
    After {
        /// Duration of the wait.
        wait: Duration,
        /// Contention has begun: the number of consecutive waits has exceeded the limit just now.
        contention_begins: bool,
        /// Contention continues: a line for every pass would flood the log.
        contention: bool,
    },
}

impl Throttle {
    /// Requests a turn.
    pub(crate) fn turn(&mut self, now: Instant) -> Turn {
        let missing = self.free_at.map(|t| t.saturating_duration_since(now));
        match missing.filter(|m| !m.is_zero()) {
            None => {
                (self.free_at, self.last) = (Some(now + REFILL), Some(now));
                let waits = std::mem::take(&mut self.waits);
                Turn::Now {
                    after_contention: (waits > PATIENCE).then_some(waits),
                }
            }
            Some(missing) => {
                self.free_at = Some(now + (missing + REFILL).min(LONGEST_DEBT));
                self.waits = self.waits.saturating_add(1);
                let due = self.last.map_or(now, |last| last + PACE);
                let wait = due.saturating_duration_since(now).min(missing);
                self.last = Some(now + wait);
                Turn::After {
                    wait,
                    contention_begins: self.waits == PATIENCE + 1,
                    contention: self.waits > PATIENCE,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_every_five_seconds_and_a_pass_a_second_otherwise() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut t = Throttle::default();
        assert_eq!(
            t.turn(at(0)),
            Turn::Now {
                after_contention: None
            }
        );
        let wait = |ms| Turn::After {
            wait: Duration::from_millis(ms),
            contention_begins: false,
            contention: false,
        };
        // It counts from the pass before, not from the change.
        assert_eq!(t.turn(at(100)), wait(800));
        assert_eq!(t.turn(at(1000)), wait(800));
        assert_eq!(t.turn(at(4000)), wait(0));
        assert_eq!(
            t.turn(at(30_000)),
            Turn::Now {
                after_contention: None
            }
        );
        // No longer than until the next token.
        assert_eq!(t.turn(at(34_900)), wait(0));
        let mut t = Throttle::default();
        t.turn(at(0));
        assert_eq!(t.turn(at(4800)), wait(0));
    }

    #[test]
    fn contention_is_noticed_once_and_its_end_too() {
        let start = Instant::now();
        let mut t = Throttle::default();
        t.turn(start);
        let turns: Vec<_> = (0..8)
            .map(|n| t.turn(start + Duration::from_millis(n)))
            .collect();
        let begins = |t: &Turn| {
            matches!(
                t,
                Turn::After {
                    contention_begins: true,
                    ..
                }
            )
        };
        let contention = |t: &Turn| {
            matches!(
                t,
                Turn::After {
                    contention: true,
                    ..
                }
            )
        };
        assert_eq!(turns.iter().filter(|t| begins(t)).count(), 1);
        assert_eq!(turns.iter().filter(|t| contention(t)).count(), 3);
        assert_eq!(
            t.turn(start + LONGEST_DEBT * 2),
            Turn::Now {
                after_contention: Some(8)
            }
        );
    }
}
