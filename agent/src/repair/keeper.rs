//! The reconciler of repair: chooses the job for a pod and processes its result.

use super::RepairSettings;
use super::settings::Action;
use super::start::PATIENCE;
use super::state::{Asks, Cause, Memory, Running};
use super::visit::{Answer, InSync, Look, Seen, visit};
use crate::dataplane::sidecar::{Desired, Sidecar};
use crate::dataplane::{Dataplane, Spent};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use weir_cni::plugin::Phase;
use weir_core::api::actions::Actions;
use weir_core::journal::pod::{Event, PodState, Unasked, Writer};
use weir_core::journal::{Journal, cut};
use weir_core::pods::Pods;
use weir_core::sandboxes::Sandboxes;
use weir_core::sandboxes::claims::Claims;
use weir_core::sandboxes::place::Identity;
use weir_drift::{Drift, Drifted};
use weir_reconcile::{Changes, Job, Next, Reconciler, Start, Uid};

/// Maximum number of concurrent requests to the API server about broken pods.
const REQUESTS: usize = 8;

/// The reconciler, with the state of all pods.
pub(super) struct Keeper {
    pub(super) settings: RepairSettings,
    pub(super) plane: Arc<Sidecar>,
    pods: Pods,
    pub(super) sandboxes: Sandboxes,
    pub(super) actions: Arc<Actions>,
    pub(super) requests: Arc<Semaphore>,
    pub(super) journal: Journal,
    /// Watches commits to the rules of pods that ask for redirection.
    drift: Drift,
    drifted: Drifted,
    memory: BTreeMap<Uid, Memory>,
    /// The first round has begun.
    began: bool,
}

/// The result of a job.
pub(super) enum Done {
    Visit(Box<Answer>),
    Request(Action, Result<(), String>),
}

impl Keeper {
    pub(super) fn new(
        settings: RepairSettings,
        (pods, sandboxes): (Pods, Sandboxes),
        actions: Actions,
        (drift, drifted): (Drift, Drifted),
        journal: Journal,
    ) -> Self {
        let plane = Sidecar {
            native_nftables: settings.native_nftables,
            environment: settings.environment.clone(),
            ambient: settings.ambient,
            exclude_namespaces: settings.exclude_namespaces.clone(),
        };
        Self {
            plane: Arc::new(plane),
            settings,
            pods,
            sandboxes,
            actions: Arc::new(actions),
            requests: Arc::new(Semaphore::new(REQUESTS)),
            journal,
            drift,
            drifted,
            memory: BTreeMap::new(),
            began: false,
        }
    }

    /// Returns the look that the pod needs, if any, and updates `asks`.
    fn look(&self, memory: &mut Memory) -> Result<Option<Look>, String> {
        let desired = match self.settings.filter.meets(&memory.view) {
            true => self.plane.desire(&memory.view).inspect_err(|_| {
                memory.asks = Asks::Redirection(None);
            })?,
            // Upstream does not watch these pods.
            false => None,
        };
        let Some(desired) = desired else {
            (memory.asks, memory.in_sync, memory.failed) = (Asks::Nothing, None, None);
            memory.unasked = None;
            return Ok(None);
        };
        let identity = Identity::of(&memory.view);
        let look = Look { identity, desired };
        memory.asks = match &look.desired {
            Desired::Nothing(_) => Asks::Nothing,
            Desired::Redirection { .. } => Asks::Redirection(look.mode()),
        };
        memory.claimed.clone()?;
        Ok(Some(look))
    }

