//! The kernel matrix: runs every case in every environment and writes a report.
//!
//! The crate runs the tests of the other crates on this machine and, through [`weir_vm`], on real distribution kernels, each
//! case in a fresh guest. It never omits a case from an environment without a reason, and never takes a missing result for
//! success.
//!
//! - [`Artifacts`] are the test programs, [`Case`]s the tests in them, [`TestKernel`]s the environments.
//! - [`Matrix`] decides which case belongs to which environment, and runs the cases.
//! - [`report`] formats the results.
//!
//! Start reading at [`Matrix::pairs`].
#![forbid(unsafe_code)]

pub mod artifacts;
mod capability;
pub mod case;
pub mod cli;
pub mod host;
pub mod marks;
pub mod model;
mod place;
mod plan;
mod pool;
mod progress;
mod ran;
pub mod report;
mod run;
mod ship;
pub mod skip;

pub use artifacts::Artifacts;
pub use case::Case;
pub use place::{HOST, TestKernel};
pub use plan::Plan;

use case::What;
use model::{CaseResult, Run, Verdict};
use pool::{Kind, Watch, in_parallel};
use progress::Progress;
use run::{Done, Runner};
use skip::Skip;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use weir_vm::{Arch, Cache, Error, Kernels, Options, Result, note};

/// The variable with the required environments: their names, separated by commas.
const REQUIRE: &str = "VMTESTS_REQUIRE";

/// A plan with everything that is needed to run it.
#[derive(Debug)]
pub struct Matrix<'a> {
    runner: Runner<'a>,
    /// The environments.
    pub places: Vec<TestKernel>,
    /// The cases.
    pub cases: Vec<Case>,
    plan: Plan,
}

impl<'a> Matrix<'a> {
    /// Prepares the environments and lists the cases.
    pub fn new(cache: &'a Cache, artifacts: Artifacts, plan: Plan) -> Result<Self> {
        let kernels = Kernels::open(cache, None)?;
        let mut places = Vec::new();
        if plan.is_on_host {
            places.push(TestKernel::host());
        }
        for name in plan.environments(&kernels)? {
            places.push(TestKernel::guest(&kernels, &name)?);
        }
        let options: Options = run::options(plan.program.as_deref())?;
        if let Err(e) = weir_vm::find_qemu(options.qemu.as_deref(), cache, Arch::HOST) {
            let guests = places.iter_mut().filter(|p| !p.is_host());
            guests.for_each(|p| p.about.unavailable = Some(format!("{}: {}", e.reason, e.remedy)));
        }
        if plan.selection.is_empty() {
            all_are_there(&required(), &places)?;
        }
        TestKernel::mark_ends(&mut places);
        let cases = Case::all(&artifacts)?;
        Ok(Self {
            runner: Runner::new(cache, artifacts, &cases, &mut places, options)?,
            cases,
            places,
            plan,
        })
    }

