//! The reconciler of ambient mode: detects changes, starts the task of each pod, and processes the results.

mod annotate;
mod jobs;
mod told;

pub(super) use annotate::{Annotate, annotate};
pub(super) use told::{Sandbox, Told};

use super::decision::{Decision, decide};
use super::hands::{Hands, Workload};
use super::pod::{Annotation, Memory, Task};
use super::roster::Roster;
use super::settings::AmbientSettings;
use super::work::{Enrolled, Left, NotEnrolled};
use crate::dataplane::Spent;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use weir_cni::plugin::Phase;
use weir_core::journal::Journal;
use weir_core::journal::ambient::{Event, Member, Proxy, State};
use weir_core::pods::{NamespaceView, PodView, Pods};
use weir_core::sandboxes::Sandboxes;
use weir_core::sandboxes::claims::Claims;
use weir_drift::{Drift, Drifted};
use weir_reconcile::{Changes, Job, Next, Reconciler, Start, Uid};

/// The reconciler, with the state of all pods.
pub(super) struct Keeper {
    pub(super) settings: Arc<AmbientSettings>,
    pub(super) pods: Pods,
    pub(super) sandboxes: Sandboxes,
    pub(super) hands: Hands,
    pub(super) roster: Roster,
    pub(super) annotate: Annotate,
    pub(super) told: Told,
    pub(super) drifted: Drifted,
    pub(super) drift: Drift,
    pub(super) journal: Journal,
    /// Boxed: the state of a pod is taken out while it is changed.
    pub(super) memory: BTreeMap<Uid, Box<Memory>>,
    /// The Kubernetes namespaces of pods, as last seen.
    pub(super) namespaces: BTreeMap<String, Arc<NamespaceView>>,
    /// The pods that existed before this agent are known.
    pub(super) began: bool,
    /// The newest connection of the proxy when changes were last collected.
    pub(super) proxy: Option<u64>,
    /// The removal of what captured for an agent with another setting was started.
    pub(super) all_captured: bool,
}

/// The result of a job.
pub(super) enum Done {
    Enrolled(Box<Result<Enrolled, NotEnrolled>>, Spent),
    Left(Box<Left>),
    Annotated(Option<Annotation>, Result<String, String>),
}

impl Keeper {
    /// Updates the state of a pod from its view. Returns true if anything changed.
    fn see(&mut self, view: Arc<PodView>, claimed: Result<(), String>) -> bool {
        let namespace = self.pods.namespace(view.namespace());
        let decision = decide(&self.settings, &view, namespace.as_deref());
        let is_new = !self.memory.contains_key(view.uid());
        let was_there = is_new && !self.began;
        // While pods were not watched, the plugin may have handed this pod over, and it was taken for the previous pod of this name.
        let inherited = was_there || (is_new && self.is_handed_over(&view));
        if is_new {
            let memory = Memory::new(Arc::clone(&view));
            self.memory.insert(view.uid().into(), memory.into());
        }
        let Some(memory) = self.memory.get_mut(view.uid()) else {
            return false;
        };
        let is_same = Arc::ptr_eq(&memory.view, &view)
            && memory.decision == decision
            && memory.claimed == claimed
            && !memory.gone;
        memory.inherited |= inherited;
        memory.is_known |= was_there && Annotation::of(&view).is_some();
        (memory.gone, memory.decision, memory.claimed) = (false, decision, claimed);
        memory.namespace = namespace;
        memory.saw(view);
        if is_new && memory.annotation() == Some(Annotation::Enabled) && !memory.view.ended() {
            // The proxy may have it from an earlier agent and keeps it until its network namespace is known.
            self.roster.keep(workload(memory));
        }
        is_new || !is_same
    }

    /// Returns true if the plugin handed over a pod of this name.
    fn is_handed_over(&self, view: &PodView) -> bool {
        let is_it = |of: &PodView| (of.namespace(), of.name()) == (view.namespace(), view.name());
        let mut all = self.memory.values();
        all.any(|memory| memory.by_plugin.is_some() && is_it(&memory.view))
    }

