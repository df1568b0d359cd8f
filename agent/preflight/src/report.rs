//! The survey and the verdicts, for people and for programs.

use super::{JOBS, Job, Outcome, Survey, Verdict, system};
use serde::Serialize;
use serde_json::{Value, json as object};
use std::fmt::Write;
use weir_netfilter::probe::{Answer, Finding};

const GREEN: &str = "32";
const YELLOW: &str = "33";
const RED: &str = "31";

/// Widths of the columns feature and answer; the others depend on their content.
const COLUMNS: [usize; 2] = [36, 22];

struct Paint(bool);

impl Paint {
    /// Pads `text` to `width`, and colours it if enabled.
    fn word(&self, text: &str, width: usize, colour: &str) -> String {
        let padding = " ".repeat(width.saturating_sub(text.chars().count()));
        match self.0 {
            true => format!("\x1b[{colour}m{text}\x1b[0m{padding}"),
            false => format!("{text}{padding}"),
        }
    }
}

/// Formats the report: one summary line, one line per default job, the table of all features, and last the jobs that only a
/// setting or an option selects.
///
/// With `colour` the text contains terminal escape sequences.
#[must_use]
pub fn text(survey: &Survey, verdicts: &[(&Job, Verdict)], colour: bool) -> String {
    let paint = Paint(colour);
    let mut out = format!("{}\n", summary(verdicts));
    let (default, chosen): (Vec<_>, Vec<_>) =
        verdicts.iter().partition(|(job, _)| counts(job, verdicts));
    for (job, verdict) in default {
        out += &verdict_line(job, verdict, &paint);
    }
    let _ = writeln!(out, "\nkernel {}: {}", survey.release, survey.modules);
    for (name, value) in &survey.facts {
        let _ = writeln!(out, "{name}: {value}");
    }
    let mut notes: Vec<&str> = Vec::new();
    let shown = survey.findings.iter().filter(|f| !f.answer.is_have());
    let given = shown
        .map(|f| given_by(f).len())
        .max()
        .unwrap_or(0)
        .max("kernel option".len());
    let mut area = "";
    for f in &survey.findings {
        if f.area != area {
            area = f.area;
            let [a, b] = COLUMNS;
            let head = area.to_uppercase();
            let _ = writeln!(
                out,
                "\n{head:a$} {:b$} {:given$} otherwise",
                "answer", "kernel option"
            );
        }
        line(&mut out, f, given, &mut notes, &paint);
    }
    if !notes.is_empty() {
        out.push('\n');
    }
    for (n, note) in notes.iter().enumerate() {
        let _ = writeln!(out, "[{}] {note}", n + 1);
    }
    if !chosen.is_empty() {
        out += "\nJobs that only a setting or an option selects:\n";
    }
    for (job, verdict) in chosen {
        out += &verdict_line(job, verdict, &paint);
    }
    out
}

/// Whether the job counts for the summary: jobs that a setting selects count only if jobs are named.
fn counts(job: &Job, verdicts: &[(&Job, Verdict)]) -> bool {
    job.is_default() || verdicts.len() < JOBS.len()
}

/// Whether weir can do its jobs here.
fn summary(verdicts: &[(&Job, Verdict)]) -> String {
    let of = |outcomes: &[Outcome]| -> Vec<&str> {
        let done = verdicts.iter().filter(|(job, _)| counts(job, verdicts));
        let found = done.filter(|(_, v)| outcomes.contains(&v.outcome));
        found.map(|(job, _)| job.name).collect()
    };
    let works = of(&[Outcome::Works, Outcome::WorksWithFallback]);
    let (fails, unknown) = (of(&[Outcome::DoesNotWork]), of(&[Outcome::Unknown]));
    let mut parts = Vec::new();
    if !fails.is_empty() {
        parts.push(format!("does not work here: {}", fails.join(", ")));
    }
    if !unknown.is_empty() {
        parts.push(format!("unknown: {}", unknown.join(", ")));
    }
    if !works.is_empty() {
        parts.push(format!("works here: {}", works.join(", ")));
    }
    let text = parts.join("; ");
    match fails.is_empty() && unknown.is_empty() {
        true => text,
        false => format!(
            "{text}. The table below names the kernel option or module of each missing part"
        ),
    }
}