    fn state_job(&self, memory: &mut Memory, start: &Start) -> Result<Job<Done>, Next> {
        if memory.view.ended() {
            // Open descriptors would keep its network namespace alive until the pod object is deleted.
            self.drift.forget(&start.uid);
            self.sandboxes.forget(&start.uid);
        }
        if self.settings.interval.is_none() {
            return Err(Next::Settled);
        }
        let look = match self.look(memory) {
            Ok(Some(look)) => look,
            Ok(None) => {
                self.drift.forget(&start.uid);
                return Err(Next::Settled);
            }
            Err(why) => {
                self.state(memory, (None, None), Err(why), start.sweep);
                // The next attempt is made when the pod changes, or in the next round.
                return Err(Next::Settled);
            }
        };
        let before = memory.in_sync.clone().filter(|seen| seen.look == look);
        let failed = memory.failed.as_ref().and_then(|(_, of)| of.as_ref());
        let is_known = before.is_some() || failed == Some(&look);
        // Rules in pods that do not ask for redirection are looked for in rounds only.
        let only_in_rounds = matches!(look.desired, Desired::Nothing(_));
        if only_in_rounds {
            self.drift.forget(&start.uid);
            memory.drifted = None;
        }
        let is_due = start.sweep || memory.drifted.is_some();
        if !is_due && (is_known || only_in_rounds) {
            return Err(Next::Settled);
        }
        if let Some(pause) = memory.heals.pause(Instant::now()) {
            if memory.drifted.is_some() {
                // Until the next look the pod is not reported as in sync.
                memory.in_sync = None;
                memory.postponed = Some(pause);
            }
            return Err(Next::After(pause));
        }
        memory.running = Some(Running {
            cause: Cause::State,
            look: Some(look.clone()),
            by: memory.drifted.take().flatten(),
            late: false,
        });
        Ok(self.visit(look, before, start.since))
    }

    /// Returns the job that visits the pod's network namespace.
    pub(super) fn visit(&self, look: Look, before: Option<InSync>, since: Instant) -> Job<Done> {
        let (plane, sandboxes) = (Arc::clone(&self.plane), self.sandboxes.clone());
        let drift = self.drift.clone();
        Job::Thread(Box::new(move || {
            let mut spent = Spent::default();
            let places = (&sandboxes, &drift);
            let seen = visit(&plane, places, look, before, since, &mut spent);
            Done::Visit(Box::new((seen, spent)))
        }))
    }

    /// Records the result of a look at the pod's state.
    fn state(
        &self,
        memory: &mut Memory,
        (look, by): (Option<Look>, Option<Writer>),
        seen: Result<Seen, String>,
        sweep: bool,
    ) -> Next {
        let is_unasked = memory.asks == Asks::Nothing;
        let pod = memory.view.reference();
        memory.in_sync = None;
        match seen {
            Ok(Seen::InSync(now)) if is_unasked => {
                (memory.in_sync, memory.unasked) = (Some(now), None);
            }
            Ok(Seen::InSync(now)) => memory.is_right(now),
            Ok(Seen::Unasked(what, removed)) => self.unasked(memory, &what, removed),
            Ok(Seen::Repaired {
                now,
                repair,
                hindered,
            }) => {
                memory.is_right(now);
                let (healed, contention) = memory.heals.made(pod, repair, by);
                self.journal.record(Event::Repaired(healed));
                if let Some(contention) = contention {
                    self.journal.record(Event::Contention(contention));
                }
                if let Some(why) = hindered {
                    return self.not_verified(memory, why, look);
                }
            }
            Err(why) if is_unasked && !sweep => drop(why),
            Err(why) if is_unasked => {
                memory.unasked = Some(Err(format!("pod {pod}: {why}")));
                self.journal.record(Event::UnaskedUnknown { pod, why });
            }
            Err(why) => return self.not_verified(memory, why, look),
        }
        Next::Settled
    }

    /// Records the failure and schedules a retry.
    fn not_verified(&self, memory: &mut Memory, why: String, look: Option<Look>) -> Next {
        let is_new = memory.failed.as_ref().is_none_or(|(said, _)| *said != why);
        if is_new {
            self.journal.record(Event::NotVerified {
                pod: memory.view.reference(),
                why: why.clone(),
            });
        }
        (memory.in_sync, memory.failed) = (None, Some((why, look)));
        Next::Retry
    }

    fn unasked(&self, memory: &mut Memory, what: &str, removed: Result<(), String>) {
        let after = match &removed {
            Ok(()) => "it was removed".to_owned(),
            Err(why) => format!(
                "it is left alone: {why}; delete the pod, or remove it by weir clean --pid with a process of it"
            ),
        };
        let message = format!("asks for no redirection and has rules of ours: {what}; {after}");
        let mut found = Unasked {
            pod: memory.view.reference(),
            message: message.as_str().into(),
            removed: removed.is_ok(),
        };
        let shown: Box<str> = cut(&message).into();
        let known = memory
            .unasked
            .as_ref()
            .and_then(|found| found.as_ref().ok());
        self.journal.record(Event::Unasked {
            is_new: found.removed || known.is_none_or(|known| known.message != shown),
            found: found.clone(),
        });
        found.message = shown;
        memory.unasked = Some(Ok(found));
    }

