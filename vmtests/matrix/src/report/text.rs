//! `matrix.txt`, and the output on a terminal. The layout is in `templates/matrix.txt`.
mod capabilities;

use super::clean::{block, count, duration, line, wrap};
use super::summary::{Reason, Tally, View, room};
use super::table::{FIRST, Tone, WIDTH, cell, paint, table};
use crate::model::{CaseResult, Run, Verdict};
use askama::Template;

/// Renders the report as text, at most 100 columns wide. `colour` adds colours for a terminal; the words stay the same.
pub fn text(run: &Run, colour: bool) -> String {
    let view = View::new(run);
    let page = Page { view, colour }.render();
    // The template has no input for which it fails.
    page.unwrap_or_else(|e| format!("no report: {e}"))
}

#[derive(Template)]
#[template(path = "matrix.txt", whitespace = "suppress")]
struct Page<'a> {
    view: View<'a>,
    colour: bool,
}

impl Page<'_> {
    fn say(&self, text: &str, tone: Tone) -> String {
        paint(text, tone, self.colour) + "\n"
    }

    fn cell(&self, text: &str, tone: Tone) -> String {
        cell(text, WIDTH, tone, self.colour)
    }

    fn heading(&self, text: &str) -> String {
        let line = self.say(&"-".repeat(text.chars().count()), Tone::Quiet);
        format!("\n{}{line}", self.say(text, Tone::Heading))
    }

    /// Wraps text; each line is indented by `indent` spaces.
    fn paragraph(&self, text: impl AsRef<str>, indent: usize, tone: Tone) -> String {
        let lines = wrap(&line(text.as_ref()), WIDTH - indent).into_iter();
        let indented = |line| format!("{}{line}", " ".repeat(indent));
        lines.map(|line| self.say(&indented(line), tone)).collect()
    }

    /// Formats the output of a test.
    fn output(&self, text: &str) -> String {
        let text = block(text);
        let lines = text.trim_end().lines().flat_map(|l| wrap(l, WIDTH - 4));
        let say = |line| self.say(format!("    {line}").trim_end(), Tone::Plain);
        lines.map(say).collect()
    }

    fn cases(&self) -> String {
        let all = self.view.tally(|_| true);
        // The column is omitted if it would be empty, to leave room for the crates.
        let columns = if all.ignored > 0 { 5 } else { 4 };
        let words = ["cases", "failed", "passed", "skipped", "ignored"];
        let mut heads = vec!["kernel"];
        heads.extend(words.iter().take(columns));
        heads.push("time");
        heads.extend(&self.view.rooms);
        let view = &self.view;
        let row = |name: &str, tone, seconds: Option<f64>, here: &dyn Fn(&CaseResult) -> bool| {
            let mut row = vec![cell(name, FIRST, tone, self.colour)];
            row.extend(self.totals(view.tally(here)).into_iter().take(columns));
            row.push(self.cell(&seconds.map_or("-".into(), duration), Tone::Quiet));
            let of_room = |of: &&str| view.tally(|r| here(r) && room(&r.case) == *of);
            row.extend(view.rooms.iter().map(of_room).map(|t| self.share(t)));
            row
        };
        let environments = view.environments.iter();
        let of = |name: &&str| {
            let here = |r: &CaseResult| r.environment == *name;
            row(name, Tone::Plain, view.seconds(name), &here)
        };
        let mut rows: Vec<_> = environments.map(of).collect();
        rows.push(row("all", Tone::Heading, Some(view.run.seconds), &|_| true));
        table(&heads, &rows, self.colour)
    }

    fn reasons(&self, kind: &str, title: &str) -> String {
        let reasons = self.view.reasons(kind);
        let text = (!reasons.is_empty()).then(|| self.heading(title));
        let mut text = text.unwrap_or_default();
        for reason in &reasons {
            text += &self.paragraph(because(reason.verdict), 0, Tone::Plain);
            text += &self.paragraph(cases(reason), 4, Tone::Quiet);
        }
        text
    }

    fn verdict(&self) -> String {
        let all = self.view.tally(|_| true);
        let parts = all.parts().into_iter().filter(|(n, _)| *n > 0);
        let parts: Vec<String> = parts.map(|(n, word)| format!("{n} {word}")).collect();
        let parts = parts.join(", ");
        let kernels = count(self.view.environments.len(), "environment");
        let mut text = "\n".to_owned();
        let lost = self.view.run.environments.iter();
        let lost = lost.filter(|e| e.unavailable.is_some());
        let lost: Vec<&str> = lost.map(|e| &*e.name).collect();
        if !lost.is_empty() {
            let lost = format!("not available, see above: {}", lost.join(", "));
            text += &self.paragraph(lost, 0, Tone::Lacking);
        }
        let (word, parts, tone) = match all {
            Tally { failed: 1.., .. } => ("FAILED", &*parts, Tone::Bad),
            Tally { passed: 1.., .. } => ("ok", &*parts, Tone::Good),
            _ if parts.is_empty() => ("NOTHING RAN", "no case", Tone::Lacking),
            _ => ("NOTHING RAN", &*parts, Tone::Lacking),
        };
        text + &self.say(&format!("{word}: {parts} in {kernels}"), tone)
    }

    fn totals(&self, t: Tally) -> [String; 5] {
        let [failed, passed, skipped, ignored] = t.parts().map(|(n, _)| n);
        [
            (t.total(), Tone::Plain),
            (failed, Tone::Bad),
            (passed, Tone::Good),
            (skipped, Tone::Lacking),
            (ignored, Tone::Lacking),
        ]
        .map(|(n, tone)| match n {
            0 => self.cell("-", Tone::Quiet),
            n => self.cell(&n.to_string(), tone),
        })
    }

    /// Passed and total: `119/121`.
    fn share(&self, t: Tally) -> String {
        let (text, tone) = match t.total() {
            0 => ("-".to_owned(), Tone::Quiet),
            all => (format!("{}/{all}", t.passed), t.tone()),
        };
        self.cell(&text, tone)
    }
}

impl Tally {
    fn tone(self) -> Tone {
        match self {
            Self { failed: 1.., .. } => Tone::Bad,
            t if t.passed == t.total() => Tone::Good,
            _ => Tone::Lacking,
        }
    }
}

fn start(result: &CaseResult) -> &'static str {
    if result.restored { ", restored" } else { "" }
}

/// The reason why a case did not run, in one sentence.
pub(super) fn because(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Skipped(skip) => {
            let since = match &*skip.since {
                "" => "no kernel needs to have it".to_owned(),
                since => format!("every kernel from {since} on must have it"),
            };
            format!("{} ({since}): {}", skip.probe, skip.reason)
        }
        Verdict::Ignored { reason } => reason.clone(),
        Verdict::Failed { text } => text.clone(),
        Verdict::Passed => "passed".to_owned(),
    }
}

/// The cases of a reason, with their environments unless these are the same for every case.
fn cases(reason: &Reason<'_>) -> String {
    let environments = reason.environments();
    let mut all = reason.cases.iter();
    let same = all.all(|(_, e)| e.len() == environments.len());
    let names = reason.cases.iter().map(|(case, on)| match same {
        true => (*case).to_owned(),
        false => format!("{case} (on {})", on.join(", ")),
    });
    let names: Vec<String> = names.collect();
    let n = count(reason.cases.len(), "case");
    format!("{n} on {}: {}", environments.join(", "), names.join(", "))
}
