//! The result of `weir preflight` for this node's kernel, determined once.

use super::Status;
use super::facts::KernelJobs;
use weir_core::journal::{Journal, cut};
use weir_core::thread::rights;
use weir_preflight::{JOBS, JobReport};

/// Runs the probes in a temporary thread: they take a while, and run in a throwaway
/// network namespace.
pub(super) fn ask(status: Status, journal: Journal) {
    let of_thread = status.clone();
    let work = move || {
        journal.rights(rights::enter("survey"));
        let survey = weir_preflight::survey(|_| {});
        let judged = JOBS
            .iter()
            .map(|job| JobReport::of(job, &job.judge(&survey)));
        let asked = KernelJobs {
            state: "asked",
            reason: survey.untried.as_deref().map(cut),
            jobs: judged.collect(),
        };
        of_thread.state().jobs = asked;
    };
    let begun = std::thread::Builder::new()
        .name("survey".into())
        .spawn(work);
    if let Err(e) = begun {
        let mut state = status.state();
        state.jobs.state = "failed";
        state.jobs.reason = Some(format!("cannot start a thread for the probes: {e}"));
    }
}
