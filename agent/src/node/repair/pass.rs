//! One look at the pods of the node, and what follows from it.

use super::actions::Actions;
use super::sandbox::{Processes, Scan};
use super::settings::{Action, RepairSettings};
use super::state::{self, Found, Verified, Wanted};
use crate::node::log::Log;
use crate::node::metrics::{Cause, Metrics, Repaired};
use crate::node::pods::{PodView, Pods};
use crate::node::status::{Mode, PodState, Status, cut};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use weir_cni::compile::Engine;
use weir_cni::plugin::{Phase, Phases};

/// Attempts for one version of a pod.
const ATTEMPTS: u32 = 5;
/// Before the second attempt; each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(5);
/// Events of one pod about its state come no faster.
const EVENTS: Duration = Duration::from_secs(600);

/// Looks, and remembers what it saw.
pub(crate) struct Repairer {
    pub(crate) settings: RepairSettings,
    pub(crate) pods: Pods,
    pub(crate) processes: Processes,
    pub(crate) actions: Actions,
    pub(crate) metrics: Metrics,
    pub(crate) status: Status,
    pub(crate) log: Log,
    pub(crate) memory: BTreeMap<(String, String), Memory>,
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
}

impl Memory {
    fn is_right(&mut self, now: Verified) {
        self.seen = Some((SystemTime::now(), now.engine));
        (self.verified, self.failed) = (Some(now), None);
    }

    /// For whoever asks.
    fn state(&self, view: &Arc<PodView>) -> PodState {
        PodState {
            view: Arc::clone(view),
            mode: self.mode,
            engine: self.seen.and_then(|(_, engine)| engine),
            verified: self.verified.is_some(),
            verified_at: self.seen.map(|(at, _)| at),
            error: self.failed.as_ref().map(|(why, _)| cut(why).into()),
        }
    }
}

/// All namespaces, looked at when the first pod needs it.
type Lazy = Option<Result<Scan, String>>;

impl Repairer {
    /// Looks at all pods; in a sweep also at those that were right before. When it should be called again at the latest.
    pub(crate) async fn pass(&mut self, sweep: bool) -> Option<Instant> {
        let views = self.pods.all();
        let key = |view: &PodView| (view.namespace().to_owned(), view.name().to_owned());
        let mut before = std::mem::take(&mut self.memory);
        let (mut scan, mut next) = (None, None::<Instant>);
        let mut expected = Vec::new();
        for view in &views {
            let key = key(view);
            let mut memory = before.remove(&key).unwrap_or_default();
            self.by_criteria(view, &mut memory, &mut scan).await;
            next = next.into_iter().chain(memory.due).min();
            if self.settings.interval.is_some()
                && self.by_state(view, &mut memory, sweep, &mut scan).await
            {
                expected.push(memory.state(view));
            }
            self.memory.insert(key, memory);
        }
        self.metrics.expected(&expected);
        if self.settings.interval.is_some() {
            self.status.pods(expected);
        }
        next
    }

    async fn by_criteria(&self, view: &PodView, memory: &mut Memory, scan: &mut Lazy) {
        let settings = &self.settings;
        let Some(action) = settings.action else {
            return;
        };
        if memory.version != view.resource_version {
            memory.version.clone_from(&view.resource_version);
            (memory.handled, memory.attempts, memory.due) = (false, 0, None);
        }
        let is_meant = view.pod.spec.node_name == settings.node && settings.filter.meets(view);
        if memory.handled || !is_meant || !settings.criteria.meets(view) {
            memory.due = None;
            return;
        }
        if memory.due.is_some_and(|due| due > Instant::now()) {
            return;
        }
        let result = match action {
            Action::Repair => self.repair(view, memory, scan),
            Action::Delete => self.delete(view).await.map(Some),
            Action::Label => self.label(view).await.map(Some),
        };
        (memory.handled, memory.due) = (true, None);
        let (namespace, name) = (view.namespace(), view.name());
        match result {
            Ok(None) => {}
            Ok(Some(result)) => self.metrics.repaired(action.name(), result),
            Err(why) => {
                self.metrics.repaired(action.name(), Repaired::Fail);
                memory.attempts += 1;
                memory.handled = memory.attempts >= ATTEMPTS;
                let pause = PAUSE.saturating_mul(1 << memory.attempts.saturating_sub(1).min(8));
                memory.due = (!memory.handled).then(|| Instant::now() + pause);
                let after = match memory.handled {
                    true => "given up until the pod changes",
                    false => "tried again",
                };
                self.log.error(&format!(
                    "broken pod {namespace}/{name}: cannot {}: {why}; {after}",
                    action.name()
                ));
            }
        }
    }

