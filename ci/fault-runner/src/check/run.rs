//! Runs cases, sequentially in each worker thread.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::check::arguments::Random;
use crate::check::calls::Call;
use crate::check::fault::{CaseId, Fault, Other, Strike, Target};
use crate::check::judge::{Case, Expected, Problem, Ran};
use crate::check::lab::{Lab, Place};
use crate::check::scenario::Scenario;
use crate::check::state::State;
use crate::check::trace::{self, How, Injection, Trace};
use crate::check::watchdog::Watchdog;

/// The deadline of a run; it exceeds any deadline of weir that a fault can make it wait for.
const LIMIT: Duration = Duration::from_secs(60);

/// The upper bound for the occurrence of a second fault: more than the calls of one kind that a roll-back makes.
const MOST_LATER: usize = 16;

/// The cases by kind.
#[derive(Default)]
pub(crate) struct Cases {
    /// One fault of one call.
    pub(crate) single: Vec<CaseId>,
    /// All calls with one number fail from a certain one on.
    pub(crate) lasting: Vec<CaseId>,
    /// A second fault follows the first.
    pub(crate) double: Vec<CaseId>,
    /// Another writer acts before a call.
    pub(crate) others: Vec<CaseId>,
}

impl Cases {
    pub(crate) fn append(&mut self, mut more: Self) {
        self.single.append(&mut more.single);
        self.lasting.append(&mut more.lasting);
        self.double.append(&mut more.double);
        self.others.append(&mut more.others);
    }
}

/// A scenario that was recorded without a fault.
pub(crate) struct Baseline {
    pub(crate) scenario: Scenario,
    pub(crate) expected: Expected,
    calls: Vec<Call>,
}

/// The result of one case.
pub(crate) struct Outcome {
    pub(crate) case: CaseId,
    /// `None`: the call was not made in this run.
    pub(crate) problems: Option<Vec<Problem>>,
    pub(crate) elapsed: Duration,
}

impl Baseline {
    /// Runs the scenario without a fault.
    ///
    /// # Errors
    /// The command fails, or running it twice has another result than running it once.
    pub(crate) fn record(lab: &Lab, scenario: Scenario, number: usize) -> Result<Self, String> {
        let named = |e: String| format!("{}, without a fault: {e}", scenario.name());
        let place = lab.place(scenario, number).map_err(named)?;
        let watchdog = Watchdog::new();
        let before = State::at(&place).map_err(named)?;
        let run = |scenario, how| run(lab, scenario, &place, how, &watchdog).map_err(named);
        let (trace, first, _) = run(scenario, How::Record)?;
        let (_, second, _) = run(scenario, How::Free)?;
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
        if scenario.is_handed_over() && !first.is_enrolled {
            return Err(named("the agent was not told of the pod".to_owned()));
        }
        let cleaned = match scenario.cleaner() {
            None => None,
            Some(cleaner) => Some(run(cleaner, How::Free)?.1.after),
        };
        // Values of sysctls remain as they are.
        let is_ours = |item: &String| !item.contains(".rp_filter=");
        if let Some(left) = &cleaned
            && (!left.nft.is_empty() || left.routing.iter().any(is_ours))
        {
            let left = before.difference(left);
            return Err(named(format!("clean leaves something:\n{left}")));
        }
        Ok(Self {
            scenario,
            expected: Expected {
                before,
                done: first.after,
                cleaned,
            },
            calls: trace.made.iter().map(|m| m.call).collect(),
        })
    }

    /// Lists all cases; the second of two faults is chosen at random.
    pub(crate) fn cases(&self, random: &mut Random) -> Cases {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        let mut cases = Cases::default();
        for call in &self.calls {
            let occurrence = counts.entry(call.number).or_default();
            *occurrence += 1;
            let strike = |fault, lasting| Strike {
                target: Target {
                    number: call.number,
                    occurrence: *occurrence,
                },
                lasting,
                fault,
            };
            let case = |first, second| CaseId {
                scenario: self.scenario.name(),
                first,
                second,
            };
            for fault in Fault::all().filter(|fault| call.can(*fault)) {
                cases.single.push(case(strike(fault, false), None));
                if call.can_last_as(fault) {
                    cases.lasting.push(case(strike(fault, true), None));
                }
                if call.can_last() && !fault.kills() {
                    let second = self.second(random);
                    cases.double.push(case(strike(fault, false), Some(second)));
                }
            }
            if call.asks() {
                let others = self.scenario.others().iter();
                let others = others.map(|other| case(strike(Fault::Other(*other), false), None));
                cases.others.extend(others);
            }
        }
        cases
    }

