//! `weir preflight`

use super::args::namespace;
use super::failure::{Failure, code};
use super::{bundle, output};
use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use std::path::PathBuf;
use weir_preflight::{JOBS, Job, Outcome, Verdict};

#[derive(Debug, Args)]
pub struct PreflightArgs {
    /// Judge this job, also one that only a setting chooses; may be repeated [default: all]
    #[arg(long, value_enum)]
    pub(super) job: Vec<JobArg>,
    /// Print JSON; with --bundle the manifest
    #[arg(long)]
    pub(super) json: bool,
    /// Write a report of this node for support, without secrets, as one tar file ("-" is stdout)
    #[arg(long, value_name = "FILE", conflicts_with = "job")]
    pub(super) bundle: Option<PathBuf>,
    /// A further network namespace whose rules go into the report: a name in `ip netns list`, or a path
    #[arg(long, value_name = "NAME|PATH", value_parser = namespace, requires = "bundle", conflicts_with = "pid")]
    pub(super) netns: Option<PathBuf>,
    /// The same namespace, by the PID of a process in it
    #[arg(long, value_name = "PID", requires = "bundle")]
    pub(super) pid: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum JobArg {
    /// A pod with a sidecar proxy, by REDIRECT
    Sidecar,
    /// A pod with a sidecar proxy, by TPROXY
    SidecarTproxy,
    /// Ambient mode, redirection inside the pod
    Ambient,
    /// Ambient mode, redirection in the node's own namespace
    NodeAmbient,
    /// Ambient mode by eBPF inside of the pod
    Ebpf,
    /// Ambient mode by eBPF in the node's own namespace
    NodeEbpf,
}

/// Probes the kernel and judges the jobs.
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
    // Jobs that only a setting selects count for the exit code only if `--job` names them.
    let counts = |(job, _): &(&Job, Verdict)| job.is_default() || !a.job.is_empty();
    let verdicts: Vec<_> = verdicts.into_iter().filter(counts).collect();
    Ok(exit_code(&verdicts))
}

/// Prints progress of a slow probe.
pub(super) fn progress(stage: &str) {
    eprintln!("weir: still probing {stage}");
}

/// A job that does not work takes precedence over one that could not be judged.
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
    /// Its name in [`JOBS`].
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