    /// `None`: it was repaired before.
    fn repair(
        &self,
        view: &PodView,
        memory: &mut Memory,
        scan: &mut Lazy,
    ) -> Result<Option<Repaired>, String> {
        let (namespace, name) = (view.namespace(), view.name());
        match &memory.repaired {
            Some(uid) if uid == view.uid() => return Ok(None),
            Some(uid) => {
                self.log.error(&format!(
                    "broken pod {namespace}/{name} has the UID {}, and one with {uid} was repaired: left alone \
                     until it was seen to go",
                    view.uid()
                ));
                return Ok(None);
            }
            None => {}
        }
        let wanted = state::demanded(view, &self.settings)?;
        let found = self.heal(&wanted, scan)?;
        memory.repaired = Some(view.uid().to_owned());
        let what = match &found {
            Found::Right(_) => "its rules are in place",
            Found::Repaired { summary, .. } => summary,
        };
        self.log.info(&format!(
            "broken pod {namespace}/{name} is repaired: {what}"
        ));
        let (Found::Right(now) | Found::Repaired { now, .. }) = found;
        memory.is_right(now);
        Ok(Some(Repaired::Success))
    }

    async fn delete(&self, view: &PodView) -> Result<Repaired, String> {
        let done = self.actions.delete(view).await;
        let message = match &done {
            Ok(()) => "started outside of the mesh, and was deleted".to_owned(),
            Err(e) => format!("started outside of the mesh, and cannot be deleted: {e}"),
        };
        self.tell(view, "DeleteBrokenPod", &message).await;
        done.map(|()| Repaired::Success)
    }

    async fn label(&self, view: &PodView) -> Result<Repaired, String> {
        let (key, value) = &self.settings.label;
        if view.pod.metadata.labels.contains_key(key) {
            return Ok(Repaired::Skip);
        }
        let done = self.actions.label(view, key, value).await;
        let message = match &done {
            Ok(()) => format!("started outside of the mesh, and got the label {key}={value}"),
            Err(e) => format!("started outside of the mesh, and cannot be labelled: {e}"),
        };
        self.tell(view, "LabelBrokenPod", &message).await;
        done.map(|()| Repaired::Success)
    }

    /// Whether the pod asks for redirection at all.
    async fn by_state(
        &self,
        view: &PodView,
        memory: &mut Memory,
        sweep: bool,
        scan: &mut Lazy,
    ) -> bool {
        let name = format!("{}/{}", view.namespace(), view.name());
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
            (Some(wanted), _) => {
                let seen = memory.verified.as_ref();
                let fine = match sweep {
                    true => seen.is_some_and(|v| state::still_right(v, wanted, &self.processes)),
                    false => seen.is_some_and(|v| v.is_for(wanted)),
                };
                let has_failed = |(_, of): &(String, Option<Wanted>)| of.as_ref() == Some(wanted);
                if let (true, true, Some((at, _))) = (fine, sweep, &mut memory.seen) {
                    *at = SystemTime::now();
                }
                if fine || (!sweep && memory.failed.as_ref().is_some_and(has_failed)) {
                    return true;
                }
                self.heal(wanted, scan)
            }
            (None, why) => Err(why.unwrap_or_default()),
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
                self.metrics.drift(Cause::of(&differences));
                self.metrics.healed(Repaired::Success);
                let first = differences.first().map(String::as_str).unwrap_or_default();
                let message = format!(
                    "was not redirected as it asks: {first} ({} differences in all); {summary}",
                    differences.len()
                );
                self.log.warn(&format!("pod {name} {message}"));
                if memory.event.is_none_or(|at| at.elapsed() >= EVENTS) {
                    memory.event = Some(Instant::now());
                    self.tell(view, "RedirectionRepaired", &message).await;
                }
            }
            Err(why) => {
                let is_new = memory.failed.as_ref().is_none_or(|(said, _)| *said != why);
                if is_new {
                    self.metrics.healed(Repaired::Fail);
                    self.log.warn(&format!(
                        "pod {name} cannot be verified: {why}; it is tried again"
                    ));
                }
                memory.failed = Some((why, wanted));
            }
        }
        true
    }

    fn heal(&self, wanted: &Wanted, scan: &mut Lazy) -> Result<Found, String> {
        let phases = Phases::default();
        let place = phases.measure(Phase::Facts, || {
            let scan = scan.get_or_insert_with(|| self.processes.scan());
            scan.as_ref().map_err(Clone::clone)?.find(&wanted.addresses)
        })?;
        let found = state::heal(place, wanted, &self.processes, &phases)?;
        self.metrics.phases("agent", &phases);
        Ok(found)
    }

    async fn tell(&self, view: &PodView, reason: &str, message: &str) {
        if let Err(e) = self.actions.event(view, reason, message).await {
            self.log.warn(&format!("no event {reason}: {e}"));
        }
    }
}