fn line<'a>(
    out: &mut String,
    f: &'a Finding,
    given: usize,
    notes: &mut Vec<&'a str>,
    paint: &Paint,
) {
    let detail = f.answer.detail();
    let (text, colour) = match &f.answer {
        Answer::Have(_) if detail.is_empty() => ("have".to_owned(), GREEN),
        Answer::Have(_) => (format!("have ({detail})"), GREEN),
        Answer::Lack(_) => ("lack".to_owned(), RED),
        Answer::Unknown(_) => {
            let n = notes.iter().position(|n| *n == detail).unwrap_or_else(|| {
                notes.push(detail);
                notes.len() - 1
            });
            (format!("unknown [{}]", n + 1), YELLOW)
        }
    };
    let [a, b] = COLUMNS;
    let answer = paint.word(&text, b, colour);
    let row = match &f.answer {
        // The value of a sysctl alone says little: add why it matters.
        Answer::Have(_) if f.area == system::AREA && f.feature.contains('.') => {
            format!("{:a$} {answer} {:given$} {}", f.feature, "", f.instead)
        }
        Answer::Have(_) => format!("{:a$} {answer}", f.feature),
        _ => format!(
            "{:a$} {answer} {:given$} {}",
            f.feature,
            given_by(f),
            f.instead
        ),
    };
    let _ = writeln!(out, "{}", row.trim_end());
}

/// `CONFIG_NFT_TPROXY (nft_tproxy), Linux 4.19`
fn given_by(f: &Finding) -> String {
    let mut text = f.options.join(" ");
    if !f.modules.is_empty() {
        let _ = write!(text, " ({})", f.modules.join(" "));
    }
    if !f.since.is_empty() {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}Linux {}", f.since);
    }
    text
}

fn verdict_line(job: &Job, verdict: &Verdict, paint: &Paint) -> String {
    let colour = match verdict.outcome {
        Outcome::Works => GREEN,
        Outcome::WorksWithFallback | Outcome::Unknown => YELLOW,
        Outcome::DoesNotWork => RED,
    };
    let words = paint.word(verdict.outcome.words(), 0, colour);
    let mut line = format!("{:15} {words}", job.name);
    if !verdict.reasons.is_empty() {
        let because = match verdict.outcome {
            Outcome::DoesNotWork => " because",
            _ => ":",
        };
        let _ = write!(line, "{because} {}", verdict.reasons.join("; "));
    }
    if !verdict.missing_capabilities.is_empty() {
        let names: Vec<String> = verdict
            .missing_capabilities
            .iter()
            .map(|n| format!("CAP_{n}"))
            .collect();
        let _ = write!(line, " [this process lacks {}]", names.join(", "));
    }
    line + "\n"
}

/// One job in JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobReport {
    /// The name that `--job` accepts.
    pub job: &'static str,
    /// Description for people.
    pub title: &'static str,
    /// Whether weir implements this job.
    pub done_by_weir: bool,
    /// [`Job::is_default`]
    pub by_default: bool,
    /// [`Outcome::word`]
    pub verdict: &'static str,
    /// [`Outcome::words`]
    #[serde(skip)]
    pub words: &'static str,
    /// [`Verdict::reasons`]
    pub reasons: Vec<String>,
    /// [`Verdict::missing_capabilities`], without `CAP_`.
    pub missing_capabilities: Vec<&'static str>,
}

impl JobReport {
    /// Builds the report from the verdict on a job.
    #[must_use]
    pub fn of(job: &Job, verdict: &Verdict) -> Self {
        Self {
            job: job.name,
            title: job.title,
            done_by_weir: true,
            by_default: job.is_default(),
            verdict: verdict.outcome.word(),
            words: verdict.outcome.words(),
            reasons: verdict.reasons.clone(),
            missing_capabilities: verdict.missing_capabilities.clone(),
        }
    }
}

/// The whole survey and all verdicts as JSON, with stable field names.
#[must_use]
pub fn json(survey: &Survey, verdicts: &[(&Job, Verdict)]) -> Value {
    let finding = |f: &Finding| {
        object!({
            "area": f.area,
            "feature": f.feature,
            "answer": answer(&f.answer),
            "detail": f.answer.detail(),
            "options": f.options,
            "modules": f.modules,
            "since": f.since,
            "instead": f.instead,
        })
    };
    let verdict = |(job, v): &(&Job, Verdict)| JobReport::of(job, v);
    let facts: serde_json::Map<String, Value> = survey
        .facts
        .iter()
        .map(|(name, value)| ((*name).to_owned(), object!(value)))
        .collect();
    object!({
        "kernel": survey.release,
        "modules": survey.modules,
        "facts": facts,
        "features": survey.findings.iter().map(finding).collect::<Vec<_>>(),
        "jobs": verdicts.iter().map(verdict).collect::<Vec<_>>(),
    })
}

/// The name of the answer in JSON.
fn answer(answer: &Answer) -> &'static str {
    match answer {
        Answer::Have(_) => "have",
        Answer::Lack(_) => "lack",
        Answer::Unknown(_) => "unknown",
    }
}
