//! Bounded retries of requests to the API server.

use std::time::{Duration, Instant};

use crate::api;
use crate::log::Logger;
use crate::protocol::CniError;

/// Maximum numbers of attempts and time limits of the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Attempts to read the pod of a sidecar.
    pub sidecar_attempts: u32,
    /// Attempts of the ambient decision if a failure lets the pod through.
    pub ambient_attempts: u32,
    /// Attempts of the ambient decision if a failure fails the ADD.
    pub ambient_strict_attempts: u32,
    /// Attempts to read the pod for CHECK.
    pub check_attempts: u32,
    /// Pause after a failed attempt.
    pub pause: Duration,
    /// Time limit of one lookup at the node agent, which waits half of it for a pod that it has not seen yet.
    pub look_up: Duration,
    /// Time limit of one request, including connecting.
    pub request: Duration,
    /// Time limit of all attempts of one call, including those without an answer: sufficient for as many as upstream's
    /// plugin makes, one per second. The error must be printed before the runtime times out.
    pub total: Duration,
    /// Time limit of the hand-over to the node agent.
    pub hand_over: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sidecar_attempts: 30,
            ambient_attempts: 2,
            ambient_strict_attempts: 31,
            check_attempts: 3,
            pause: Duration::from_secs(1),
            look_up: Duration::from_secs(2),
            request: api::REQUEST_LIMIT,
            total: Duration::from_secs(40),
            hand_over: Duration::from_secs(5),
        }
    }
}

/// Attempts after a permanent failure: the object may be corrected at the same moment.
const LASTING: u32 = 2;
/// Attempts for an object that was not found: the runtime starts only pods that the API server has, and a pod deleted in
/// the meantime does not come back.
const GONE: u32 = 5;

/// The budget of attempts of one call.
pub(super) struct Attempts<'a> {
    pub(super) limits: &'a Limits,
    pub(super) log: &'a Logger,
    pub(super) deadline: Instant,
}

impl Attempts<'_> {
    /// Calls `ask` up to `count` times, with the time at which it has to end. Returns `Ok(None)` if `give_up` is true after a failure: the answer is no longer
    /// needed. Returns an error that occurred before a request was sent, such as an unusable kubeconfig, at once.
    pub(super) fn run<T>(
        &self,
        count: u32,
        give_up: &dyn Fn() -> bool,
        mut ask: impl FnMut(Instant) -> Result<T, api::Error>,
    ) -> Result<Option<T>, CniError> {
        let started = Instant::now();
        let mut attempt = 1;
        loop {
            // The first attempt has some time, even if another decision has used all of it.
            let least = if attempt == 1 {
                self.limits.pause
            } else {
                Duration::ZERO
            };
            let error = match ask(self.deadline.max(Instant::now() + least)) {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) => error,
            };
            if give_up() {
                return Ok(None);
            }
            // A retry can only have another result if the attempt sent a request.
            if !error.has_asked() {
                return Err(CniError::internal(&error));
            }
            let count = match &error.reason {
                api::Reason::NotFound(_) => count.min(GONE),
                reason if reason.is_lasting() => count.min(LASTING),
                _ => count,
            };
            let left = self.deadline.saturating_duration_since(Instant::now());
            // The last attempt also needs at least half a pause: if cut short, its error would hide why the others failed.
            if attempt >= count || left <= self.limits.pause * 3 / 2 {
                let seconds = started.elapsed().as_secs_f32();
                return Err(CniError::internal(&error).with_details(format!(
                    "gave up after {attempt} attempts in {seconds:.1} s; this is the last failure"
                )));
            }
            self.log
                .warn(&format!("attempt {attempt} of {count}: {error}"));
            std::thread::sleep(self.limits.pause);
            attempt += 1;
        }
    }
}
