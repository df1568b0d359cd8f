//! The needs of each job, and the verdict from the findings.
//!
//! A need is met by the first of its ways whose features are all present. Any way but the first is a fallback.

use super::{Rules, Survey, process};
use std::collections::BTreeSet;
use weir_cni::compile::Engine;
use weir_netfilter::probe::Answer;
use weir_netfilter::probe::needs::Key;

/// A job of weir on a node.
#[derive(Debug)]
pub struct Job {
    /// The name that `--job` accepts.
    pub name: &'static str,
    /// Description for people.
    pub title: &'static str,
    /// Needs; all of them must be met.
    pub needs: &'static [Need],
    /// Capabilities required by the process that does the job.
    pub capabilities: &'static [&'static str],
}

/// One need of a job.
#[derive(Debug)]
pub struct Need {
    /// Description of the need.
    pub what: &'static str,
    /// Alternatives, the best first.
    pub ways: &'static [Way],
}

/// Features: area and name of their findings.
pub type Features = &'static [(&'static str, &'static str)];

/// Features that together meet a need.
#[derive(Debug)]
pub struct Way {
    /// Description of the way.
    pub name: &'static str,
    /// The features, in groups.
    pub features: &'static [Features],
    /// Rules whose needs are added to `features`.
    pub rules: Option<(Engine, Rules)>,
}

/// Expected result of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It works without a fallback.
    Works,
    /// It works; at least one need is met by a fallback.
    WorksWithFallback,
    /// The kernel lacks a feature that has no fallback.
    DoesNotWork,
    /// It could not be determined.
    Unknown,
}

impl Outcome {
    /// The name in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::WorksWithFallback => "works-with-fallback",
            Self::DoesNotWork => "does-not-work",
            Self::Unknown => "unknown",
        }
    }

    /// The text in human-readable output.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::WorksWithFallback => "works with fallback",
            Self::DoesNotWork => "does not work",
            Self::Unknown => "unknown",
        }
    }
}

/// The outcome and its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Expected result of the job.
    pub outcome: Outcome,
    /// One text per fallback, missing feature, or feature that could not be determined.
    pub reasons: Vec<String>,
    /// Capabilities that the job needs and this process lacks. Only the process that does the job needs them, not this survey.
    pub missing_capabilities: Vec<&'static str>,
}

/// Jobs that a setting or an option selects instead of another one. If they do not work, weir works without them, so the overall
/// verdict counts them only if they are named with `--job`.
const CHOSEN: [&str; 3] = ["node-ambient", "ebpf", "node-ebpf"];

impl Job {
    /// Whether the job runs without being selected by a setting or an option.
    #[must_use]
    pub fn is_default(&self) -> bool {
        !CHOSEN.contains(&self.name)
    }

    /// Derives the verdict from the findings. Pure.
    #[must_use]
    pub fn judge(&self, survey: &Survey) -> Verdict {
        let mut outcome = Outcome::Works;
        let mut reasons = BTreeSet::new();
        for need in self.needs {
            let (found, reason) = need.judge(survey);
            // The worst need decides; only reasons for that outcome are reported.
            if weight(found) > weight(outcome) {
                reasons.clear();
            }
            if weight(found) >= weight(outcome) {
                outcome = found;
                reasons.extend(reason);
            }
        }
        let finding = |name: &str| survey.find(process::AREA, &format!("CAP_{name}"));
        // The kernel takes CAP_SYS_ADMIN in the place of CAP_BPF.
        let is_admin = finding("SYS_ADMIN").is_some_and(|f| f.answer.is_have());
        let lacks = |name: &&&str| {
            let is_lacking = finding(name).is_some_and(|f| f.answer.is_lack());
            is_lacking && !(**name == "BPF" && is_admin)
        };
        Verdict {
            outcome,
            reasons: reasons.into_iter().collect(),
            missing_capabilities: self.capabilities.iter().filter(lacks).copied().collect(),
        }
    }
}

fn weight(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Works => 0,
        Outcome::WorksWithFallback => 1,
        Outcome::Unknown => 2,
        Outcome::DoesNotWork => 3,
    }
}

impl Need {
    fn judge(&self, survey: &Survey) -> (Outcome, Option<String>) {
        let (mut lacking, mut unknown) = (Vec::new(), Vec::new());
        for (n, way) in self.ways.iter().enumerate() {
            match way.judge(survey) {
                Answer::Have(_) if n == 0 => return (Outcome::Works, None),
                Answer::Have(_) => {
                    let why: Vec<String> = lacking.into_iter().chain(unknown).collect();
                    let text = format!("{}: {} ({})", self.what, way.name, why.join("; "));
                    return (Outcome::WorksWithFallback, Some(text));
                }
                Answer::Lack(what) => lacking.push(format!("{}: no {what}", way.name)),
                Answer::Unknown(what) => unknown.push(format!("{}: {what}", way.name)),
            }
        }
        match unknown.first() {
            None => {
                let text = format!("{}: {}", self.what, lacking.join("; "));
                (Outcome::DoesNotWork, Some(text))
            }
            // The other ways are unknown, too, or known not to work.
            Some(first) => (Outcome::Unknown, Some(format!("{} ({first})", self.what))),
        }
    }
}

/// Maximum number of features that a reason names.
const NAMED: usize = 2;

impl Way {
    /// Returns the keys of all findings that this way needs.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let named = self.features.iter().flat_map(|group| group.iter());
        let named = named.map(|(area, feature)| (*area, (*feature).to_owned()));
        let mut keys: Vec<Key> = named.collect();
        keys.extend(self.rules.iter().flat_map(|(e, rules)| rules.needs(*e)));
        keys
    }

    fn judge(&self, survey: &Survey) -> Answer {
        let mut lacking = Vec::new();
        let mut unknown = Vec::new();
        for (area, feature) in self.keys() {
            match survey
                .find(area, &feature)
                .map(|f| (&f.answer, f.options.join(" ")))
            {
                Some((Answer::Have(_), _)) => {}
                Some((Answer::Lack(_), options)) if options.is_empty() => {
                    lacking.push(feature);
                }
                Some((Answer::Lack(_), options)) => lacking.push(format!("{feature} ({options})")),
                Some((Answer::Unknown(_), _)) | None => unknown.push(feature),
            }
        }
        match (lacking.is_empty(), unknown.is_empty()) {
            (false, _) => Answer::Lack(list(&lacking)),
            (true, false) => Answer::Unknown(format!("unknown: {}", list(&unknown))),
            (true, true) => Answer::Have(String::new()),
        }
    }
}

fn list(names: &[String]) -> String {
    let (named, more) = names.split_at(names.len().min(NAMED));
    match more.len() {
        0 => named.join(", "),
        n => format!("{} and {n} more", named.join(", ")),
    }
}

/// Finds a job by name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Job> {
    JOBS.iter().find(|j| j.name == name)
}

pub use super::jobs_table::JOBS;