    /// The pairs of environment and case that the plan selects, as indexes into the two lists.
    pub fn pairs(&self) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for (p, place) in self.places.iter().enumerate() {
            for (c, case) in self.cases.iter().enumerate() {
                let name = || format!("{}::{}", place.name(), case.name);
                let is_wanted = self.plan.filter.as_ref().is_none_or(|f| name().contains(f));
                if is_wanted && Runner::belongs(case, place) {
                    pairs.push((p, c));
                }
            }
        }
        pairs
    }

    /// The reason if a case cannot run and its environment is not required.
    pub fn why_ignored(&self, place: usize, case: usize) -> Option<String> {
        let (place, case) = (self.places.get(place)?, self.cases.get(case)?);
        let why = self.runner.impossible(case, place);
        why.filter(|_| !is_required(place))
    }

    /// Runs one case.
    pub fn run_one(&self, place: usize, case: usize) -> Option<CaseResult> {
        let (place, case) = (self.places.get(place)?, self.cases.get(case)?);
        let mut result = self.runner.run(case, place).result;
        demand(place, &mut result);
        Some(result)
    }

    /// Runs all cases and shows the progress.
    pub fn run(&self) -> Result<Run> {
        let started = Instant::now();
        let began = SystemTime::now();
        let mut pairs = self.pairs();
        let (progress, kept) = self.progress()?;
        pairs.retain(|pair| !kept.iter().any(|(p, c, _)| pair == &(*p, *c)));
        let watch = Watch::new(pairs.len());
        let work = |&(p, c): &(usize, usize)| {
            let (Some(place), Some(case)) = (self.places.get(p), self.cases.get(c)) else {
                return None;
            };
            watch.begin(place.name(), &case.name);
            let mut done = self.runner.run(case, place);
            demand(place, &mut done.result);
            watch.end(&done.result);
            // A failed write only means that a stopped run starts from the beginning.
            if let Some(Err(e)) = progress.as_ref().map(|progress| progress.add(&done)) {
                note(&e.to_string());
            }
            Some((p, c, done))
        };
        // Cases on the host mostly wait for timers and processes.
        let kind = |&(p, c): &(usize, usize)| {
            let is_alone = self.cases.get(c).is_some_and(|c| c.what == What::Alone);
            match self.places.get(p).is_some_and(TestKernel::is_host) {
                true => Kind::Beside,
                false => Kind::Grouped((p, is_alone)),
            }
        };
        let mut done = in_parallel(self.plan.jobs, &pairs, kind, work);
        drop(watch);
        done.extend(kept);
        done.sort_by_key(|(p, c, _)| (*p, *c));
        let mut run = self.report(began, started.elapsed(), done);
        if self.plan.selection.is_empty() {
            self.no_case_without_a_kernel(&mut run);
        }
        Ok(run)
    }

    /// Removes the progress file; call it when the report has been written.
    pub fn end(&self) -> Result<()> {
        self.plan.progress.as_deref().map_or(Ok(()), progress::end)
    }

    /// Opens the progress file and returns the results that need not be run again.
    fn progress(&self) -> Result<(Option<Progress>, Vec<Ended>)> {
        let Some(path) = &self.plan.progress else {
            return Ok((None, Vec::new()));
        };
        let (artifacts, selection) = (&self.runner.artifacts, &self.plan.selection);
        let identity = progress::identity(artifacts, &self.cases, selection)?;
        let (progress, done) = Progress::open(path, &identity, self.plan.resume)?;
        let kept = done.into_iter().filter_map(|done| {
            let place = |p: &TestKernel| p.name() == done.result.environment;
            let case = |c: &Case| c.name == done.result.case;
            let place = self.places.iter().position(place)?;
            Some((place, self.cases.iter().position(case)?, done))
        });
        Ok((Some(progress), kept.collect()))
    }

    fn report(&self, began: SystemTime, took: Duration, done: Vec<Ended>) -> Run {
        let mut run = Run {
            started: utc(began),
            seconds: took.as_secs_f64(),
            host: place::release(),
            qemu: self.qemu_version(),
            accelerator: "tcg".to_owned(),
            selection: self.plan.selection.clone(),
            environments: self.places.iter().map(|p| p.about.clone()).collect(),
            results: Vec::new(),
            capabilities: Vec::new(),
        };
        for (place, _, done) in done {
            if let Some(about) = run.environments.get_mut(place) {
                about.cold_boot = about.cold_boot.or(done.cold_boot);
            }
            run.results.push(done.result);
            run.capabilities.extend(done.capabilities);
        }
        if !self.plan.selection.is_empty() {
            // Removes environments that have no selected case.
            let ran = |name: &str| run.results.iter().any(|r| r.environment == name);
            run.environments.retain(|e| ran(&e.name));
        }
        run
    }

    fn qemu_version(&self) -> String {
        let runner = &self.runner;
        let find = weir_vm::find_qemu(runner.options.qemu.as_deref(), runner.cache, Arch::HOST);
        let output = find.map(|qemu| Command::new(qemu).arg("--version").output());
        let Ok(Ok(output)) = output else {
            return String::new();
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let first = text.lines().next().unwrap_or_default();
        first.replace("QEMU emulator version ", "")
    }

    /// Fails a case that every kernel skips, since it then tests nothing; the last environment gets the failure.
    fn no_case_without_a_kernel(&self, run: &mut Run) {
        let guests = run.environments.iter();
        let guests = guests.filter(|e| e.name != HOST && e.unavailable.is_none());
        let guests: Vec<&str> = guests.map(|e| e.name.as_str()).collect();
        for case in &self.cases {
            let of_case =
                |r: &CaseResult| r.case == case.name && guests.contains(&r.environment.as_str());
            let skipped = |r: &CaseResult| matches!(r.verdict, Verdict::Skipped(_));
            if run.results.iter().filter(|r| of_case(r)).all(skipped)
                && let Some(last) = run.results.iter_mut().rfind(|r| of_case(r))
                && let Verdict::Skipped(Skip { reason, probe, .. }) = &last.verdict
            {
                let why = "no kernel of the matrix runs this case. The last one lacks";
                let text = format!("{why} {probe}: {reason}");
                last.verdict = Verdict::Failed { text };
            }
        }
    }
}