    fn visited(&mut self, memory: &mut Memory, running: Running, (seen, spent): Answer) -> Next {
        memory.heals.took(spent.of(Phase::Verify), Instant::now());
        if seen.is_ok() {
            self.journal.record(spent.measured());
        }
        if running.cause == Cause::Criteria {
            return self.repaired_in_place(memory, seen);
        }
        let now = self.look(memory);
        if running.late && now.as_ref().ok().and_then(Option::as_ref) != running.look.as_ref() {
            // The desired state changed during the job.
            return Next::After(Duration::ZERO);
        }
        self.state(memory, (running.look, running.by), seen, true)
    }
}

impl Reconciler for Keeper {
    type Done = Done;

    fn changes(&mut self) -> Option<Changes> {
        if !self.pods.synced() {
            return None;
        }
        let views = self.pods.all();
        let claims = Claims::of(&views);
        let (mut all, mut changed) = (BTreeSet::new(), Vec::new());
        for view in views {
            let uid: Uid = view.uid().into();
            all.insert(Uid::clone(&uid));
            let claimed = claims.check(&view);
            let known = self.memory.get_mut(&uid);
            let is_same = known
                .as_ref()
                .is_some_and(|m| Arc::ptr_eq(&m.view, &view) && m.claimed == claimed);
            if is_same {
                continue;
            }
            match known {
                Some(memory) => memory.view = view,
                None => _ = self.memory.insert(Uid::clone(&uid), Memory::new(view)),
            }
            if let Some(memory) = self.memory.get_mut(&uid) {
                memory.claimed = claimed;
            }
            changed.push(uid);
        }
        for (uid, by) in self.drifted.take() {
            if let Some(memory) = self.memory.get_mut(&uid) {
                memory.drifted = Some(by);
                changed.push(uid);
            }
        }
        let is_gone = |uid: &&Uid| !all.contains(*uid);
        let gone: Vec<Uid> = self.memory.keys().filter(is_gone).cloned().collect();
        gone.iter().for_each(|uid| self.drift.forget(uid));
        self.memory.retain(|uid, _| all.contains(uid));
        self.sandboxes
            .retain(&all.iter().map(|uid| &**uid).collect());
        Some(Changes { all, changed, gone })
    }

    fn job(&mut self, start: &Start) -> Result<Job<Done>, Next> {
        let Some(mut memory) = self.memory.remove(&start.uid) else {
            return Err(Next::Settled);
        };
        let job = match self.action(&mut memory) {
            Some(action) => self.act(action, &mut memory, start),
            None => self.state_job(&mut memory, start),
        };
        self.memory.insert(Uid::clone(&start.uid), memory);
        job
    }

    fn done(&mut self, uid: &Uid, done: Result<Done, String>) -> Next {
        let Some(mut memory) = self.memory.remove(uid) else {
            // The pod was deleted during the job, which may have started to watch its network namespace and keeps it open.
            self.drift.forget(uid);
            self.sandboxes.forget(uid);
            return Next::Settled;
        };
        let running = memory.running.take();
        let next = match (done, running) {
            (Ok(Done::Visit(answer)), Some(running)) => self.visited(&mut memory, running, *answer),
            (Ok(Done::Request(action, done)), _) => self.requested(action, &mut memory, done),
            (Err(why), Some(running)) => {
                self.visited(&mut memory, running, (Err(why), Default::default()))
            }
            (_, None) => Next::Settled,
        };
        self.memory.insert(Uid::clone(uid), memory);
        next
    }

    fn late(&mut self, uid: &Uid) {
        let Some(mut memory) = self.memory.remove(uid) else {
            return;
        };
        if let Some(running) = &mut memory.running {
            running.late = true;
            let of = (running.cause, running.look.clone());
            if of.0 == Cause::State {
                let why = format!(
                    "its network namespace took longer than {PATIENCE:?} to look at; that goes on, and other pods are \
                     looked at meanwhile"
                );
                self.state(&mut memory, (of.1, None), Err(why), true);
            }
        }
        self.memory.insert(Uid::clone(uid), memory);
    }

