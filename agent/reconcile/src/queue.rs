//! The queue of pods. Pure: the time is a parameter of every call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// `metadata.uid`.
pub type Uid = Arc<str>;

/// Backoff after failures: the first pause, which doubles with each failure, and the longest pause.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What follows the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until something changes.
    Settled,
    /// A retry with backoff.
    Retry,
    /// A retry with backoff, with pauses of at most this.
    Within(Duration),
    /// Another job after this time.
    After(Duration),
}

/// A job to be started now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The pod.
    pub uid: Uid,
    /// The pod is examined even if nothing changed.
    pub sweep: bool,
    /// Observations made before this time do not count.
    pub since: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Due {
    at: Instant,
    /// Changed pods come before those that are only verified again.
    changed: bool,
    sweep: bool,
    since: Instant,
    order: u64,
}

/// The pods that need work, and those with a running job. No operation iterates over all pods.
#[derive(Debug)]
pub struct Queue {
    due: BTreeMap<Uid, Due>,
    /// Pods of `due` without a running job: first ordered by time, and when that has come, by turn.
    later: BTreeSet<(Instant, Uid)>,
    ready: BTreeSet<(Turn, Uid)>,
    /// Running jobs, with true if the job occupies a worker. Late jobs do not.
    active: BTreeMap<Uid, bool>,
    /// The number of jobs that occupy a worker.
    busy: usize,
    failures: BTreeMap<Uid, u32>,
    workers: usize,
    order: u64,
}

/// Order of start: changed pods (false) first, then by number.
type Turn = (bool, u64);

impl Due {
    fn turn(&self) -> Turn {
        (!self.changed, self.order)
    }
}

impl Queue {
    /// Creates a queue for this number of workers.
    pub fn new(workers: usize) -> Self {
        Self {
            due: BTreeMap::new(),
            later: BTreeSet::new(),
            ready: BTreeSet::new(),
            active: BTreeMap::new(),
            busy: 0,
            failures: BTreeMap::new(),
            workers,
            order: 0,
        }
    }

    /// Records a change of the pod.
    pub fn changed(&mut self, uid: &Uid, now: Instant) {
        self.failures.remove(uid);
        self.add(uid, now, now, true, false);
    }

    /// Schedules an examination of the pod without a change.
    pub fn sweep(&mut self, uid: &Uid, now: Instant) {
        self.add(uid, now, now, false, true);
    }

    fn add(&mut self, uid: &Uid, now: Instant, at: Instant, changed: bool, sweep: bool) {
        self.order += 1;
        self.take_out(uid);
        let new = Due {
            at,
            changed,
            sweep,
            since: now,
            order: self.order,
        };
        let known = self.due.entry(Arc::clone(uid)).or_insert(new);
        known.at = known.at.min(at);
        known.changed |= changed;
        known.sweep |= sweep;
        known.since = known.since.max(now);
        self.put_in(uid);
    }

    /// Puts a pod that needs work in order, unless its job is running.
    fn put_in(&mut self, uid: &Uid) {
        if let Some(due) = self.due.get(uid).filter(|_| !self.active.contains_key(uid)) {
            self.later.insert((due.at, Arc::clone(uid)));
        }
    }

    fn take_out(&mut self, uid: &Uid) {
        if let Some(due) = self.due.get(uid) {
            self.later.remove(&(due.at, Arc::clone(uid)));
            self.ready.remove(&(due.turn(), Arc::clone(uid)));
        }
    }

