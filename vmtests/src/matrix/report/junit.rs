//! `junit.xml`: a test suite for each environment, as CI systems read it.
use super::clean::line;
use super::markup::Markup;
use super::summary::{Tally, View};
use super::text::because;
use crate::matrix::model::{CaseResult, Environment, Run, Verdict};

/// The report for CI systems: `testsuites`, `testsuite` per environment, `testcase`.
#[must_use]
pub fn junit(run: &Run) -> String {
    let view = View::new(run);
    let mut m = Markup::default();
    m.verbatim("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let all = Counts::of(view.tally(|_| true), run.seconds);
    let mut attributes = vec![("name", "weir kernel matrix")];
    attributes.extend(all.attributes());
    m.element("testsuites", &attributes, |m| {
        m.newline();
        for name in &view.environments {
            suite(m, &view, name);
        }
    });
    m.newline();
    m.finish()
}

struct Counts {
    tests: String,
    failures: String,
    skipped: String,
    time: String,
}

impl Counts {
    fn of(tally: Tally, seconds: f64) -> Self {
        Self {
            tests: tally.total().to_string(),
            failures: tally.failed.to_string(),
            skipped: (tally.skipped + tally.ignored).to_string(),
            time: time(seconds),
        }
    }

    fn attributes(&self) -> [(&str, &str); 5] {
        [
            ("tests", &self.tests),
            ("failures", &self.failures),
            ("errors", "0"),
            ("skipped", &self.skipped),
            ("time", &self.time),
        ]
    }
}

fn time(seconds: f64) -> String {
    format!("{:.3}", if seconds.is_finite() { seconds } else { 0.0 })
}

fn suite(m: &mut Markup, view: &View<'_>, name: &str) {
    let tally = view.tally(|r| r.environment == name);
    let counts = Counts::of(tally, view.seconds(name).unwrap_or(0.0));
    let mut attributes = vec![("name", name), ("timestamp", &*view.run.started)];
    attributes.extend(counts.attributes());
    m.element("testsuite", &attributes, |m| {
        m.newline();
        if let Some(environment) = view.environment(name) {
            properties(m, view, environment);
        }
        for result in view.results.iter().filter(|r| r.environment == name) {
            case(m, result);
        }
    });
    m.newline();
}

fn properties(m: &mut Markup, view: &View<'_>, e: &Environment) {
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
    m.element("properties", &[], |m| {
        for (name, value) in all.iter().filter(|(_, value)| !value.is_empty()) {
            m.void("property", &[("name", name), ("value", value)]);
        }
    });
    m.newline();
}

fn case(m: &mut Markup, result: &CaseResult) {
    // CI systems group by class: the room and the test program.
    let (class, name) = result.case.rsplit_once("::").unwrap_or(("", &result.case));
    let class = format!("{}::{class}", result.environment);
    let time = time(result.seconds);
    let attributes = [
        ("classname", class.trim_end_matches(':')),
        ("name", name),
        ("time", &*time),
    ];
    m.element("testcase", &attributes, |m| match &result.verdict {
        Verdict::Passed => {}
        Verdict::Failed { text } => {
            let message = text.lines().map(line).find(|l| !l.is_empty());
            let message = message.unwrap_or_else(|| "failed, without a word".to_owned());
            m.leaf("failure", &[("message", &message)], text);
        }
        other => m.void("skipped", &[("message", &because(other))]),
    });
    m.newline();
}