    /// Records changes of Kubernetes namespaces; their consequences are decided per pod.
    fn see_namespaces(&mut self, views: &[Arc<PodView>]) {
        let names: BTreeSet<&str> = views.iter().map(|view| view.namespace()).collect();
        let now = |name: &&str| Some(((*name).to_owned(), self.pods.namespace(name)?));
        let now: BTreeMap<_, _> = names.iter().filter_map(now).collect();
        let before = std::mem::replace(&mut self.namespaces, now);
        let record = |kind| self.journal.record(Event::Reconciled { kind });
        for (name, namespace) in &self.namespaces {
            match before.get(name) {
                None => record("add"),
                Some(old) if old.labels != namespace.labels => record("update"),
                Some(_) => {}
            }
        }
        let is_gone = |name: &&String| self.pods.namespace(name).is_none();
        before.keys().filter(is_gone).for_each(|_| record("delete"));
    }

    /// Updates the state of one pod from the latest view.
    fn see_newest(&mut self, uid: &str) {
        let views = self.pods.all();
        if let Some(view) = views.iter().find(|view| view.uid() == uid) {
            let claimed = self.claimed(&self.claims(&views), view);
            self.see(Arc::clone(view), claimed);
        }
    }

    /// Returns the claims of addresses, including those that the plugin reported for pods.
    fn claims(&self, views: &[Arc<PodView>]) -> Claims {
        Claims::with(views, |view| match self.memory.get(view.uid()) {
            Some(memory) => memory.addresses_by(view),
            None => view.addresses(),
        })
    }

    fn claimed(&self, claims: &Claims, view: &PodView) -> Result<(), String> {
        match self.memory.get(view.uid()) {
            Some(memory) => claims.check_for(view, &memory.addresses_of_hearsay(view)),
            None if !self.began && Annotation::of(view).is_some() => claims.check_for(view, &[]),
            None => claims.check(view),
        }
    }

    /// Sets the state of a pod, with the reason, and records the change.
    fn turn(&self, memory: &mut Memory, to: Option<State>, why: Option<String>) {
        let from = memory.state;
        if from == to && memory.why == why {
            return;
        }
        if from != to {
            memory.since = SystemTime::now();
        }
        (memory.state, memory.why) = (to, why.clone().filter(|_| to.is_some()));
        let pod = memory.reference();
        self.journal.record(Event::Turned { pod, from, to, why });
    }
}

/// Returns the pod as sent to the proxy, without its network namespace.
fn workload(memory: &Memory) -> Workload {
    let view = &memory.view;
    Workload {
        uid: view.uid().into(),
        name: view.name().into(),
        namespace: view.namespace().into(),
        service_account: view.service_account.as_str().into(),
        captured: None,
    }
}

impl Reconciler for Keeper {
    type Done = Done;

    fn changes(&mut self) -> Option<Changes> {
        if !self.pods.synced() {
            return None;
        }
        let views = self.pods.all();
        self.see_namespaces(&views);
        let claims = self.claims(&views);
        let there: BTreeSet<&str> = views.iter().map(|view| view.uid()).collect();
        let mut changed: BTreeSet<Uid> = BTreeSet::new();
        for view in &views {
            let claimed = self.claimed(&claims, view);
            if self.see(Arc::clone(view), claimed) {
                changed.insert(view.uid().into());
            }
        }
        self.began = true;
        for (uid, memory) in &mut self.memory {
            if !there.contains(&**uid) && !std::mem::replace(&mut memory.gone, true) {
                changed.insert(Uid::clone(uid));
            }
        }
        for (uid, by) in self.drifted.take() {
            if let Some(memory) = self.memory.get_mut(&uid) {
                memory.drifted = Some(by);
                changed.insert(uid);
            }
        }
        let answered = self.roster.take_answered().into_iter();
        changed.extend(answered.filter(|uid| self.memory.contains_key(uid)));
        let proxy = self.hands.proxy.newest();
        if proxy != self.proxy {
            self.proxy = proxy;
            let members = self.memory.iter().filter(|(_, m)| m.captured.is_some());
            changed.extend(members.map(|(uid, _)| Uid::clone(uid)));
        }
        // Deleted pods without traces are forgotten; others need a removal first. What a running job leaves is known when it ends.
        let is_left = |memory: &Memory| {
            let is_idle = memory.gone && memory.in_flight.is_none();
            is_idle && memory.task(None, false, Instant::now()) == Task::Forget
        };
        let gone: Vec<Uid> = self
            .memory
            .iter()
            .filter(|(_, memory)| is_left(memory))
            .map(|(uid, _)| Uid::clone(uid))
            .collect();
        for uid in &gone {
            if let Some(mut memory) = self.memory.remove(uid) {
                self.turn(&mut memory, None, None);
            }
            changed.remove(uid);
            self.told.take(uid);
            self.drift.forget(uid);
        }
        let all: BTreeSet<Uid> = self.memory.keys().cloned().collect();
        self.sandboxes
            .retain(&all.iter().map(|uid| &**uid).collect());
        Some(Changes {
            all,
            changed: changed.into_iter().collect(),
            gone,
        })
    }

