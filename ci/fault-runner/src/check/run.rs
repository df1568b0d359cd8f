//! Cases, one after the other in each worker.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::check::calls::Call;
use crate::check::fault::{CaseId, Fault, Target};
use crate::check::judge::{Case, Expected, Problem, Ran};
use crate::check::scenario::{Lab, Place, Scenario};
use crate::check::state::State;
use crate::check::trace::{self, How, Injection, Trace};
use crate::check::watchdog::Watchdog;

/// Longer than any deadline of the product that one fault can make it wait for.
const LIMIT: Duration = Duration::from_secs(60);

/// A scenario that ran without a fault.
pub(crate) struct Baseline {
    pub(crate) scenario: Scenario,
    pub(crate) expected: Expected,
    calls: Vec<Call>,
}

/// What one case came to.
pub(crate) struct Outcome {
    pub(crate) case: CaseId,
    /// `None`: the call was not made this time.
    pub(crate) problems: Option<Vec<Problem>>,
    pub(crate) elapsed: Duration,
}

impl Baseline {
    /// Runs the scenario as it is.
    ///
    /// # Errors
    /// It fails by itself, or twice in a row is not the same as once.
    pub(crate) fn record(lab: &Lab, scenario: Scenario, number: usize) -> Result<Self, String> {
        let named = |e: String| format!("{}, without a fault: {e}", scenario.name());
        let place = lab.place(scenario, number).map_err(named)?;
        let watchdog = Watchdog::new();
        let before = State::read(&place.netns).map_err(|e| named(e.to_string()))?;
        let (trace, first) = run(lab, scenario, &place, How::Record, &watchdog).map_err(named)?;
        let (_, second) = run(lab, scenario, &place, How::Free, &watchdog).map_err(named)?;
        for ran in [&first, &second] {
            if ran.end != trace::End::Exited(0) || ran.after.foreign != before.foreign {
                let change = before.difference(&ran.after);
                return Err(named(format!("{:?}\n{}\n{change}", ran.end, ran.stderr)));
            }
        }
        if first.after != second.after {
            let change = first.after.difference(&second.after);
            return Err(named(format!("a second run changes something:\n{change}")));
        }
        Ok(Self {
            scenario,
            expected: Expected {
                before,
                done: first.after,
            },
            calls: trace.made.iter().map(|m| m.call).collect(),
        })
    }

    /// Every fault of every call.
    pub(crate) fn cases(&self) -> Vec<CaseId> {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        let mut cases = Vec::new();
        for call in &self.calls {
            let occurrence = counts.entry(call.number).or_default();
            *occurrence += 1;
            let target = Target {
                number: call.number,
                occurrence: *occurrence,
            };
            let possible = Fault::all().filter(|fault| call.can(*fault));
            cases.extend(possible.map(|fault| CaseId {
                scenario: self.scenario.name(),
                target,
                fault,
            }));
        }
        cases
    }

    /// One case; `explain` gets all that is to be known about it.
    ///
    /// # Errors
    /// The case cannot be set up.
    pub(crate) fn case(
        &self,
        lab: &Lab,
        case: &CaseId,
        number: usize,
        watchdog: &Watchdog,
        mut explain: Option<&mut String>,
    ) -> Result<Outcome, String> {
        let named = |e: String| format!("{case}: {e}");
        let place = lab.place(self.scenario, number).map_err(named)?;
        let how = How::Inject(Injection {
            target: case.target,
            fault: case.fault,
            record_all: explain.is_some(),
        });
        let (trace, first) = run(lab, self.scenario, &place, how, watchdog).map_err(named)?;
        if let Some(text) = explain.as_deref_mut() {
            *text += &trace.text();
            *text += &told("first", &first, &self.expected);
        }
        let mut outcome = Outcome {
            case: case.clone(),
            problems: None,
            elapsed: trace.elapsed,
        };
        let Some(hit) = trace.hit() else {
            return Ok(outcome);
        };
        let (_, second) = run(lab, self.scenario, &place, How::Free, watchdog).map_err(named)?;
        if let Some(text) = explain {
            *text += &told("second", &second, &self.expected);
        }
        let case = Case {
            scenario: self.scenario,
            fault: case.fault,
            hit,
            expected: &self.expected,
            first: &first,
            second: &second,
        };
        outcome.problems = Some(case.problems());
        Ok(outcome)
    }
}

fn run(
    lab: &Lab,
    scenario: Scenario,
    place: &Place,
    how: How,
    watchdog: &Watchdog,
) -> Result<(Trace, Ran), String> {
    let mut command = lab.command(scenario, place)?;
    let trace = trace::run(&mut command, how, watchdog, LIMIT)?;
    let (stdout, stderr) = place.printed();
    let after = State::read(&place.netns).map_err(|e| e.to_string())?;
    let ran = Ran {
        end: trace.end,
        stdout,
        stderr,
        after,
    };
    Ok((trace, ran))
}

fn told(which: &str, ran: &Ran, expected: &Expected) -> String {
    let Ran {
        end,
        stdout,
        stderr,
        after,
    } = ran;
    let from_before = expected.before.difference(after);
    let to_done = expected.done.difference(after);
    format!(
        "--- {which} run: {end:?}\nstdout: {stdout}\nstderr: {stderr}\nwhat changed:\n{from_before}\
         beside what it should be:\n{to_done}"
    )
}

/// Runs cases on several threads: most of the time that a case takes is waiting for the kernel.
pub(crate) struct Pool<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) baselines: &'a [Baseline],
    pub(crate) jobs: usize,
    /// Numbers that name directories.
    pub(crate) numbers: &'a AtomicUsize,
}

impl Pool<'_> {
    /// All of them; `done` is told each as it comes.
    ///
    /// # Errors
    /// The first case that could not be set up.
    pub(crate) fn run(
        &self,
        cases: &[CaseId],
        done: &(dyn Fn(Outcome) + Sync),
    ) -> Result<(), String> {
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(|| {
                    let watchdog = Watchdog::new();
                    while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                        match self.one(case, &watchdog) {
                            Ok(outcome) => done(outcome),
                            Err(e) => {
                                next.store(cases.len(), Ordering::Relaxed);
                                *failed.lock().expect("no worker panics") = Some(e);
                            }
                        }
                    }
                });
            }
        });
        failed
            .into_inner()
            .expect("no worker panics")
            .map_or(Ok(()), Err)
    }

    fn one(&self, case: &CaseId, watchdog: &Watchdog) -> Result<Outcome, String> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.baseline(case)?
            .case(self.lab, case, number, watchdog, None)
    }

    /// The scenario of a case.
    pub(crate) fn baseline(&self, case: &CaseId) -> Result<&Baseline, String> {
        let mut all = self.baselines.iter();
        all.find(|b| b.scenario.name() == case.scenario)
            .ok_or_else(|| format!("{case}: there is no such scenario"))
    }
}

/// A directory that goes away with this value.
pub(crate) struct Scratch(std::path::PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("weir-faults-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
