//! Pacing of repairs for one pod: immediate at first, with growing pauses under contention.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use weir_core::journal::pod::{Cause, Contention, Healed, PodRef, Repair, Writer};

/// More repairs than this within [`Heals::WINDOW`] count as contention.
const CONTENTION: usize = 5;

/// Times of the Kubernetes events about repairs of one pod, per cause and result, and per name of the process that caused it.
#[derive(Debug, Default)]
struct RepairEvents(Vec<((Cause, bool), Option<String>, Instant)>);

impl RepairEvents {
    /// Minimum interval between similar events for one pod.
    const PAUSE: Duration = Duration::from_secs(600);
    /// Maximum number of events within [`Self::PAUSE`]: a process in the pod can choose any name.
    const MOST: usize = 8;

    /// Returns true if an event is due, and counts it as sent.
    fn take(&mut self, cause: (Cause, bool), by: Option<&Writer>, now: Instant) -> bool {
        let by = by.map(|writer| writer.name.as_str());
        self.0
            .retain(|(.., at)| now.duration_since(*at) < Self::PAUSE);
        let mut sent = self.0.iter();
        let is_alike = sent.any(|(c, name, _)| *c == cause && name.as_deref() == by);
        let is_due = self.0.len() < Self::MOST && !is_alike;
        if is_due {
            self.0.push((cause, by.map(str::to_owned), now));
        }
        is_due
    }
}

/// The recent repairs of one pod.
#[derive(Debug, Default)]
pub struct Heals {
    at: VecDeque<Instant>,
    not_before: Option<Instant>,
    pauses: u32,
    events: RepairEvents,
    /// The drift that was counted when its repair failed, until it is repaired.
    told: Option<Told>,
}

/// A drift whose repair failed.
#[derive(Debug)]
struct Told {
    /// The first difference.
    first: String,
    differences: usize,
    /// The process that caused it was named.
    is_named: bool,
}

impl Heals {
    /// Age after which a repair no longer counts.
    pub const WINDOW: Duration = Duration::from_secs(60);
    /// A comparison usually takes a few milliseconds. One that takes this long is followed by a pause of
    /// [`Self::AFTER_COSTLY`], so that other pods get the worker.
    const COSTLY: Duration = Duration::from_secs(2);
    const AFTER_COSTLY: Duration = Duration::from_secs(10);
    /// The longest pause under contention.
    const LONGEST: Duration = Duration::from_secs(30);

    /// Counts a repair that was made now; `by` is the process that caused it, if known. Returns what to record in the journal.
    pub fn made(
        &mut self,
        pod: PodRef,
        repair: Repair,
        by: Option<Writer>,
    ) -> (Healed, Option<Contention>) {
        self.found(pod, repair, by, false)
    }

    /// Like [`Heals::made`], for a repair that failed for this reason. `None`: there is no difference, or this drift was counted
    /// before; also if another process has written since, unless none was named before.
    pub fn failed(
        &mut self,
        pod: PodRef,
        repair: Repair,
        by: Option<Writer>,
        why: &str,
    ) -> Option<(Healed, Option<Contention>)> {
        if repair.differences == 0 {
            self.in_sync();
            return None;
        }
        let is_it = |told: &Told| {
            let is_same = told.first == repair.first && told.differences == repair.differences;
            is_same && (told.is_named || by.is_none())
        };
        if self.told.as_ref().is_some_and(is_it) {
            // Each commit of another program leads to an attempt.
            _ = by.and_then(|_| self.add(Instant::now()));
            return None;
        }
        self.in_sync();
        let told = Told {
            first: repair.first.clone(),
            differences: repair.differences,
            is_named: by.is_some(),
        };
        let summary = format!("the repair failed: {why}; it is retried");
        let found = self.found(pod, Repair { summary, ..repair }, by, true);
        self.told = Some(told);
        Some(found)
    }

    /// Called when nothing is left of a drift: a further one is counted whatever it is.
    pub fn in_sync(&mut self) {
        self.told = None;
    }

    fn found(
        &mut self,
        pod: PodRef,
        repair: Repair,
        by: Option<Writer>,
        failed: bool,
    ) -> (Healed, Option<Contention>) {
        let now = Instant::now();
        let is_new = self.told.take().is_none();
        let notify = self.events.take((repair.cause, failed), by.as_ref(), now);
        let times = is_new.then(|| self.add(now)).flatten();
        let contention = times.map(|(times, pause)| Contention {
            pod: pod.clone(),
            times,
            pause,
            by: by.clone(),
        });
        let healed = Healed {
            pod,
            repair,
            by,
            failed,
            is_new,
            notify,
        };
        (healed, contention)
    }

    /// Forgets the repairs made in the previous sandbox of the pod. Events already sent still count.
    pub fn begin_anew(&mut self) {
        let events = std::mem::take(&mut self.events);
        *self = Self {
            events,
            ..Self::default()
        };
    }

