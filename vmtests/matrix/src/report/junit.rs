//! `junit.xml`: the report for CI systems, with a test suite per environment.
use super::clean::line;
use super::summary::{Tally, View};
use super::text::because;
use crate::model::{CaseResult, Environment, Run, Verdict};
use askama::Template;

#[derive(Template)]
#[template(path = "junit.xml")]
struct Suites<'a> {
    view: View<'a>,
    all: Tally,
}

/// Renders the report: `testsuites`, `testsuite` per environment, `testcase`.
pub fn junit(run: &Run) -> askama::Result<String> {
    let view = View::new(run);
    let all = view.tally(|_| true);
    Suites { view, all }.render()
}

fn time(seconds: f64) -> String {
    format!("{:.3}", if seconds.is_finite() { seconds } else { 0.0 })
}

fn properties(view: &View<'_>, e: &Environment) -> Vec<(&'static str, String)> {
    let mut all = vec![
        ("release", e.release.clone()),
        ("package", e.package.clone()),
        ("variant", e.variant.clone()),
        ("start", view.starts(&e.name)),
    ];
    all.extend(e.cold_boot.map(|s| ("cold boot seconds", time(s))));
    all.extend(e.unavailable.clone().map(|why| ("unavailable", why)));
    let sources = e.sources.iter();
    all.extend(sources.map(|(file, hash)| ("sha256", format!("{hash} {file}"))));
    all.extend(e.config.iter().map(|c| ("config", c.clone())));
    all.retain(|(_, value)| !value.is_empty());
    all
}

/// The class is the environment, the crate and the test program, because CI systems group by class.
fn class_and_name(result: &CaseResult) -> (String, &str) {
    let (class, name) = result.case.rsplit_once("::").unwrap_or(("", &result.case));
    let class = format!("{}::{class}", result.environment);
    (class.trim_end_matches(':').to_owned(), name)
}

fn first_line(text: &str) -> String {
    let message = text.lines().map(line).find(|l| !l.is_empty());
    message.unwrap_or_else(|| "failed, without a word".to_owned())
}
