//! `matrix.txt`, and what a terminal shows.
mod capabilities;

use super::clean::{count, duration, line, wrap};
use super::summary::{Reason, Tally, View, room};
use super::table::{Cell, Tone, WIDTH, cell, paint, table};
use crate::model::{Environment, Run, Verdict};

/// The whole report as text, at most 100 columns wide. With `colour` for a terminal; words say the same.
#[must_use]
pub fn text(run: &Run, colour: bool) -> String {
    let mut page = Page {
        view: View::new(run),
        out: String::new(),
        colour,
    };
    page.title();
    page.cases();
    page.capabilities();
    page.kernels();
    page.reasons("skipped", "Skipped");
    page.reasons("ignored", "Could not be tried");
    // Last, because a terminal shows the end.
    page.failures();
    page.verdict();
    page.out
}

struct Page<'a> {
    view: View<'a>,
    out: String,
    colour: bool,
}

impl Page<'_> {
    fn say(&mut self, text: &str, tone: Tone) {
        self.out.push_str(&paint(text, tone, self.colour));
        self.out.push('\n');
    }

    fn heading(&mut self, text: &str) {
        self.out.push('\n');
        self.say(text, Tone::Heading);
        self.say(&"-".repeat(text.chars().count()), Tone::Quiet);
    }

    /// Wrapped, each line after `indent` spaces.
    fn paragraph(&mut self, text: &str, indent: usize, tone: Tone) {
        for line in wrap(&line(text), WIDTH - indent) {
            self.say(&format!("{}{line}", " ".repeat(indent)), tone);
        }
    }

    fn title(&mut self) {
        let run = self.view.run;
        self.say("Kernel matrix", Tone::Heading);
        let about = format!(
            "{}, {} in all. QEMU {} ({}) on Linux {}.",
            run.started,
            duration(run.seconds),
            run.qemu,
            run.accelerator,
            run.host
        );
        self.paragraph(&about, 0, Tone::Plain);
        if !run.selection.is_empty() {
            self.paragraph(&format!("A part only: {}", run.selection), 0, Tone::Lacking);
        }
    }

    fn cases(&mut self) {
        self.heading("Cases");
        let all = self.view.tally(|_| true);
        // A column of dashes would take the place of a room.
        let columns = if all.ignored > 0 { 5 } else { 4 };
        let words = ["cases", "failed", "passed", "skipped", "ignored"];
        let mut heads = vec!["kernel"];
        heads.extend(words.iter().take(columns));
        heads.push("time");
        heads.extend(&self.view.rooms);
        let mut rows = Vec::new();
        for name in &self.view.environments {
            let here = self.view.tally(|r| r.environment == *name);
            let mut row = vec![cell(name, Tone::Plain)];
            row.extend(totals(here).into_iter().take(columns));
            let seconds = self.view.seconds(name);
            row.push(cell(&seconds.map_or("-".into(), duration), Tone::Quiet));
            for of in &self.view.rooms {
                let tally = self
                    .view
                    .tally(|r| r.environment == *name && room(&r.case) == *of);
                row.push(share(tally));
            }
            rows.push(row);
        }
        let mut row = vec![cell("all", Tone::Heading)];
        row.extend(totals(all).into_iter().take(columns));
        row.push(cell(&duration(self.view.run.seconds), Tone::Quiet));
        row.extend(
            self.view
                .rooms
                .iter()
                .map(|of| share(self.view.tally(|r| room(&r.case) == *of))),
        );
        rows.push(row);
        self.out.push_str(&table(&heads, &rows, self.colour));
        self.paragraph(
            "Of each room: cases that passed, of those that belong to the kernel. Time: of its cases, one after \
             the other; in the last row, of the run.",
            0,
            Tone::Quiet,
        );
    }

    fn kernels(&mut self) {
        self.heading("Kernels");
        for name in self.view.environments.clone() {
            match self.view.environment(name) {
                Some(environment) => self.kernel(environment),
                None => self.paragraph(&format!("{name}: nothing is known of it"), 0, Tone::Bad),
            }
        }
    }

    fn kernel(&mut self, e: &Environment) {
        self.paragraph(
            &format!("{}  Linux {}", e.name, e.release),
            0,
            Tone::Heading,
        );
        if !e.variant.is_empty() {
            self.paragraph(&format!("variant: {}", e.variant), 4, Tone::Plain);
        }
        self.paragraph(&format!("package: {}", e.package), 4, Tone::Plain);
        if let Some(seconds) = e.cold_boot {
            self.paragraph(&format!("cold boot: {}", duration(seconds)), 4, Tone::Plain);
        }
        self.paragraph(
            &format!("cases: {}", self.view.starts(&e.name)),
            4,
            Tone::Plain,
        );
        if let Some(reason) = &e.unavailable {
            self.paragraph(&format!("not available: {reason}"), 4, Tone::Lacking);
        }
        for (file, hash) in &e.sources {
            self.paragraph(&format!("sha256 {hash} {file}"), 4, Tone::Quiet);
        }
        if !e.config.is_empty() {
            self.paragraph(&e.config.join(" "), 4, Tone::Quiet);
        }
    }

    fn reasons(&mut self, kind: &str, title: &str) {
        let reasons = self.view.reasons(kind);
        if reasons.is_empty() {
            return;
        }
        self.heading(title);
        for reason in &reasons {
            let text = because(reason.verdict);
            self.paragraph(&text, 0, Tone::Plain);
            self.paragraph(&cases(reason), 4, Tone::Quiet);
        }
    }

    fn failures(&mut self) {
        let failures = self.view.failures();
        if failures.is_empty() {
            return;
        }
        self.heading("Failures");
        for (result, text) in failures {
            let start = if result.restored { ", restored" } else { "" };
            let head = format!(
                "FAILED {}::{} ({}{start})",
                result.environment,
                result.case,
                duration(result.seconds)
            );
            self.paragraph(&head, 0, Tone::Bad);
            for part in super::clean::block(text).trim_end().lines() {
                for wrapped in wrap(part, WIDTH - 4) {
                    let shown = format!("    {wrapped}");
                    self.say(shown.trim_end(), Tone::Plain);
                }
            }
        }
    }

    fn verdict(&mut self) {
        let all = self.view.tally(|_| true);
        let parts = all.parts().into_iter().filter(|(n, _)| *n > 0);
        let parts: Vec<String> = parts.map(|(n, word)| format!("{n} {word}")).collect();
        let kernels = count(self.view.environments.len(), "environment");
        self.out.push('\n');
        let lost = self.view.run.environments.iter();
        let lost: Vec<&str> = lost
            .filter(|e| e.unavailable.is_some())
            .map(|e| &*e.name)
            .collect();
        if !lost.is_empty() {
            let text = format!("not available, see above: {}", lost.join(", "));
            self.paragraph(&text, 0, Tone::Lacking);
        }
        if all.failed > 0 {
            self.say(
                &format!("FAILED: {} in {kernels}", parts.join(", ")),
                Tone::Bad,
            );
        } else if all.passed == 0 {
            let parts = parts.join(", ");
            let why = if parts.is_empty() { "no case" } else { &parts };
            self.say(&format!("NOTHING RAN: {why} in {kernels}"), Tone::Lacking);
        } else {
            self.say(
                &format!("ok: {} in {kernels}", parts.join(", ")),
                Tone::Good,
            );
        }
    }
}

