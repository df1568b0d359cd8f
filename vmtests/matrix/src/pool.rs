//! Several at a time, and a person who waits.
use super::model::{CaseResult, Verdict};
use std::collections::{BTreeMap, VecDeque};
use std::io::{IsTerminal, Write};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Does the work for every item, `jobs` at a time, in their order as far as possible.
///
/// Each item has a `kind`. The first item of each group boots and saves the machine that the others restore. Until it
/// is done, no other of its group begins: it would only wait.
pub(super) fn in_parallel<T: Sync, G: Ord, R: Send>(
    jobs: usize,
    items: &[T],
    kind: impl Fn(&T) -> Kind<G>,
    work: impl Fn(&T) -> Option<R> + Sync,
) -> Vec<R> {
    let mut numbers = BTreeMap::new();
    let (mut grouped, mut beside) = (VecDeque::new(), VecDeque::new());
    for (index, item) in items.iter().enumerate() {
        match kind(item) {
            Kind::Grouped(group) => {
                let next = numbers.len();
                grouped.push_back((index, *numbers.entry(group).or_insert(next)));
            }
            Kind::Beside => beside.push_back(index),
        }
    }
    let queue = Queue {
        state: Mutex::new(Waiting {
            grouped,
            beside,
            groups: Vec::new(),
        }),
        changed: Condvar::new(),
    };
    let results = Mutex::new(Vec::new());
    let one = |(index, group): (usize, Option<usize>)| {
        // Also when the work panics: the others would wait for ever.
        let made = Made(&queue, group);
        let result = items.get(index).and_then(&work);
        drop(made);
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        results.extend(result);
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| std::iter::from_fn(|| queue.take()).for_each(one));
        }
        scope.spawn(|| std::iter::from_fn(|| queue.take_beside()).for_each(one));
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// What an item needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind<G> {
    /// A processor, and what the first of its group makes.
    Grouped(G),
    /// Time more than a processor: there is always one such item at work besides the `jobs`.
    Beside,
}

struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    /// Places of items, with the numbers of their groups.
    grouped: VecDeque<(usize, usize)>,
    /// Places of those that belong to no group.
    beside: VecDeque<usize>,
    /// By number: absent before its first item began, then whether that is done.
    groups: Vec<Option<bool>>,
}

impl Queue {
    /// The next item that may begin, and its group; `None` when all have begun.
    fn take(&self) -> Option<(usize, Option<usize>)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.grouped.is_empty() {
                return Some((state.beside.pop_front()?, None));
            }
            let is_free = |group: usize| state.groups.get(group).copied().flatten() != Some(false);
            if let Some(at) = state.grouped.iter().position(|(_, group)| is_free(*group)) {
                let (index, group) = state.grouped.remove(at)?;
                if state.groups.len() <= group {
                    state.groups.resize(group + 1, None);
                }
                if let Some(group) = state.groups.get_mut(group) {
                    group.get_or_insert(false);
                }
                return Some((index, Some(group)));
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next of those that belong to no group.
    fn take_beside(&self) -> Option<(usize, Option<usize>)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Some((state.beside.pop_front()?, None))
    }

    fn is_made(&self, group: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = state.groups.get_mut(group) {
            *group = Some(true);
        }
        self.changed.notify_all();
    }
}

/// Says, when it is dropped, that the first item of a group is done.
struct Made<'a>(&'a Queue, Option<usize>);

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if let Some(group) = self.1 {
            self.0.is_made(group);
        }
    }
}

/// Shows how far it is: one line that changes on a terminal, and a line for each failure everywhere.
pub(super) struct Watch {
    total: usize,
    is_terminal: bool,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    done: usize,
    failed: usize,
    skipped: usize,
}

impl Watch {
    pub(super) fn new(total: usize) -> Self {
        Self {
            total,
            is_terminal: std::io::stderr().is_terminal(),
            started: Instant::now(),
            state: Mutex::default(),
        }
    }

    pub(super) fn begin(&self, environment: &str, case: &str) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.draw(&state, &format!("{environment}::{case}"));
    }

    pub(super) fn end(&self, result: &CaseResult) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done += 1;
        match &result.verdict {
            Verdict::Failed { .. } => {
                state.failed += 1;
                let clear = if self.is_terminal { "\r\x1b[K" } else { "" };
                eprintln!(
                    "{clear}FAILED {}::{} ({:.1} s)",
                    result.environment, result.case, result.seconds
                );
            }
            Verdict::Skipped { .. } => state.skipped += 1,
            _ => {}
        }
        if !self.is_terminal && state.done.is_multiple_of(100) {
            eprintln!(
                "{} of {} cases after {:.0} s, {} failed",
                state.done,
                self.total,
                self.started.elapsed().as_secs_f64(),
                state.failed
            );
        }
    }

    fn draw(&self, state: &State, what: &str) {
        if self.is_terminal {
            // A line must not wrap, or it cannot be overwritten.
            let line = format!(
                "{}/{} done, {} failed, {} skipped: {what}",
                state.done, self.total, state.failed, state.skipped
            );
            let line: String = line.chars().take(100).collect();
            eprint!("\r{line}\x1b[K");
            let _ = std::io::stderr().flush();
        }
    }

    pub(super) fn finish(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// Tells what the guests cost, and which cases cost most: on a busy machine the time on the clock says little.
pub(super) fn costs(mut cases: Vec<(f64, &CaseResult)>) {
    const SHOWN: usize = 10;
    let guests = cases.iter().filter(|(cpu, _)| *cpu > 0.0).count();
    if guests == 0 {
        return;
    }
    let sum: f64 = cases.iter().map(|(cpu, _)| cpu).sum();
    eprintln!("{guests} guests took {sum:.0} s of processor time; most of it:");
    cases.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (cpu, result) in cases.iter().take(SHOWN) {
        eprintln!("{cpu:6.1} s  {}::{}", result.environment, result.case);
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, in_parallel};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn every_item_is_worked_on_once() {
        let items: Vec<u32> = (0..100).collect();
        for jobs in [0, 1, 7, 200] {
            let kind = |i: &u32| match i % 7 {
                6 => Kind::Beside,
                group => Kind::Grouped(group),
            };
            let mut done = in_parallel(jobs, &items, kind, |i| Some(*i));
            done.sort_unstable();
            assert_eq!(done, items);
        }
        assert!(in_parallel(3, &[0_u8; 0], |_| Kind::Grouped(0), |_| Some(1)).is_empty());
    }

    #[test]
    fn what_waits_takes_no_job() {
        // 0 and 1 wait for each other: with one job, that is only possible if 1 takes none.
        let both = Barrier::new(2);
        let kind = |i: &u32| match i {
            0 => Kind::Grouped(()),
            _ => Kind::Beside,
        };
        let work = |i: &u32| {
            if *i < 2 {
                both.wait();
            }
            Some(*i)
        };
        let mut done = in_parallel(1, &[1, 2, 0], kind, work);
        done.sort_unstable();
        assert_eq!(done, [0, 1, 2]);
    }

    #[test]
    fn the_first_of_a_group_is_done_before_another_begins() {
        let items: Vec<usize> = (0..40).collect();
        let made: Vec<_> = (0..4).map(|_| AtomicBool::new(false)).collect();
        let work = |item: &usize| {
            let group = &made[item % 4];
            if *item < 4 {
                std::thread::yield_now();
                group.store(true, Ordering::SeqCst);
                Some(true)
            } else {
                Some(group.load(Ordering::SeqCst))
            }
        };
        let done = in_parallel(8, &items, |i| Kind::Grouped(i % 4), work);
        assert_eq!(done, vec![true; 40]);
    }
}
