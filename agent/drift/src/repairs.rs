//! Detects contention: repairs of the node's rules that another program keeps reverting.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// More repairs than this within [`WINDOW`] are contention.
const FEW: usize = 5;
/// Contention ends after this time without a repair.
const WINDOW: Duration = Duration::from_secs(60);
/// Interval between log lines about contention: initial and maximum.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

/// The recent repairs. They are not delayed during contention: probes that fail during a pause would terminate pods.
#[derive(Debug, Default)]
pub struct Repairs {
    at: VecDeque<Instant>,
    contention: Option<Contention>,
}

#[derive(Debug)]
struct Contention {
    why: String,
    /// No line is written before this time.
    quiet_until: Instant,
    pause: Duration,
}

impl Repairs {
    /// Adds a repair. Returns true if it is to be logged.
    pub fn made(&mut self, change: &str, now: Instant) -> bool {
        self.at.retain(|at| now.duration_since(*at) <= WINDOW);
        self.at.push_back(now);
        if self.at.len() > FEW + 1 {
            self.at.pop_front();
        }
        match &mut self.contention {
            None if self.at.len() <= FEW => true,
            None => {
                let why = format!(
                    "another program changes the rules again and again, which is repaired each time ({change}); find and stop it"
                );
                let (pause, _) = PAUSE;
                self.contention = Some(Contention {
                    why,
                    quiet_until: now + pause,
                    pause,
                });
                true
            }
            Some(contention) if contention.quiet_until <= now => {
                contention.pause = (contention.pause * 2).min(PAUSE.1);
                contention.quiet_until = now + contention.pause;
                true
            }
            Some(_) => false,
        }
    }

    /// Returns the reason of contention: rules that are in force now may be reverted at any time.
    pub fn contention(&mut self, now: Instant) -> Option<String> {
        let last = self.at.back();
        if last.is_none_or(|last| now.duration_since(*last) > WINDOW) {
            self.contention = None;
        }
        self.contention.as_ref().map(|of| of.why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_undone_again_and_again_is_not_shown_as_in_force_and_told_less_and_less() {
        let (mut repairs, begun) = (Repairs::default(), Instant::now());
        let mut lines = 0;
        // Two repairs per second for an hour.
        for n in 0..7200_u32 {
            let now = begun + Duration::from_millis(500) * n;
            lines += usize::from(repairs.made("add table x", now));
            assert_eq!(repairs.contention(now).is_some(), n as usize >= FEW, "{n}");
        }
        assert!((6..30).contains(&lines), "{lines}");
        let last = begun + Duration::from_millis(500) * 7199;
        assert!(repairs.contention(last + WINDOW).is_some());
        assert_eq!(repairs.contention(last + WINDOW * 2), None);
        assert!(repairs.made("add table x", last + WINDOW * 2));
        assert_eq!(repairs.contention(last + WINDOW * 2), None);
    }

    #[test]
    fn repairs_now_and_then_are_all_told() {
        let (mut repairs, begun) = (Repairs::default(), Instant::now());
        for n in 0..100 {
            let now = begun + WINDOW / 4 * n;
            assert!(repairs.made("add table x", now), "{n}");
            assert_eq!(repairs.contention(now), None, "{n}");
        }
    }
}
