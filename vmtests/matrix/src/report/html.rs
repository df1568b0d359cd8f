//! `index.html`: one page without scripts or other files, for a browser. Its layout is in `templates/index.html`.
use super::clean::{count, duration, shorten};
use super::summary::{Feature, Reason, Tally, View, alike, instead, names, parts, room, version};
use crate::model::{CaseResult, Environment, Run, Verdict};
use askama::Template;

#[derive(Template)]
#[template(path = "index.html")]
struct Page<'a> {
    style: &'static str,
    view: &'a View<'a>,
    /// The CSS class and the text of the verdict.
    verdict: (&'static str, String),
    all: Tally,
    cases: usize,
    failures: Vec<(&'a CaseResult, &'a str)>,
    rooms: Vec<Room<'a>>,
    groups: Vec<(&'a str, Vec<Feature<'a>>)>,
    reasons: Vec<Reason<'a>>,
}

/// The cases of one crate.
struct Room<'a> {
    name: &'a str,
    caption: String,
    cases: usize,
    tally: Tally,
    /// The tests by test program.
    programs: Vec<(&'a str, Vec<&'a str>)>,
}

/// A row of a feature table, for all features with the same answers.
struct Kind<'a> {
    shown: String,
    folded: usize,
    rest: String,
    /// What weir does if the feature is lacking.
    way: &'a str,
    answers: Vec<&'static str>,
}

/// Renders the page: the outcome, failures, cases, capabilities, skips, kernels.
pub fn html(run: &Run) -> askama::Result<String> {
    let view = View::new(run);
    let rooms: Vec<Room<'_>> = view.rooms.iter().map(|of| one_room(&view, of)).collect();
    let reasons = ["skipped", "ignored"].into_iter();
    let page = Page {
        style: include_str!("../../templates/style.css"),
        verdict: verdict(&view),
        all: view.tally(|_| true),
        cases: rooms.iter().map(|r| r.cases).sum(),
        failures: view.failures(),
        groups: view.features(),
        reasons: reasons.flat_map(|kind| view.reasons(kind)).collect(),
        rooms,
        view: &view,
    };
    page.render()
}

fn verdict(view: &View<'_>) -> (&'static str, String) {
    let all = view.tally(|_| true);
    let mut environments = view.run.environments.iter();
    if all.failed > 0 {
        ("bad", format!("{} failed", count(all.failed, "case")))
    } else if all.passed == 0 {
        ("none", "Nothing ran".to_owned())
    } else if environments.any(|e| e.unavailable.is_some()) {
        ("none", "Passed where it ran".to_owned())
    } else if !view.run.selection.is_empty() {
        ("good", "Passed, as far as it was asked for".to_owned())
    } else {
        ("good", "Passed".to_owned())
    }
}

fn one_room<'a>(view: &View<'a>, name: &'a str) -> Room<'a> {
    let cases = view.cases(name);
    let programs = cases.chunk_by(|a, b| program(a) == program(b));
    let named = |of: &[&'a str]| (of.first().map_or("", |c| program(c)), of.to_vec());
    Room {
        name,
        caption: format!("The cases of {name} on each kernel"),
        cases: cases.len(),
        tally: view.tally(|r| room(&r.case) == name),
        programs: programs.map(named).collect(),
    }
}

/// Splits `6.12-no-xtables` into the kernel and the variant.
fn kernel_and_variant(name: &str) -> (&str, &str) {
    name.find('-').map_or((name, ""), |at| name.split_at(at))
}

fn program(case: &str) -> &str {
    parts(case).1
}

fn test(case: &str) -> &str {
    match parts(case).2 {
        "" => "(no name)",
        test => test,
    }
}

/// The tallies of one environment: of each crate, then of all.
fn tallies(view: &View<'_>, name: &str) -> Vec<Tally> {
    let of = |of: &&str| view.tally(|r| r.environment == name && room(&r.case) == *of);
    let all = std::iter::once(view.tally_of(name));
    view.rooms.iter().map(of).chain(all).collect()
}

impl Tally {
    fn tiles(self) -> [(usize, &'static str); 4] {
        let [failed, passed, skipped, ignored] = self.parts();
        [passed, failed, skipped, ignored]
    }

    fn shown(self) -> impl Iterator<Item = (usize, &'static str)> {
        self.parts().into_iter().filter(|(n, _)| *n > 0)
    }

    fn class(self) -> &'static str {
        match self {
            Self { failed: 1.., .. } => "has failed",
            t if t.total() == 0 => "absent",
            Self { passed: 1.., .. } => "has passed",
            _ => "has ignored",
        }
    }
}

fn cold_boot(e: &Environment) -> String {
    let none = || "none in this run".to_owned();
    e.cold_boot.map_or_else(none, duration)
}

impl View<'_> {
    fn time(&self, name: &str) -> String {
        self.seconds(name).map_or("-".to_owned(), duration)
    }

    fn short_version(&self, name: &str) -> String {
        shorten(self.environment(name).map_or("", version), 60)
    }

    /// The result of a case in each environment, as a CSS class and a word.
    fn outcomes(&self, case: &str) -> Vec<(&'static str, &'static str)> {
        let results = self.environments.iter().map(|name| self.result(name, case));
        let outcomes = results.map(|result| match result.map(|r| &r.verdict) {
            None => ("absent", "-"),
            Some(Verdict::Passed) => ("passed", "pass"),
            Some(Verdict::Failed { .. }) => ("failed", "FAIL"),
            Some(Verdict::Skipped(_)) => ("skipped", "skip"),
            Some(Verdict::Ignored { .. }) => ("ignored", "ignored"),
        });
        outcomes.collect()
    }
}

impl<'a> Reason<'a> {
    /// The columns of a skip: the feature, the first kernel that must have it, the reason.
    fn columns(&self) -> (&'a str, &'a str, &'a str) {
        let (probe, since, reason) = match self.verdict {
            Verdict::Skipped(s) => (&*s.probe, &*s.since, &*s.reason),
            Verdict::Ignored { reason } => ("not tried", "", &**reason),
            Verdict::Passed | Verdict::Failed { .. } => ("", "", ""),
        };
        let or = |text: &'a str, other| if text.is_empty() { other } else { text };
        (or(probe, "not the kernel's"), or(since, "-"), reason)
    }
}

fn any_differs(groups: &[(&str, Vec<Feature<'_>>)]) -> bool {
    groups.iter().any(|(_, f)| f.iter().any(Feature::differs))
}

fn how_many_differ(features: &[Feature<'_>]) -> usize {
    features.iter().filter(|f| f.differs()).count()
}

/// The features in which kernels differ; features with the same answers share a row.
fn differing<'a>(features: &[Feature<'a>]) -> Vec<Kind<'a>> {
    let kinds = alike(features, true);
    kinds.filter_map(|kind| row(&kind)).collect()
}

/// All features, each in its own row.
fn each<'a>(features: &[Feature<'a>]) -> Vec<Kind<'a>> {
    features.iter().filter_map(|f| row(&[f])).collect()
}

/// How many names of a row are shown before the fold.
const SHOWN: usize = 2;

fn row<'a>(kind: &[&Feature<'a>]) -> Option<Kind<'a>> {
    let first = kind.first()?;
    let (shown, folded) = kind.split_at(kind.len().min(SHOWN));
    let way = instead(first.remark());
    let same = kind.iter().all(|f| instead(f.remark()) == way);
    Some(Kind {
        shown: names(shown),
        folded: folded.len(),
        rest: names(folded),
        way: if same && first.differs() { way } else { "" },
        answers: first.words(),
    })
}