    /// Counts one repair. Under contention, returns the number of repairs within the window and the pause before the next one.
    pub fn add(&mut self, now: Instant) -> Option<(usize, Duration)> {
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

    /// Records the duration of a comparison. Processes in the pod control how expensive it is, and each of their commits
    /// causes another comparison.
    pub fn took(&mut self, time: Duration, now: Instant) {
        if time >= Self::COSTLY {
            self.not_before = self.not_before.max(Some(now + Self::AFTER_COSTLY));
        }
    }

    /// Returns the remaining pause before the next repair.
    pub fn pause(&self, now: Instant) -> Option<Duration> {
        let left = self.not_before?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_is_told_of_the_first_repair_and_of_contention_also_in_another_sandbox() {
        let pod = weir_core::pods::PodView::default().reference();
        let repair = Repair {
            first: String::new(),
            differences: 1,
            cause: weir_core::journal::pod::Cause::Missing,
            summary: String::new(),
        };
        let mut heals = Heals::default();
        let made = |heals: &mut Heals| {
            let (healed, contention) = heals.made(pod.clone(), repair.clone(), None);
            (healed.notify, contention.map(|c| (c.times, c.pause)))
        };
        assert_eq!(made(&mut heals), (true, None));
        for _ in 1..CONTENTION {
            assert_eq!(made(&mut heals), (false, None));
        }
        let pause = Duration::from_secs(1);
        assert_eq!(made(&mut heals), (false, Some((CONTENTION + 1, pause))));
        assert!(heals.pause(Instant::now()).is_some());
        heals.begin_anew();
        assert_eq!(heals.pause(Instant::now()), None);
        assert_eq!(made(&mut heals), (false, None));
    }

    /// It was counted by each commit of a process that had nothing to do with it, and again when it was repaired.
    #[test]
    fn a_drift_whose_repair_fails_is_counted_once() {
        let pod = weir_core::pods::PodView::default().reference();
        let repair = |differences| Repair {
            first: "missing".into(),
            differences,
            cause: Cause::Missing,
            summary: String::new(),
        };
        let writer = |name: &str| {
            let name = name.to_owned();
            Some(Writer { pid: 7, name })
        };
        let mut heals = Heals::default();
        let failed = |heals: &mut Heals, differences, by| {
            let told = heals.failed(pod.clone(), repair(differences), by, "no");
            told.map(|(healed, _)| (healed.is_new, healed.by.map(|by| by.name)))
        };
        let made = |heals: &mut Heals| {
            let (healed, contention) = heals.made(pod.clone(), repair(1), None);
            (healed.is_new, contention.is_some())
        };
        assert_eq!(failed(&mut heals, 1, None), Some((true, None)));
        assert_eq!(failed(&mut heals, 1, None), None);
        let named = Some((true, Some("nft".to_owned())));
        assert_eq!(failed(&mut heals, 1, writer("nft")), named, "its process");
        for _ in 0..CONTENTION {
            assert_eq!(failed(&mut heals, 1, writer("dockerd")), None, "another");
        }
        assert!(heals.pause(Instant::now()).is_some(), "but not as often");
        assert_eq!(failed(&mut heals, 2, None), Some((true, None)), "more");
        assert_eq!(made(&mut heals), (false, false));
        assert!(made(&mut heals).0, "another one");
        assert!(failed(&mut heals, 1, None).is_some());
        assert_eq!(failed(&mut heals, 0, None), None, "it was repaired");
        assert!(failed(&mut heals, 1, None).is_some(), "the same again");
        heals.in_sync();
        assert!(made(&mut heals).0);
    }

    #[test]
    fn another_cause_or_process_is_told_of_at_once_and_the_same_after_a_pause() {
        let (mut events, now) = (RepairEvents::default(), Instant::now());
        let writer = |pid, name: &str| Writer {
            pid,
            name: name.to_owned(),
        };
        let (missing, changed) = ((Cause::Missing, false), (Cause::Changed, false));
        assert!(events.take(missing, None, now));
        assert!(events.take((Cause::Missing, true), None, now));
        assert!(!events.take(missing, None, now));
        assert!(events.take(missing, Some(&writer(7, "nft")), now));
        assert!(!events.take(missing, Some(&writer(8, "nft")), now));
        assert!(events.take(changed, Some(&writer(8, "nft")), now));
        for n in 0..RepairEvents::MOST * 2 {
            let is_due = events.take(changed, Some(&writer(9, &format!("p{n}"))), now);
            assert_eq!(is_due, n + 4 < RepairEvents::MOST, "{n}");
        }
        let later = now + RepairEvents::PAUSE;
        assert!(events.take(missing, None, later));
        assert!(!events.take(missing, None, later));
    }

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