    fn job(&mut self, start: &Start) -> Result<Job<Done>, Next> {
        let told = self.told.take(&start.uid);
        // The entry saw the pod a moment ago, possibly after the last collection of changes.
        match self.memory.get_mut(&start.uid) {
            None => self.see_newest(&start.uid),
            Some(memory) if told.is_some() => {
                let views = self.pods.all().into_iter();
                let newest = views.filter(|view| view.uid() == &*start.uid);
                newest.for_each(|view| memory.saw(view));
            }
            Some(_) => {}
        }
        let is_told = told.is_some();
        let mut is_new = false;
        if let (Some(sandbox), Some(memory)) = (told, self.memory.get_mut(&start.uid)) {
            // For a further interface, as with Multus, the plugin is called for the same network namespace: the state is kept.
            let netns = memory.captured.as_ref().map(|captured| captured.netns);
            is_new = !netns.is_some_and(|id| self.sandboxes.is_at(&sandbox.netns, id));
            if is_new {
                memory.handed_over(sandbox);
            }
            // Its addresses may have changed.
            self.see_newest(&start.uid);
        }
        let Some(mut memory) = self.memory.remove(&start.uid) else {
            return Err(Next::Settled);
        };
        if is_new {
            // The state answers the plugin's request, and that of the previous sandbox does not apply.
            if memory.state.is_some() {
                self.turn(&mut memory, Some(State::Enrolling), None);
            }
        }
        memory.at = start.since;
        let look = start.sweep || is_told;
        let task = memory.task(self.hands.proxy.newest(), look, Instant::now());
        let job = self.start(&mut memory, task, start);
        self.memory.insert(Uid::clone(&start.uid), memory);
        job
    }

    fn done(&mut self, uid: &Uid, done: Result<Done, String>) -> Next {
        let Some(mut memory) = self.memory.remove(uid) else {
            return Next::Settled;
        };
        memory.in_flight = None;
        // The state before this attempt.
        let is_new = memory.captured.is_none() && memory.annotation().is_none();
        let is_add = is_new && matches!(done, Ok(Done::Enrolled(..)));
        let next = match done {
            Ok(Done::Enrolled(enrolled, spent)) => {
                self.journal.record(spent.measured());
                let took = spent.of(Phase::Verify);
                memory.heals.took(took, Instant::now());
                self.enrolled(&mut memory, *enrolled)
            }
            Ok(Done::Left(left)) => self.left(&mut memory, *left),
            Ok(Done::Annotated(value, done)) => self.annotated(&mut memory, value, done),
            Err(why) => {
                if let Some(captured) = &mut memory.captured {
                    captured.fingerprint = None;
                }
                memory.suspected = true;
                self.turn(&mut memory, Some(State::Failed), Some(why));
                Next::Retry
            }
        };
        let kind = match (memory.gone, is_add) {
            (true, _) => "delete",
            (false, true) => "add",
            (false, false) => "update",
        };
        self.journal.record(Event::Reconciled { kind });
        self.memory.insert(Uid::clone(uid), memory);
        self.check_all_captured();
        next
    }

