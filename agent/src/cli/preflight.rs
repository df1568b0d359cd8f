//! `weir preflight`

use super::args::{JobArg, PreflightArgs};
use super::failure::{Failure, code};
use super::{bundle, output};
use std::io::IsTerminal;
use weir_preflight::{JOBS, Job, Outcome, Verdict};

/// Asks the kernel and judges the jobs.
pub(super) fn run(a: &PreflightArgs) -> Result<u8, Failure> {
    if let Some(file) = &a.bundle {
        return bundle::run(a, file);
    }
    let survey = weir_preflight::survey(progress);
    let asked = |job: &&Job| a.job.is_empty() || a.job.iter().any(|j| j.name() == job.name);
    let verdicts: Vec<(&Job, Verdict)> = JOBS
        .iter()
        .filter(asked)
        .map(|job| (job, job.judge(&survey)))
        .collect();
    if a.json {
        output::json(&weir_preflight::json(&survey, &verdicts))?;
    } else {
        // https://no-color.org
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let colour = !plain && std::io::stdout().is_terminal();
        output::text(&weir_preflight::text(&survey, &verdicts, colour))?;
    }
    // The exit code counts jobs that only a setting chooses when `--job` names them.
    let counts = |(job, _): &(&Job, Verdict)| job.is_default() || !a.job.is_empty();
    let verdicts: Vec<_> = verdicts.into_iter().filter(counts).collect();
    Ok(exit_code(&verdicts))
}

/// What takes long is said.
pub(super) fn progress(stage: &str) {
    eprintln!("weir: still asking about {stage}");
}

/// A job that does not work counts more than one that could not be judged.
fn exit_code(verdicts: &[(&Job, Verdict)]) -> u8 {
    let any = |outcome| verdicts.iter().any(|(_, v)| v.outcome == outcome);
    if any(Outcome::DoesNotWork) {
        code::FAILED
    } else if any(Outcome::Unknown) {
        code::UNKNOWN
    } else {
        code::SUCCESS
    }
}

impl JobArg {
    /// As in [`JOBS`].
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sidecar => "sidecar",
            Self::SidecarTproxy => "sidecar-tproxy",
            Self::Ambient => "ambient",
            Self::NodeAmbient => "node-ambient",
            Self::Ebpf => "ebpf",
            Self::NodeEbpf => "node-ebpf",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_job_can_be_asked_for_by_its_name() {
        let args: Vec<_> = JobArg::value_variants().iter().map(|j| j.name()).collect();
        let jobs: Vec<_> = JOBS.iter().map(|j| j.name).collect();
        assert_eq!(args, jobs);
        for arg in JobArg::value_variants() {
            let word = arg.to_possible_value().unwrap();
            assert_eq!(word.get_name(), arg.name());
        }
    }

    #[test]
    fn the_worst_verdict_is_the_exit_code() {
        let with = |outcomes: &[Outcome]| {
            let one = |outcome: &Outcome| {
                let verdict = Verdict {
                    outcome: *outcome,
                    reasons: Vec::new(),
                    missing_capabilities: Vec::new(),
                };
                (&JOBS[0], verdict)
            };
            exit_code(&outcomes.iter().map(one).collect::<Vec<_>>())
        };
        use Outcome::{DoesNotWork, Unknown, Works, WorksWithFallback};
        assert_eq!(with(&[Works, WorksWithFallback]), 0);
        assert_eq!(with(&[Works, Unknown]), 3);
        assert_eq!(with(&[Unknown, DoesNotWork, Works]), 1);
    }
}
