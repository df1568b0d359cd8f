//! One look at the pods of the node, and what follows from it.

mod broken;

use super::settings::RepairSettings;
use super::state::{self, Found, Verified, Wanted};
use super::unasked;
use super::work::{Progress, Work};
use crate::api::actions::Actions;
use crate::journal::pod::{Cause, Event, Mode, PodState};
use crate::journal::{Journal, cut};
use crate::pods::{PodView, Pods};
use crate::sandboxes::claims::Claims;
use crate::sandboxes::place::{Processes, Scan};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Notify;
use weir_cni::compile::Engine;
use weir_cni::plugin::Phases;

/// Events of one pod about its state come no faster.
const EVENTS: Duration = Duration::from_secs(600);
/// How long a pass waits for one pod; then it looks at the next one, and the work goes on beside it.
const PATIENCE: Duration = Duration::from_secs(2);
/// All pods of a pass together are, beyond that each gets the little below.
const PATIENCE_OF_PASS: Duration = Duration::from_secs(10);
const LITTLE: Duration = Duration::from_millis(50);

/// Looks, and remembers what it saw.
pub(crate) struct Repairer {
    pub(crate) settings: RepairSettings,
    pub(crate) pods: Pods,
    pub(crate) processes: Processes,
    pub(crate) actions: Actions,
    pub(crate) journal: Journal,
    pub(crate) memory: BTreeMap<(String, String), Memory>,
    /// Notified when work in a namespace ends.
    pub(crate) done: Arc<Notify>,
}

/// What is known of one pod, by namespace and name, until it disappears.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The version for which the next three are counted.
    version: String,
    handled: bool,
    attempts: u32,
    due: Option<Instant>,
    /// The UID that was repaired in place by the criteria.
    repaired: Option<String>,
    verified: Option<Verified>,
    /// What could not be repaired; it is tried again at the next sweep.
    failed: Option<(String, Option<Wanted>)>,
    event: Option<Instant>,
    mode: Option<Mode>,
    /// When all was right the last time, and who held the rules then.
    seen: Option<(SystemTime, Option<Engine>)>,
    /// Work that took longer than [`PATIENCE`] and still runs, and for which pod.
    late: Option<(Wanted, Work<Healed>)>,
    unasked: unasked::Memory,
}

impl Memory {
    fn is_late(&self) -> bool {
        self.late.is_some() || self.unasked.is_late()
    }
}

/// What work in a pod's namespace ends with, and how long its parts took.
type Healed = (Result<Found, String>, Phases);

/// Why a pod could not be looked at or repaired.
enum Failure {
    /// It takes long; another look finds out how it went.
    Late(String),
    Refused(String),
}

impl Failure {
    fn text(self) -> String {
        match self {
            Self::Late(why) | Self::Refused(why) => why,
        }
    }
}

impl Memory {
    fn is_right(&mut self, now: Verified) {
        self.seen = Some((SystemTime::now(), now.engine));
        (self.verified, self.failed) = (Some(now), None);
    }

    /// For the status page.
    fn state(&self, view: &Arc<PodView>) -> PodState {
        PodState {
            pod: view.reference(),
            mode: self.mode,
            engine: self.seen.and_then(|(_, engine)| engine),
            verified: self.verified.is_some(),
            verified_at: self.seen.map(|(at, _)| at),
            error: self.failed.as_ref().map(|(why, _)| cut(why).into()),
        }
    }
}

fn late() -> Failure {
    Failure::Late(format!(
        "its network namespace took longer than {PATIENCE:?} to look at; that goes on, and other pods are looked at \
         meanwhile"
    ))
}

/// What all pods of one pass share.
pub(super) struct Look {
    pub(super) claims: Claims,
    /// All processes, listed when the first pod needs them.
    pub(super) scan: Arc<OnceLock<Result<Arc<Scan>, String>>>,
    /// How long this pass may still wait for slow pods.
    patience: Duration,
}

impl Look {
    /// Waits for work that has just begun.
    pub(super) async fn wait<T: Send + 'static>(&mut self, work: Work<T>) -> Progress<T> {
        let (begun, limit) = (Instant::now(), PATIENCE.min(self.patience).max(LITTLE));
        let progress = work.wait(limit).await;
        if matches!(progress, Progress::Late(_)) {
            self.patience = self.patience.saturating_sub(begun.elapsed());
        }
        progress
    }
}