    fn late(&mut self, uid: &Uid) {
        let state = match self.memory.get(uid).and_then(|memory| memory.state) {
            // The reason of an earlier failure is kept; a pod unrelated to the mesh has no state.
            None | Some(State::Failed) => return,
            Some(state @ (State::Enrolling | State::Leaving)) => state,
            Some(_) => State::Pending,
        };
        if let Some(mut memory) = self.memory.remove(uid) {
            let why = "its namespace, or the proxy, takes long; that goes on, and other pods are dealt with meanwhile";
            self.turn(&mut memory, Some(state), Some(why.to_owned()));
            self.memory.insert(Uid::clone(uid), memory);
        }
    }

    fn round(&mut self, ended: bool) {
        if !ended {
            return;
        }
        self.roster.complete();
        for memory in self.memory.values_mut() {
            // Its network namespace may not be found, and its addresses may be missing: the next sandbox gets the same or others.
            let is_enabled = memory.annotation() == Some(Annotation::Enabled);
            if is_enabled && memory.is_of_earlier_agent() && memory.claimed.is_ok() {
                memory.probed = memory.addresses();
            }
        }
        let (mut all, mut spared) = (BTreeMap::new(), BTreeMap::new());
        let mut memories: Vec<_> = self.memory.iter().collect();
        // If several pods had an address in succession, the one verified last gets it, not one whose network namespace is
        // no longer found; addresses of a running job are newer still.
        memories.sort_by_key(|(_, m)| (m.adds().is_some(), m.is_verified(), m.verified_at));
        for (uid, memory) in memories {
            if memory.is_of_earlier_agent() {
                spared.insert(Uid::clone(uid), memory.addresses());
            }
            let addresses = memory.adds().unwrap_or(&memory.probed).iter();
            all.extend(addresses.map(|address| (*address, Uid::clone(uid))));
        }
        self.hands.probes.expect(all, spared);
        self.check_all_captured();
    }

    fn show(&mut self) {
        let members: Vec<Member> = self.memory.values().filter_map(|m| m.member()).collect();
        let members = Arc::new(members);
        self.journal.record(Event::Members { members });
        let peers = self.hands.proxy.peers().into();
        self.journal.record(Event::Proxy(Proxy::Peers(peers)));
    }

    /// Undecided until the proxy answers.
    fn is_undecided(&self, uid: &Uid) -> bool {
        let memory = self.memory.get(uid);
        memory.is_some_and(|m| m.waits && m.state == Some(State::Pending))
    }

    fn verdict(&self, uid: &Uid) -> Result<(), String> {
        let memory = self.memory.get(uid).ok_or("the pod is gone")?;
        match (memory.state, &memory.why) {
            (Some(State::Enrolled | State::Conflict), _) => Ok(()),
            // Only its annotation is missing.
            (Some(State::Pending), _) if memory.is_complete(self.hands.proxy.newest()) => Ok(()),
            (Some(state), Some(why)) => Err(format!("it is {}: {why}", state.name())),
            (Some(state), None) => Err(format!("it is {}", state.name())),
            (None, _) => Err("it is not a pod of ambient mode".to_owned()),
        }
    }
}

impl Keeper {
    /// Starts the removal of what captured for an agent with another setting once no pod needs it. A pod whose membership is unknown may
    /// still need it.
    fn check_all_captured(&mut self) {
        let is_done = |m: &Memory| {
            let needs_nothing = match m.decision {
                Decision::Member => false,
                Decision::No(_) => true,
                Decision::Unknown => m.annotation().is_none(),
            };
            needs_nothing || m.gone || m.is_verified()
        };
        if !self.all_captured && self.began && self.memory.values().all(|m| is_done(m)) {
            self.all_captured = true;
            self.hands.probes.all_captured();
        }
    }
}
