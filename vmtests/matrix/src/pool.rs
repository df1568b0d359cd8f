//! Runs cases in parallel and displays the progress.
use super::model::{CaseResult, Verdict};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Processes every item, `jobs` at a time: the first item of each group, then the others, in their order.
///
/// The first item of each group boots and saves the machine that the others restore. Until it is done, no other item of
/// its group starts, because it would only wait for the saved state.
pub(super) fn in_parallel<T: Sync, G: Ord, R: Send>(
    jobs: usize,
    items: &[T],
    kind: impl Fn(&T) -> Kind<G>,
    work: impl Fn(&T) -> Option<R> + Sync,
) -> Vec<R> {
    let mut groups = BTreeMap::new();
    let (mut firsts, mut others, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    for item in items {
        let next = groups.len();
        match kind(item) {
            Kind::Beside => beside.push(item),
            Kind::Grouped(group) => match groups.entry(group) {
                Entry::Vacant(entry) => firsts.push((item, *entry.insert(next), true)),
                Entry::Occupied(entry) => others.push((item, *entry.get(), false)),
            },
        }
    }
    // One mutex per group, locked while its first item is in progress.
    let made: Vec<Mutex<()>> = groups.iter().map(|_| Mutex::new(())).collect();
    let grouped = Mutex::new(firsts.into_iter().chain(others));
    let beside = Mutex::new(beside.into_iter());
    let results = Mutex::new(Vec::new());
    let one = |item: &T| {
        let result = work(item);
        lock(&results).extend(result);
    };
    let all_beside = || std::iter::from_fn(|| lock(&beside).next()).for_each(one);
    let all = || {
        loop {
            let mut queue = lock(&grouped);
            let Some((item, group, is_first)) = queue.next() else {
                break;
            };
            // Locked before the queue is released. The guard is also dropped on panic; the other items would wait forever otherwise.
            let making = made.get(group).filter(|_| is_first).map(lock);
            drop(queue);
            if making.is_none() {
                drop(made.get(group).map(lock));
            }
            one(item);
        }
        all_beside();
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(all);
        }
        scope.spawn(all_beside);
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The resources that an item needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind<G> {
    /// A processor, and the result of the first item of its group.
    Grouped(G),
    /// Mostly waiting time: one such item is always in progress, in addition to the `jobs`.
    Beside,
}

/// Displays the progress: a changing line on a terminal, and a line per failure everywhere.
pub(super) struct Watch {
    bar: ProgressBar,
    /// The numbers of failed and skipped cases.
    counts: Mutex<(usize, usize)>,
}

impl Watch {
    pub(super) fn new(total: usize) -> Self {
        let style = ProgressStyle::with_template("{pos}/{len} done, {wide_msg}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            bar: ProgressBar::new(total as u64)
                .with_style(style)
                .with_finish(ProgressFinish::AndClear),
            counts: Mutex::default(),
        }
    }

    pub(super) fn begin(&self, environment: &str, case: &str) {
        let (failed, skipped) = *lock(&self.counts);
        let line = format!("{failed} failed, {skipped} skipped: {environment}::{case}");
        self.bar.set_message(line);
    }

    pub(super) fn end(&self, result: &CaseResult) {
        let mut counts = lock(&self.counts);
        match &result.verdict {
            Verdict::Failed { .. } => counts.0 += 1,
            Verdict::Skipped(_) => counts.1 += 1,
            _ => {}
        }
        self.bar.inc(1);
        let (bar, (failed, _)) = (&self.bar, *counts);
        if matches!(result.verdict, Verdict::Failed { .. }) {
            let (of, case, seconds) = (&result.environment, &result.case, result.seconds);
            bar.suspend(|| eprintln!("FAILED {of}::{case} ({seconds:.1} s)"));
        }
        let (done, total) = (bar.position(), bar.length().unwrap_or(0));
        if bar.is_hidden() && done.is_multiple_of(100) {
            let seconds = bar.elapsed().as_secs();
            eprintln!("{done} of {total} cases after {seconds} s, {failed} failed");
        }
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
        // Items 0 and 1 wait for each other; with one job this only succeeds if item 1 does not occupy the job.
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