impl Repairer {
    /// Looks at all pods; in a sweep also at those that were right before. When it should be called again at the latest.
    pub(crate) async fn pass(&mut self, sweep: bool) -> Option<Instant> {
        let views = self.pods.all();
        let key = |view: &PodView| (view.namespace().to_owned(), view.name().to_owned());
        let mut before = std::mem::take(&mut self.memory);
        let mut look = Look {
            claims: Claims::of(&views),
            scan: Arc::default(),
            patience: PATIENCE_OF_PASS,
        };
        let mut next = None::<Instant>;
        let (mut expected, mut unasked, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
        for view in &views {
            let key = key(view);
            let mut memory = before.remove(&key).unwrap_or_default();
            self.by_criteria(view, &mut memory, &mut look).await;
            next = next.into_iter().chain(memory.due).min();
            if self.settings.interval.is_some() {
                if self.by_state(view, &mut memory, sweep, &mut look).await {
                    expected.push(memory.state(view));
                } else if sweep {
                    match self.unasked(view, &mut memory.unasked, &mut look).await {
                        Ok(found) => unasked.extend(found),
                        Err(why) => {
                            let pod = view.reference();
                            unseen.push(format!("pod {pod}: {why}"));
                            self.journal.record(Event::UnaskedUnknown { pod, why });
                        }
                    }
                }
            }
            self.memory.insert(key, memory);
        }
        if !self.memory.values().any(Memory::is_late) {
            // Nothing of before is to wake anybody.
            self.done = Arc::default();
        }
        if self.settings.interval.is_some() {
            let expected = expected.into();
            self.journal.record(Event::Seen { expected });
        }
        if let Some(interval) = self.settings.interval.filter(|_| sweep) {
            self.journal.record(Event::RoundEnded {
                interval,
                unasked: unasked.into(),
                unseen: (unseen.len(), unseen.into_iter().next()),
            });
        }
        next
    }

    /// Whether the pod asks for redirection at all.
    async fn by_state(
        &self,
        view: &Arc<PodView>,
        memory: &mut Memory,
        sweep: bool,
        look: &mut Look,
    ) -> bool {
        let (wanted, problem) = match state::wanted(view, &self.settings) {
            Ok(None) => {
                (memory.verified, memory.failed) = (None, None);
                return false;
            }
            Ok(Some(wanted)) => (Some(wanted), None),
            Err(why) => (None, Some(why)),
        };
        memory.mode = wanted.as_ref().map(Wanted::mode);
        let result = match (&wanted, problem) {
            (Some(wanted), _) => match look.claims.check(view) {
                // It is looked at again whenever the pods change.
                Err(why) => Err((why, None)),
                Ok(()) => {
                    let seen = memory.verified.as_ref();
                    let fine = seen.is_some_and(|v| v.is_for(wanted));
                    let failed = memory.failed.as_ref().and_then(|(_, of)| of.as_ref());
                    let known = fine || failed == Some(wanted);
                    if known && !sweep && memory.late.is_none() {
                        return true;
                    }
                    let before = memory.verified.clone();
                    let healed = self.heal(wanted, memory, before, look).await;
                    healed.map_err(|why| (why.text(), Some(wanted.clone())))
                }
            },
            (None, why) => Err((why.unwrap_or_default(), None)),
        };
        memory.verified = None;
        match result {
            Ok(Found::Right(now)) => memory.is_right(now),
            Ok(Found::Repaired {
                now,
                differences,
                summary,
            }) => {
                memory.is_right(now);
                let first = differences.first().map(ToString::to_string);
                let notify = memory.event.is_none_or(|at| at.elapsed() >= EVENTS);
                if notify {
                    memory.event = Some(Instant::now());
                }
                self.journal.record(Event::Repaired {
                    pod: view.reference(),
                    first: first.unwrap_or_default(),
                    differences: differences.len(),
                    cause: Cause::of(&differences),
                    summary,
                    notify,
                });
            }
            Err((why, wanted)) => {
                let is_new = memory.failed.as_ref().is_none_or(|(said, _)| *said != why);
                if is_new {
                    let (pod, why) = (view.reference(), why.clone());
                    self.journal.record(Event::NotVerified { pod, why });
                }
                memory.failed = Some((why, wanted));
            }
        }
        true
    }

    /// Looks at the pod's namespace and repairs it, on a thread of its own.
    async fn heal(
        &self,
        wanted: &Wanted,
        memory: &mut Memory,
        before: Option<Verified>,
        look: &mut Look,
    ) -> Result<Found, Failure> {
        // One thread for each pod: the pass does not wait for it a second time.
        if let Some((of, work)) = memory.late.take() {
            match work.wait(Duration::ZERO).await {
                Progress::Late(work) => {
                    memory.late = Some((of, work));
                    return Err(late());
                }
                Progress::Done(healed) if of == *wanted => return self.healed(healed),
                // It was for what is not desired any more.
                Progress::Done(_) | Progress::Lost => {}
            }
        }
        let (processes, scan) = (self.processes.clone(), Arc::clone(&look.scan));
        let of = wanted.clone();
        let work = Work::begin(&self.done, move || {
            let phases = Phases::default();
            let scan = || scan.get_or_init(|| processes.scan().map(Arc::new)).clone();
            let found = state::heal(&of, before, &processes, &scan, &phases);
            (found, phases)
        });
        match look.wait(work.map_err(Failure::Refused)?).await {
            Progress::Done(healed) => self.healed(healed),
            Progress::Lost => Err(Failure::Refused("looking at it ended abruptly".into())),
            Progress::Late(work) => {
                memory.late = Some((wanted.clone(), work));
                Err(late())
            }
        }
    }

    fn healed(&self, (found, phases): Healed) -> Result<Found, Failure> {
        if found.is_ok() {
            let by = "agent";
            self.journal.record(Event::Measured { by, phases });
        }
        found.map_err(Failure::Refused)
    }
}