    /// Chooses a fault that affects the command while it handles a first one.
    fn second(&self, random: &mut Random) -> Strike {
        let calls: Vec<&Call> = self.calls.iter().filter(|call| call.can_last()).collect();
        let call = calls[random.below(calls.len())];
        let faults: Vec<Fault> = Fault::all().filter(|fault| call.can(*fault)).collect();
        let fault = faults[random.below(faults.len())];
        Strike {
            target: Target {
                number: call.number,
                occurrence: 1 + random.below(MOST_LATER),
            },
            lasting: call.can_last_as(fault) && random.below(2) == 0,
            fault,
        }
    }

    /// Runs one case; `explain` receives the calls and states.
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
            first: case.first,
            second: case.second,
            record_all: explain.is_some(),
        });
        let run = |scenario, how| run(lab, scenario, &place, how, watchdog).map_err(named);
        let (trace, first, other) = run(self.scenario, how)?;
        if let Some(text) = explain.as_deref_mut() {
            *text += &trace.text();
            if let Some(other) = &other {
                let change = self.expected.before.difference(other);
                *text += &format!("--- after the other writer:\n{change}");
            }
            *text += &told("first", &first, &self.expected);
        }
        let mut outcome = Outcome {
            case: case.clone(),
            problems: None,
            elapsed: trace.elapsed,
        };
        let hits = trace.hits();
        if hits.is_empty() {
            return Ok(outcome);
        }
        let (_, second, _) = run(self.scenario, How::Free)?;
        let cleaner = self.scenario.cleaner().filter(|_| !case.is_plain());
        let third = cleaner.map(|cleaner| run(cleaner, How::Free)).transpose()?;
        let third = third.map(|(_, ran, _)| ran);
        if let Some(text) = explain {
            *text += &told("second", &second, &self.expected);
            if let Some(third) = &third {
                *text += &told("clean's", third, &self.expected);
            }
        }
        let case = Case {
            scenario: self.scenario,
            is_plain: case.is_plain(),
            hits: &hits,
            expected: &self.expected,
            other: other.as_ref(),
            first: &first,
            second: &second,
            third: third.as_ref(),
        };
        outcome.problems = Some(case.problems());
        Ok(outcome)
    }
}

/// Runs a command. The last value is the state of the namespace after the action of another writer.
fn run(
    lab: &Lab,
    scenario: Scenario,
    place: &Place,
    how: How,
    watchdog: &Watchdog,
) -> Result<(Trace, Ran, Option<State>), String> {
    let mut command = lab.command(scenario, place)?;
    let mut seen = None;
    let mut act = |other: Other| {
        seen = Some(lab.other(other, scenario, place)?);
        Ok(())
    };
    let trace = trace::run(&mut command, how, &mut act, watchdog, LIMIT)?;
    let (stdout, stderr) = place.printed();
    let after = State::at(place)?;
    let ran = Ran {
        end: trace.end,
        stdout,
        stderr,
        after,
        is_enrolled: lab.is_enrolled(place),
    };
    Ok((trace, ran, seen))
}

fn told(which: &str, ran: &Ran, expected: &Expected) -> String {
    let Ran {
        end,
        stdout,
        stderr,
        after,
        ..
    } = ran;
    let from_before = expected.before.difference(after);
    let to_done = expected.done.difference(after);
    format!(
        "--- {which} run: {end:?}\nstdout: {stdout}\nstderr: {stderr}\nwhat changed:\n{from_before}\
         beside what it should be:\n{to_done}"
    )
}

/// Runs cases on several threads: a case spends most of its time waiting for the kernel.
pub(crate) struct Pool<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) baselines: &'a [Baseline],
    pub(crate) jobs: usize,
    /// The next number for a directory name.
    pub(crate) numbers: &'a AtomicUsize,
}

impl Pool<'_> {
    /// Runs all cases and passes each result to `done`.
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

/// A directory that is deleted on drop.
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