fn totals(t: Tally) -> [Cell; 5] {
    let number = |n: usize, tone| {
        if n == 0 {
            cell("-", Tone::Quiet)
        } else {
            cell(&n.to_string(), tone)
        }
    };
    [
        number(t.total(), Tone::Plain),
        number(t.failed, Tone::Bad),
        number(t.passed, Tone::Good),
        number(t.skipped, Tone::Lacking),
        number(t.ignored, Tone::Lacking),
    ]
}

/// `119/121`
fn share(t: Tally) -> Cell {
    let tone = if t.failed > 0 {
        Tone::Bad
    } else if t.passed == t.total() {
        Tone::Good
    } else {
        Tone::Lacking
    };
    match t.total() {
        0 => cell("-", Tone::Quiet),
        all => cell(&format!("{}/{all}", t.passed), tone),
    }
}

/// Why a case did not run, in one sentence.
pub(super) fn because(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Skipped {
            probe,
            since,
            reason,
        } => {
            let since = if since.is_empty() {
                "no kernel needs to have it".to_owned()
            } else {
                format!("every kernel from {since} on must have it")
            };
            format!("{probe} ({since}): {reason}")
        }
        Verdict::Ignored { reason } => reason.clone(),
        Verdict::Failed { text } => text.clone(),
        Verdict::Passed => "passed".to_owned(),
    }
}

/// The cases of a reason and where they were. Most reasons hold for the same environments in every case.
fn cases(reason: &Reason<'_>) -> String {
    let environments = reason.environments();
    let same = reason
        .cases
        .iter()
        .all(|(_, e)| e.len() == environments.len());
    let names = reason.cases.iter().map(|(case, on)| {
        if same {
            (*case).to_owned()
        } else {
            format!("{case} (on {})", on.join(", "))
        }
    });
    let names: Vec<String> = names.collect();
    let n = count(reason.cases.len(), "case");
    format!("{n} on {}: {}", environments.join(", "), names.join(", "))
}
