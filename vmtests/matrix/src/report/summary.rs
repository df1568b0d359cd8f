//! Aggregations of a run for the report: totals, crates, features, groups of skips.
use crate::artifacts::order;
use crate::model::{Capability, CaseResult, Environment, Run, Verdict};
use indexmap::{IndexMap, IndexSet};
use std::collections::{BTreeMap, HashMap};

/// The number of cases per verdict.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: usize,
    pub(super) failed: usize,
    pub(super) skipped: usize,
    pub(super) ignored: usize,
}

impl Tally {
    fn add(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Failed { .. } => self.failed += 1,
            Verdict::Skipped(_) => self.skipped += 1,
            Verdict::Ignored { .. } => self.ignored += 1,
        }
    }

    /// The number of all cases.
    pub(super) fn total(self) -> usize {
        self.passed + self.failed + self.skipped + self.ignored
    }

    /// The counts with their words, failures first.
    pub(super) fn parts(self) -> [(usize, &'static str); 4] {
        [
            (self.failed, "failed"),
            (self.passed, "passed"),
            (self.skipped, "skipped"),
            (self.ignored, "ignored"),
        ]
    }
}

/// The word for a verdict.
pub(super) fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "passed",
        Verdict::Failed { .. } => "failed",
        Verdict::Skipped(_) => "skipped",
        Verdict::Ignored { .. } => "ignored",
    }
}

/// The version of an environment's package, without the name; without a package, the kernel's release.
pub(super) fn version(e: &Environment) -> &str {
    let version = e.package.rsplit(' ').next().unwrap_or_default();
    match version.starts_with(|c: char| c.is_ascii_digit()) {
        true => version,
        false => &e.release,
    }
}

/// What weir does if the feature is lacking. In the remark, an error of the kernel may precede it.
pub(super) fn instead(remark: &str) -> &str {
    remark.rsplit("Instead: ").next().unwrap_or_default()
}

/// The answers about one feature in every environment.
pub(super) struct Feature<'a> {
    pub(super) name: &'a str,
    /// In the order of [`View::environments`]; `None` where the feature was not probed.
    pub(super) answers: Vec<Option<&'a Capability>>,
}

impl<'a> Feature<'a> {
    /// The answers as words: `have`, `lack`, `unknown`, and `-` where the feature was not probed.
    pub(super) fn words(&self) -> Vec<&'static str> {
        let word = |answer: &Option<&Capability>| match answer.map(|c| &*c.answer) {
            None => "-",
            Some("have") => "have",
            Some("lack") => "lack",
            Some(_) => "unknown",
        };
        self.answers.iter().map(word).collect()
    }

    /// Whether environments differ in their answers.
    pub(super) fn differs(&self) -> bool {
        let given: IndexSet<&str> = self.words().into_iter().filter(|a| *a != "-").collect();
        given.len() > 1
    }

    /// The remark of an environment that lacks the feature, else any remark.
    pub(super) fn remark(&self) -> &'a str {
        let answers = || self.answers.iter().flatten();
        let given = || answers().filter(|c| !c.remark.is_empty());
        let lack = given().find(|c| c.answer != "have");
        lack.or_else(|| given().next()).map_or("", |c| &c.remark)
    }
}

/// The features in which kernels differ, or the others, grouped by their answers in all environments and ordered by the
/// first feature of each group. One omission of a variant often affects dozens of features.
pub(super) fn alike<'f, 'a>(
    features: &'f [Feature<'a>],
    differ: bool,
) -> impl Iterator<Item = Vec<&'f Feature<'a>>> {
    let mut kinds = IndexMap::<_, Vec<_>>::new();
    for feature in features.iter().filter(|f| f.differs() == differ) {
        kinds.entry(feature.words()).or_default().push(feature);
    }
    kinds.into_values()
}

/// The names of the features, separated by commas.
pub(super) fn names(features: &[&Feature<'_>]) -> String {
    let names: Vec<&str> = features.iter().map(|f| f.name).collect();
    names.join(", ")
}

/// A reason for which cases did not run, in all environments.
pub(super) struct Reason<'a> {
    /// The verdict of all its cases.
    pub(super) verdict: &'a Verdict,
    /// The environments of each case.
    pub(super) cases: Vec<(&'a str, Vec<&'a str>)>,
}

impl Reason<'_> {
    /// All environments, without duplicates.
    pub(super) fn environments(&self) -> Vec<&str> {
        let all = self.cases.iter().flat_map(|(_, e)| e).copied();
        let once: IndexSet<&str> = all.collect();
        once.into_iter().collect()
    }
}

/// A run with its indexes.
pub(super) struct View<'a> {
    pub(super) run: &'a Run,
    /// All environments: those that the run lists, then others that occur in results.
    pub(super) environments: IndexSet<&'a str>,
    /// The crates of the cases: those of the matrix in dependency order, then others by name.
    pub(super) rooms: Vec<&'a str>,
    /// The results by environment, then by case; a run completes them in any order.
    pub(super) results: Vec<&'a CaseResult>,
    by_name: HashMap<(&'a str, &'a str), &'a CaseResult>,
}

/// The crate, the test program and the test of `crate::program::test`; the program may be empty.
pub(super) fn parts(case: &str) -> (&str, &str, &str) {
    let (room, rest) = case.split_once("::").unwrap_or(("other", case));
    let (program, test) = rest.split_once("::").unwrap_or(("", rest));
    (room, program, test)
}

pub(super) fn room(case: &str) -> &str {
    parts(case).0
}

