//! The output of the program.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::check::arguments::{Arguments, What};
use crate::check::calls;
use crate::check::fault::CaseId;
use crate::check::judge::Problem;
use crate::check::run::{Cases, Outcome};

/// Delay between lines of progress.
const PACE: Duration = Duration::from_secs(20);

/// Prints the numbers of cases, before the first case runs.
pub(crate) fn begin(scenarios: usize, all: &Cases, arguments: &Arguments) {
    let Cases {
        single,
        lasting,
        double,
        others,
    } = all;
    let [single, lasting, double, others] = [single, lasting, double, others].map(Vec::len);
    println!(
        "{scenarios} scenarios have {single} single faults, {lasting} lasting ones, {double} pairs, and {others} places \
         for another writer"
    );
    match arguments.what {
        What::Random(count) => println!(
            "{count} by chance: --seed {} takes the same again",
            arguments.seed
        ),
        _ => println!("second faults by chance: --seed {}", arguments.seed),
    }
}

/// Prints the result of one case; returns whether it passed.
pub(crate) fn one(outcome: &Outcome) -> bool {
    match &outcome.problems {
        None => println!("{}: the call was not made", outcome.case),
        Some(problems) if problems.is_empty() => println!("{}: ok", outcome.case),
        Some(problems) => problems
            .iter()
            .for_each(|p| println!("{}: FAILED: {p}", outcome.case)),
    }
    outcome.problems.as_ref().is_some_and(Vec::is_empty)
}

/// Collects the results.
pub(crate) struct Report {
    total: usize,
    done: usize,
    failed: usize,
    not_made: usize,
    slowest: Option<(Duration, CaseId)>,
    /// The failed cases by problem, and by command, call and fault.
    classes: BTreeMap<(Problem, String), Vec<CaseId>>,
    begun: Instant,
    told: Instant,
}

impl Report {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            total,
            done: 0,
            failed: 0,
            not_made: 0,
            slowest: None,
            classes: BTreeMap::new(),
            begun: Instant::now(),
            told: Instant::now(),
        }
    }

    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.done += 1;
        let slowest = self
            .slowest
            .as_ref()
            .map_or(Duration::ZERO, |(time, _)| *time);
        if outcome.elapsed > slowest {
            self.slowest = Some((outcome.elapsed, outcome.case.clone()));
        }
        match outcome.problems {
            None => self.not_made += 1,
            Some(problems) => {
                if !problems.is_empty() {
                    self.failed += 1;
                }
                for problem in problems {
                    println!("FAILED {}: {problem}", outcome.case);
                    let kind = outcome.case.scenario.split('-').next().unwrap_or_default();
                    let mut class = kind.to_owned();
                    for strike in outcome.case.strikes() {
                        let plus = if strike.lasting { "+" } else { "" };
                        let call = calls::name(strike.target.number);
                        class += &format!(" {call}{plus} {}", strike.fault);
                    }
                    let cases = self.classes.entry((problem, class)).or_default();
                    cases.push(outcome.case.clone());
                }
            }
        }
        if self.told.elapsed() > PACE {
            self.told = Instant::now();
            println!(
                "{} of {} cases, {} failed",
                self.done, self.total, self.failed
            );
        }
    }

    /// Prints the summary; returns whether no case failed.
    pub(crate) fn finish(self) -> bool {
        for ((problem, class), cases) in &self.classes {
            let first = cases.first().map(ToString::to_string).unwrap_or_default();
            println!("{:6} {problem}: {class}, as {first}", cases.len());
        }
        if let Some((time, case)) = &self.slowest {
            println!("the slowest took {:.1} s: {case}", time.as_secs_f64());
        }
        if self.not_made > 0 {
            println!(
                "{} calls were not made a second time and had no fault",
                self.not_made
            );
        }
        println!(
            "{} cases, {} failed, {:.0} s",
            self.done,
            self.failed,
            self.begun.elapsed().as_secs_f64()
        );
        self.failed == 0
    }
}