    fn round(&mut self, ended: bool) {
        let Some(interval) = self.settings.interval else {
            return;
        };
        if !ended {
            // The deadline applies to the first round, too.
            if !std::mem::replace(&mut self.began, true) {
                self.journal.record(Event::RoundsBegin { interval });
            }
            return;
        }
        let all = self.memory.values().filter_map(|m| m.unasked.as_ref());
        let (mut unasked, mut unseen) = (Vec::new(), Vec::new());
        for found in all {
            match found {
                Ok(found) => unasked.push(found.clone()),
                Err(line) => unseen.push(line.clone()),
            }
        }
        self.journal.record(Event::RoundEnded {
            interval,
            unasked: unasked.into(),
            unseen: (unseen.len(), unseen.first().cloned()),
        });
    }

    fn show(&mut self) {
        let mut expected: Vec<_> = self.memory.values().filter_map(Memory::state).collect();
        let name = |state: &PodState| {
            let pod = &state.pod;
            (Arc::clone(&pod.namespace), Arc::clone(&pod.name))
        };
        expected.sort_by_key(name);
        let expected = expected.into();
        self.journal.record(Event::Seen { expected });
    }

    fn verdict(&self, uid: &Uid) -> Result<(), String> {
        let memory = self.memory.get(uid).ok_or("the pod is gone")?;
        match &memory.failed {
            Some((why, _)) => Err(why.clone()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_core::api::access::Access;
    use weir_core::api::connection::Connection;
    use weir_core::settings::resolve;
    use weir_core::thread::runtime;

    fn keeper(sandboxes: &Sandboxes) -> Keeper {
        let access = Access {
            host: "127.0.0.1".into(),
            port: "443".into(),
            ..Access::default()
        };
        let connection = Connection::of_actions(&access).unwrap();
        let settings = RepairSettings::of(&resolve(&BTreeMap::new(), &|_| None)).unwrap();
        Keeper::new(
            settings.unwrap(),
            (Pods::new().0, sandboxes.clone()),
            Actions::new(&connection, "node1"),
            (Drift::new(Arc::new(|_, _| {})).0, Drifted::default()),
            Journal::default(),
        )
    }

    #[test]
    fn a_pod_whose_repair_is_put_off_has_a_reason() {
        use weir_core::journal::pod::Repair;
        let runtime = runtime::of_one_thread("test").unwrap();
        let _entered = runtime.enter();
        let mut keeper = keeper(&Sandboxes::of_node());
        keeper.settings.interval = Some(Duration::from_secs(30));
        let mut pod = weir_testing::pods::sidecar("shop", "web");
        pod["status"] = serde_json::json!({"phase": "Running", "podIP": "10.0.0.1"});
        let view = weir_core::pods::PodView::from_value(&pod).unwrap();
        let mut memory = Memory::new(Arc::new(view));
        let repair = Repair {
            first: String::new(),
            differences: 1,
            cause: weir_core::journal::pod::Cause::Missing,
            summary: String::new(),
        };
        while memory.heals.pause(Instant::now()).is_none() {
            let pod = memory.view.reference();
            memory.heals.made(pod, repair.clone(), None);
        }
        memory.drifted = Some(None);
        let start = Start {
            uid: "a".into(),
            sweep: false,
            since: Instant::now(),
        };
        assert!(matches!(
            keeper.state_job(&mut memory, &start),
            Err(Next::After(_))
        ));
        let state = memory.state().unwrap();
        let why = state.error.unwrap_or_default();
        assert!(!state.verified && why.contains("again and again"), "{why}");
    }

    /// Otherwise the descriptors from its job would stay open until the process ends.
    #[test]
    fn the_namespace_of_a_pod_that_goes_during_its_job_is_let_go() {
        let netns = weir_testing::namespace_or_skip!();
        let (sandboxes, identity) = (Sandboxes::of_node(), Identity::called("a"));
        let runtime = runtime::of_one_thread("test").unwrap();
        let _entered = runtime.enter();
        let mut keeper = keeper(&sandboxes);
        sandboxes.announce_path("a", &netns.path()).unwrap();
        sandboxes.find(&identity, Instant::now()).unwrap();
        assert!(sandboxes.kept(&identity).is_some());
        keeper.done(&"a".into(), Err("it has ended".into()));
        assert!(sandboxes.kept(&identity).is_none());
    }
}
