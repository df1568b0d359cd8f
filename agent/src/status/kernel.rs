//! What `weir preflight` says of this node's kernel, found out once.

use super::{Jobs, Status};
use crate::journal::cut;
use weir_preflight::JOBS;

/// Asks in a thread of its own, which is gone afterwards: the trials take a while, and are made in a throwaway
/// network namespace.
pub(super) fn ask(status: Status) {
    let of_thread = status.clone();
    let work = move || {
        let survey = weir_preflight::survey(|_| {});
        let verdicts = JOBS.iter().map(|job| (job, job.judge(&survey))).collect();
        let untried = survey.untried.as_deref().map(cut);
        of_thread.state().jobs = Jobs::Asked(verdicts, untried);
    };
    let begun = std::thread::Builder::new()
        .name("survey".into())
        .spawn(work);
    if let Err(e) = begun {
        status.state().jobs = Jobs::Failed(format!("no thread to ask it in: {e}"));
    }
}