/// The result of a pair of [`Matrix::pairs`].
type Ended = (usize, usize, Done);

/// The value of [`REQUIRE`].
fn required() -> String {
    std::env::var(REQUIRE).unwrap_or_default()
}

/// Whether this is a name of the environment.
fn is_named(place: &TestKernel, name: &str) -> bool {
    name == place.name() || (name == "newest" && place.is_newest)
}

/// Whether the environment is required.
fn is_required(place: &TestKernel) -> bool {
    required().split(',').any(|name| is_named(place, name))
}

/// Refuses a required name without an environment: it would demand nothing. A part of the matrix may lack some of them.
fn all_are_there(required: &str, places: &[TestKernel]) -> Result<()> {
    let is_there = |name: &str| places.iter().any(|place| is_named(place, name));
    let mut names = required.split(',').filter(|name| !name.is_empty());
    let Some(unknown) = names.find(|name| !is_there(name)) else {
        return Ok(());
    };
    let names: Vec<&str> = places.iter().map(TestKernel::name).collect();
    let reason = format!("no environment has the name {unknown:?}");
    let remedy = format!("Environments: {}; or newest", names.join(", "));
    Err(Error::new(format!("{REQUIRE}={required}"), reason, remedy))
}

/// Turns an ignored case into a failure if its environment is required.
fn demand(place: &TestKernel, result: &mut CaseResult) {
    if let (true, Verdict::Ignored { reason }) = (is_required(place), &result.verdict) {
        let text = format!("{REQUIRE} demands {}, and {reason}", place.name());
        result.verdict = Verdict::Failed { text };
    }
}

/// The time in UTC, as `2026-01-31T12:00:00Z`.
fn utc(time: SystemTime) -> String {
    // Times outside jiff's range (years -9999 to 9999) give an empty text.
    jiff::Timestamp::try_from(time).map_or_else(|_| String::new(), |time| format!("{time:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_required_environment_must_be_one_of_the_matrix() {
        let mut places = vec![TestKernel::host(), TestKernel::host()];
        (places[1].about.name, places[1].is_newest) = ("7.2".to_owned(), true);
        for good in ["", "7.2", "host,newest", "7.2,"] {
            all_are_there(good, &places).unwrap();
        }
        for bad in ["6.81", "7.2,6.81", "7.2, newest"] {
            let e = all_are_there(bad, &places).unwrap_err().to_string();
            assert!(e.contains(bad) && e.contains("host, 7.2; or newest"), "{e}");
        }
        places[1].is_newest = false;
        assert!(all_are_there("newest", &places).is_err());
    }

    #[test]
    fn dates() {
        let at = |s| utc(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(at(1_795_219_859), "2026-11-21T00:10:59Z");
    }
}