impl<'a> View<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
        let known = run.environments.iter().map(|e| &*e.name);
        let of_results = run.results.iter().map(|r| &*r.environment);
        let of_capabilities = run.capabilities.iter().map(|c| &*c.environment);
        let environments: IndexSet<&str> = known.chain(of_results).chain(of_capabilities).collect();
        let mut rooms: Vec<&str> = run.results.iter().map(|r| room(&r.case)).collect();
        rooms.sort_unstable_by_key(|room| (order(room), *room));
        rooms.dedup();
        let mut results: Vec<&CaseResult> = run.results.iter().collect();
        results.sort_by_key(|r| (environments.get_index_of(&*r.environment), &r.case));
        let named = results.iter().map(|r| ((&*r.environment, &*r.case), *r));
        Self {
            run,
            environments,
            rooms,
            by_name: named.collect(),
            results,
        }
    }

    /// The description of an environment.
    pub(super) fn environment(&self, name: &str) -> Option<&'a Environment> {
        self.run.environments.iter().find(|e| e.name == name)
    }

    /// The result of a case in an environment.
    pub(super) fn result(&self, environment: &str, case: &str) -> Option<&'a CaseResult> {
        self.by_name.get(&(environment, case)).copied()
    }

    /// The cases of a crate, sorted.
    pub(super) fn cases(&self, of: &str) -> Vec<&'a str> {
        let all = self.run.results.iter().map(|r| &*r.case);
        let mut cases: Vec<&str> = all.filter(|c| room(c) == of).collect();
        cases.sort_unstable();
        cases.dedup();
        cases
    }

    /// Counts the results that `wanted` accepts.
    pub(super) fn tally(&self, wanted: impl Fn(&CaseResult) -> bool) -> Tally {
        let mut tally = Tally::default();
        for result in self.run.results.iter().filter(|r| wanted(r)) {
            tally.add(&result.verdict);
        }
        tally
    }

    /// Counts the results of an environment.
    pub(super) fn tally_of(&self, environment: &str) -> Tally {
        self.tally(|r| r.environment == environment)
    }

    /// The results of an environment, by case.
    pub(super) fn results_of(&self, environment: &str) -> impl Iterator<Item = &'a CaseResult> {
        let results = self.results.iter().copied();
        results.filter(move |r| r.environment == environment)
    }

    /// The sum of the durations of an environment's cases in seconds; `None` if none ran.
    pub(super) fn seconds(&self, environment: &str) -> Option<f64> {
        let ran = self.ran(environment);
        (!ran.is_empty()).then(|| ran.iter().map(|r| r.seconds).sum())
    }

    /// A description of how the machines of an environment were started.
    pub(super) fn starts(&self, environment: &str) -> String {
        let ran = self.ran(environment);
        let restored = ran.iter().filter(|r| r.restored).count();
        let cold = ran.len() - restored;
        let boot = self.environment(environment).and_then(|e| e.cold_boot);
        match (restored, cold, boot) {
            (0, 0, None) => "nothing ran".to_owned(),
            // This machine: nothing was booted.
            (0, _, None) => "ran as it is".to_owned(),
            (.., None) => format!("{restored} restored, {cold} booted; the saved state was there"),
            (_, 0, Some(_)) => format!("{restored} restored from a state saved after a cold boot"),
            (_, _, Some(_)) => format!("{restored} restored, {cold} booted"),
        }
    }

    fn ran(&self, environment: &str) -> Vec<&'a CaseResult> {
        let ran = |r: &&CaseResult| matches!(r.verdict, Verdict::Passed | Verdict::Failed { .. });
        self.results_of(environment).filter(ran).collect()
    }

    /// The failures, by environment.
    pub(super) fn failures(&self) -> Vec<(&'a CaseResult, &'a str)> {
        let failed = |r: &'a CaseResult| match &r.verdict {
            Verdict::Failed { text } => Some((r, &**text)),
            _ => None,
        };
        self.results.iter().filter_map(|r| failed(r)).collect()
    }

    /// The reasons of one kind (`skipped`, `ignored`), by environment.
    pub(super) fn reasons(&self, kind: &str) -> Vec<Reason<'a>> {
        let mut reasons = IndexMap::<_, BTreeMap<&str, Vec<&str>>>::new();
        for result in self.results.iter().filter(|r| word(&r.verdict) == kind) {
            let cases = reasons.entry(&result.verdict).or_default();
            let of_case = cases.entry(&result.case).or_default();
            of_case.push(&result.environment);
        }
        let reasons = reasons.into_iter().map(|(verdict, cases)| Reason {
            verdict,
            cases: cases.into_iter().collect(),
        });
        reasons.collect()
    }

    /// All features by group, in the order of the probes.
    pub(super) fn features(&self) -> Vec<(&'a str, Vec<Feature<'a>>)> {
        let mut groups = IndexMap::<&str, IndexMap<&str, Feature<'_>>>::new();
        for capability in &self.run.capabilities {
            let (group, name) = (&*capability.group, &*capability.name);
            let group = groups.entry(group).or_default();
            let feature = group.entry(name).or_insert_with(|| Feature {
                name,
                answers: vec![None; self.environments.len()],
            });
            let at = self.environments.get_index_of(&*capability.environment);
            if let Some(slot) = at.and_then(|at| feature.answers.get_mut(at)) {
                *slot = Some(capability);
            }
        }
        let groups = groups.into_iter();
        let groups = groups.map(|(name, of)| (name, of.into_values().collect()));
        groups.collect()
    }
}
