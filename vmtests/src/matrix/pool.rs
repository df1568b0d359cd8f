//! Several at a time, and a person who waits.
use super::model::{CaseResult, Verdict};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Does the work for every item, `jobs` at a time, in their order.
pub(super) fn in_parallel<T: Sync, R: Send>(
    jobs: usize,
    items: &[T],
    work: impl Fn(&T) -> Option<R> + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = work(item);
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.extend(result);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
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
    use super::in_parallel;

    #[test]
    fn every_item_is_worked_on_once() {
        let items: Vec<u32> = (0..100).collect();
        for jobs in [0, 1, 7, 200] {
            let mut done = in_parallel(jobs, &items, |i| Some(*i));
            done.sort_unstable();
            assert_eq!(done, items);
        }
        assert!(in_parallel(3, &[0_u8; 0], |_| Some(1)).is_empty());
    }
}