    /// Starts the next job, if there is one and a worker is free. A pod has at most one job.
    pub fn start(&mut self, now: Instant) -> Option<Start> {
        if self.busy >= self.workers {
            return None;
        }
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, uid)) = self.later.pop_first()
                && let Some(due) = self.due.get(&uid)
            {
                self.ready.insert((due.turn(), uid));
            }
        }
        let (_, uid) = self.ready.pop_first()?;
        let due = self.due.remove(&uid)?;
        self.active.insert(Arc::clone(&uid), true);
        self.busy += 1;
        Some(Start {
            uid,
            sweep: due.sweep,
            // After a failure this is the time of the retry; a change in the meantime comes first.
            since: due.since.min(now),
        })
    }

    /// Releases the worker of a job that takes long, or waits for something else.
    pub fn late(&mut self, uid: &Uid) {
        if let Some(holds) = self.active.get_mut(uid)
            && std::mem::take(holds)
        {
            self.busy -= 1;
        }
    }

    /// Records the end of a job.
    pub fn done(&mut self, uid: &Uid, next: Next, now: Instant) {
        if self.active.remove(uid) == Some(true) {
            self.busy -= 1;
        }
        self.put_in(uid);
        let pause = match next {
            Next::Settled => {
                self.failures.remove(uid);
                return;
            }
            Next::After(pause) => pause,
            Next::Retry => self.failed(uid).min(RETRY.1),
            Next::Within(longest) => self.failed(uid).min(longest),
        };
        let at = now + pause;
        self.add(uid, now, at, false, true);
        if let Some(due) = self.due.get_mut(uid) {
            due.since = due.since.max(at);
        }
    }

    /// Counts a failure and returns the pause, which doubles without limit.
    fn failed(&mut self, uid: &Uid) -> Duration {
        let failures = self.failures.entry(Arc::clone(uid)).or_default();
        let pause = RETRY.0.saturating_mul(1 << (*failures).min(16));
        *failures += 1;
        pause
    }

    /// Removes a pod. A running job still counts.
    pub fn forget(&mut self, uid: &Uid) {
        self.take_out(uid);
        self.due.remove(uid);
        self.failures.remove(uid);
    }

    /// Returns the earliest time at which [`Queue::start`] has a job; `None`: not before a job ends or something changes.
    pub fn next(&self) -> Option<Instant> {
        match self.busy < self.workers {
            true => {
                let ready = self.ready.first().and_then(|(_, uid)| self.due.get(uid));
                let later = self.later.first().map(|(at, _)| *at);
                ready.map(|due| due.at).or(later)
            }
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn uid(name: &str) -> Uid {
        name.into()
    }

    fn started(queue: &mut Queue, now: Instant) -> Vec<(String, bool)> {
        std::iter::from_fn(|| queue.start(now))
            .map(|s| (s.uid.to_string(), s.sweep))
            .collect()
    }

    fn list(expected: &[(&str, bool)]) -> Vec<(String, bool)> {
        expected
            .iter()
            .map(|(n, s)| ((*n).to_owned(), *s))
            .collect()
    }

    #[test]
    fn what_changed_comes_first_and_no_more_than_there_are_workers() {
        let (mut queue, now) = (Queue::new(2), Instant::now());
        for name in ["a", "b", "c"] {
            queue.sweep(&uid(name), now);
        }
        queue.changed(&uid("c"), now);
        assert_eq!(started(&mut queue, now), list(&[("c", true), ("a", true)]));
        assert_eq!(queue.next(), None, "no worker is free");
        queue.late(&uid("c"));
        assert_eq!(started(&mut queue, now), list(&[("b", true)]));
    }

    #[test]
    fn a_pod_that_changes_meanwhile_is_looked_at_once_more_and_not_twice_at_once() {
        let (mut queue, now) = (Queue::new(8), Instant::now());
        queue.changed(&uid("a"), now);
        assert_eq!(started(&mut queue, now).len(), 1);
        queue.changed(&uid("a"), now);
        queue.changed(&uid("a"), now);
        assert_eq!(started(&mut queue, now), []);
        queue.done(&uid("a"), Next::Settled, now);
        assert_eq!(started(&mut queue, now), list(&[("a", false)]));
        queue.done(&uid("a"), Next::Settled, now);
        assert_eq!((started(&mut queue, now), queue.next()), (vec![], None));
    }

    #[test]
    fn pauses_grow_until_something_changes() {
        let (mut queue, mut now) = (Queue::new(1), Instant::now());
        queue.changed(&uid("a"), now);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert_eq!(started(&mut queue, now).len(), 1);
            queue.done(&uid("a"), Next::Retry, now);
            assert_eq!(started(&mut queue, now), []);
            let at = queue.next().unwrap();
            pauses.push((at - now).as_secs());
            now = at;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        queue.changed(&uid("a"), now);
        assert_eq!(started(&mut queue, now).len(), 1);
        queue.done(&uid("a"), Next::Retry, now);
        assert_eq!(queue.next(), Some(now + SECOND));
        for pause in [2, 4, 5, 5] {
            now = queue.next().unwrap();
            assert_eq!(started(&mut queue, now).len(), 1);
            queue.done(&uid("a"), Next::Within(SECOND * 5), now);
            assert_eq!(queue.next(), Some(now + SECOND * pause));
        }
        queue.forget(&uid("a"));
        assert_eq!(queue.next(), None);
    }

    /// Observations count from `since` on, which is never in the future.
    #[test]
    fn work_that_comes_before_its_retry_is_of_now() {
        let (mut queue, now) = (Queue::new(1), Instant::now());
        for has_changed_meanwhile in [false, true] {
            queue.changed(&uid("a"), now);
            assert!(queue.start(now).is_some());
            if has_changed_meanwhile {
                queue.changed(&uid("a"), now);
            }
            queue.done(&uid("a"), Next::Retry, now);
            queue.changed(&uid("a"), now);
            let since = queue.start(now).map(|start| start.since);
            assert_eq!(since, Some(now), "{has_changed_meanwhile}");
            queue.done(&uid("a"), Next::Settled, now);
        }
    }

    #[test]
    fn a_pod_that_is_gone_and_comes_back_waits_for_the_work_that_goes_on() {
        let (mut queue, now) = (Queue::new(1), Instant::now());
        queue.changed(&uid("a"), now);
        assert_eq!(started(&mut queue, now).len(), 1);
        queue.forget(&uid("a"));
        queue.changed(&uid("a"), now);
        assert_eq!(started(&mut queue, now), []);
        queue.done(&uid("a"), Next::Settled, now);
        assert_eq!(started(&mut queue, now).len(), 1);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Changed(u8),
        Sweep(u8),
        Gone(u8),
        Late(u8),
        Done(u8, bool),
        Time(u8),
    }

    fn step() -> impl Strategy<Value = Step> {
        let pod = 0..6u8;
        prop_oneof![
            4 => pod.clone().prop_map(Step::Changed),
            2 => pod.clone().prop_map(Step::Sweep),
            1 => pod.clone().prop_map(Step::Gone),
            1 => pod.clone().prop_map(Step::Late),
            4 => (pod, any::<bool>()).prop_map(|(pod, well)| Step::Done(pod, well)),
            2 => any::<u8>().prop_map(Step::Time),
        ]
    }

    proptest! {
        /// In any order of events: no pod has two jobs at once, no more jobs occupy a worker than there are workers, and
        /// when the queue is idle, a job has followed the last change of every existing pod.
        #[test]
        fn histories(steps in proptest::collection::vec(step(), 0..80)) {
            const WORKERS: usize = 2;
            let (mut queue, mut now) = (Queue::new(WORKERS), Instant::now());
            let mut running: BTreeMap<u8, bool> = BTreeMap::new();
            let mut dirty = BTreeSet::new();
            let name = |pod: u8| uid(&pod.to_string());
            let begin = |queue: &mut Queue, now, running: &mut BTreeMap<u8, bool>, dirty: &mut BTreeSet<u8>| {
                while let Some(start) = queue.start(now) {
                    let pod: u8 = start.uid.parse().unwrap();
                    assert!(running.insert(pod, true).is_none(), "two at once");
                    assert!(running.values().filter(|holds| **holds).count() <= WORKERS);
                    dirty.remove(&pod);
                }
            };
            for step in steps {
                match step {
                    Step::Changed(pod) => {
                        queue.changed(&name(pod), now);
                        dirty.insert(pod);
                    }
                    Step::Sweep(pod) => queue.sweep(&name(pod), now),
                    Step::Gone(pod) => {
                        queue.forget(&name(pod));
                        dirty.remove(&pod);
                    }
                    Step::Late(pod) => {
                        queue.late(&name(pod));
                        running.entry(pod).and_modify(|holds| *holds = false);
                    }
                    Step::Done(pod, well) => if running.remove(&pod).is_some() {
                        queue.done(&name(pod), if well { Next::Settled } else { Next::Retry }, now);
                    },
                    Step::Time(seconds) => now += SECOND * u32::from(seconds),
                }
                begin(&mut queue, now, &mut running, &mut dirty);
            }
            for _ in 0..100 {
                while let Some((pod, _)) = running.pop_first() {
                    queue.done(&name(pod), Next::Settled, now);
                    begin(&mut queue, now, &mut running, &mut dirty);
                }
                now += SECOND * 100;
                begin(&mut queue, now, &mut running, &mut dirty);
            }
            prop_assert!(dirty.is_empty(), "{dirty:?} changed and was not looked at");
            prop_assert_eq!(queue.next(), None);
        }
    }
}
