//! Joins what is known of the pods with the queue: what changed, what is to be done for whom, what became of it.

use super::REDIRECTION;
use super::decision::{Decision, decide};
use super::hands::{Asked, Hands, Outcome, Workload};
use super::pod::{Annotation, Memory, Task};
use super::roster::Roster;
use super::settings::AmbientSettings;
use super::work::{self, Enrolled, Enrolment, Leaving, Left};
use crate::dataplane::Spent;
use crate::drift::{Drift, Drifted};
use crate::reconcile::{Changes, Job, Next, Reconciler, Start, Uid};
use futures::FutureExt;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use weir_ambient::PodOverrides;
use weir_cni::plugin::Phases;
use weir_core::api::actions::Actions;
use weir_core::journal::ambient::{Event, Member, Proxy, State};
use weir_core::journal::pod::Writer;
use weir_core::journal::{Journal, pod};
use weir_core::pods::{PodView, Pods};
use weir_core::sandboxes::Sandboxes;
use weir_core::sandboxes::claims::Claims;

/// How long one attempt to write an annotation may take.
const ANNOTATION: Duration = Duration::from_secs(5);
/// Kubernetes events about repairs of one pod come no faster.
const EVENTS: Duration = Duration::from_secs(600);

/// What the plugin says of a pod that it hands over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sandbox {
    /// The API server may know none yet.
    pub(super) addresses: Vec<IpAddr>,
    /// `CNI_NETNS`
    pub(super) netns: PathBuf,
}

/// What the plugin said and was not looked at yet; clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Told(Arc<Mutex<BTreeMap<Uid, Sandbox>>>);

impl Told {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Uid, Sandbox>> {
        // Nothing in here panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, uid: &Uid, sandbox: Sandbox) {
        self.all().insert(Uid::clone(uid), sandbox);
    }

    fn take(&self, uid: &str) -> Option<Sandbox> {
        self.all().remove(uid)
    }
}

/// Writes annotations.
pub(super) type Annotate = Arc<
    dyn Fn(
            pod::PodRef,
            Option<Annotation>,
        ) -> futures::future::BoxFuture<'static, Result<(), String>>
        + Send
        + Sync,
>;

/// By way of the API server.
pub(super) fn annotate(actions: Actions) -> Annotate {
    let actions = Arc::new(actions);
    Arc::new(move |pod, value: Option<Annotation>| {
        let actions = Arc::clone(&actions);
        async move {
            let text = value.map(Annotation::text);
            let written = actions.annotate(&pod, REDIRECTION, text);
            // Nothing else is done for the pod meanwhile.
            let limit = tokio::time::timeout(ANNOTATION, written);
            let late = || {
                format!(
                    "the API server does not answer within {} s",
                    ANNOTATION.as_secs()
                )
            };
            limit.await.unwrap_or_else(|_| Err(late()))
        }
        .boxed()
    })
}

/// Knows the pods, and what was done for them.
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
    pub(super) memory: BTreeMap<Uid, Memory>,
    /// The pods that were there before this agent are known.
    pub(super) began: bool,
    /// The newest connection of the proxy when the pods were looked at last.
    pub(super) proxy: Option<u64>,
}

/// What a job ends with.
pub(super) enum Done {
    Enrolled(Box<Result<Enrolled, String>>, Spent),
    Left(Box<Left>),
    Annotated(Option<Annotation>, Result<(), String>),
}

impl Keeper {
    /// What is known of a pod is brought up to date. Whether that changed anything.
    fn see(&mut self, view: Arc<PodView>, claimed: Result<(), String>) -> bool {
        let uid: Uid = view.uid().into();
        let namespace = self.pods.namespace(view.namespace());
        let decision = decide(&self.settings, &view, namespace.as_deref());
        let is_new = !self.memory.contains_key(&uid);
        let inherited = is_new && !self.began;
        let memory = self
            .memory
            .entry(uid)
            .or_insert_with(|| Memory::new(Arc::clone(&view)));
        let is_same = Arc::ptr_eq(&memory.view, &view)
            && memory.decision == decision
            && memory.claimed == claimed
            && !memory.gone;
        memory.inherited |= inherited;
        (memory.gone, memory.decision, memory.claimed) = (false, decision, claimed);
        memory.namespace = namespace;
        memory.saw(view);
        if is_new && memory.annotation() == Some(Annotation::Enabled) && !memory.view.ended() {
            // The proxy may have it from an earlier agent, and keeps it until it is known where it is.
            self.roster.keep(workload(memory));
        }
        is_new || !is_same
    }

    /// Who claims which address. About pods that the plugin has handed over more is known than the API server says.
    fn claims(&self, views: &[Arc<PodView>]) -> Claims {
        Claims::with(views, |view| match self.memory.get(view.uid()) {
            Some(memory) => memory.addresses_by(view),
            None => view.addresses(),
        })
    }

    fn claimed(&self, claims: &Claims, view: &PodView) -> Result<(), String> {
        match self.memory.get(view.uid()) {
            Some(memory) => claims.check_for(view, &memory.addresses_of_hearsay(view)),
            None => claims.check(view),
        }
    }

    /// The state of a pod, and why.
    fn turn(&self, memory: &mut Memory, to: Option<State>, why: Option<String>) {
        let from = memory.state;
        if from == to && memory.why == why {
            return;
        }
        if from != to {
            memory.since = SystemTime::now();
        }
        (memory.state, memory.why) = (to, why.clone());
        let pod = memory.reference();
        self.journal.record(Event::Turned { pod, from, to, why });
    }

    fn start(&self, memory: &mut Memory, task: Task, start: &Start) -> Result<Job<Done>, Next> {
        match task {
            Task::Nothing(None) => Err(Next::Settled),
            Task::Nothing(Some((state, why))) => {
                self.turn(memory, Some(state), Some(why));
                Err(Next::Settled)
            }
            Task::Later(pause) => {
                if memory.drifted.is_some() {
                    let why = "another program changes its rules again and again, and did since they were repaired; they are \
                               compared and repaired after a pause of at most 30 s";
                    self.turn(memory, Some(State::Failed), Some(why.to_owned()));
                }
                Err(Next::After(pause))
            }
            Task::Forget => {
                self.turn(memory, None, None);
                memory.inherited = false;
                Err(Next::Settled)
            }
            Task::Enrol => Ok(self.enrol(memory, start)),
            Task::Leave { running } => Ok(self.leave(memory, running)),
            Task::Annotate(value) => {
                memory.annotate = None;
                let request = (self.annotate)(memory.reference(), value);
                Ok(Job::Request(
                    request
                        .map(move |done| Done::Annotated(value, done))
                        .boxed(),
                ))
            }
        }
    }

    fn enrol(&self, memory: &mut Memory, start: &Start) -> Job<Done> {
        if memory.captured.is_none() && memory.state != Some(State::Failed) {
            self.turn(memory, Some(State::Enrolling), None);
        }
        // What annotations say later has no effect on rules that are there.
        let overrides = match &memory.captured {
            Some(captured) => captured.asked.overrides.clone(),
            None => PodOverrides::of_annotations(&memory.view.pod.metadata.annotations),
        };
        let asked = Asked {
            identity: memory.identity(),
            overrides,
        };
        let (workload, since) = (workload(memory), start.since);
        let (netns, sandboxes) = (memory.netns.clone(), self.sandboxes.clone());
        let (before, taken) = (memory.captured.clone(), memory.taken);
        let (addresses, probed) = (memory.addresses(), memory.probed.clone());
        let (probes_pass, proved) = (memory.probes_pass, memory.proved.is_some());
        memory.in_flight = Some(addresses.clone());
        let (hands, roster) = (self.hands.clone(), self.roster.clone());
        Job::Thread(Box::new(move || {
            let mut spent = Spent::default();
            let work = Enrolment {
                asked,
                workload,
                before,
                taken,
                addresses,
                probed,
                probes_pass,
                proved,
                since,
            };
            // With the rights of this thread.
            let announced = netns.map_or(Ok(()), |path| {
                sandboxes.announce_path(&work.workload.uid, &path)
            });
            let enrolled = announced.and_then(|()| work::enrol(&hands, &roster, work, &mut spent));
            Done::Enrolled(Box::new(enrolled), spent)
        }))
    }

    fn leave(&self, memory: &mut Memory, running: bool) -> Job<Done> {
        if memory.has_traces() && memory.state != Some(State::Leaving) {
            self.turn(memory, Some(State::Leaving), None);
        }
        let before = memory.captured.clone();
        let asked = before.as_ref().map_or_else(
            || Asked {
                identity: memory.identity(),
                overrides: PodOverrides::default(),
            },
            |captured| captured.asked.clone(),
        );
        memory.in_flight = Some(Vec::new());
        let leaving = Leaving {
            asked,
            uid: memory.view.uid().into(),
            running,
            before,
            probed: memory.probed.clone(),
            announced: memory.announced,
        };
        let (hands, roster) = (self.hands.clone(), self.roster.clone());
        Job::Thread(Box::new(move || {
            Done::Left(Box::new(work::leave(&hands, &roster, leaving)))
        }))
    }

    fn enrolled(&self, memory: &mut Memory, done: Result<Enrolled, String>) -> Next {
        let by = memory.drifted.take().flatten();
        // It may have been handed to the proxy already.
        memory.announced = true;
        let enrolled = match done {
            Ok(enrolled) => enrolled,
            Err(why) => {
                // What is not known is not shown as good.
                if memory.captured.is_none() {
                    memory.announced = memory.annotation().is_some() || memory.taken.is_some();
                }
                (memory.captured, memory.suspected, memory.proved) = (None, true, None);
                self.roster.unsure(memory.view.uid());
                self.turn(memory, Some(State::Failed), Some(why));
                return Next::Retry;
            }
        };
        // Until then no other namespace will do: one that is found in another way may be of an earlier sandbox.
        memory.netns = None;
        memory.verified_at = Some(SystemTime::now());
        self.outcome(memory, &enrolled, by);
        let netns = enrolled.captured.netns;
        (memory.captured, memory.suspected) = (Some(enrolled.captured), false);
        memory.probed = enrolled.probed.0;
        memory.probes_pass = enrolled.probed.1.is_ok();
        memory.taken = enrolled.taken.as_ref().ok().map(|by| (*by, netns));
        let (target, why) = match (enrolled.taken, enrolled.probed.1) {
            (Ok(_), Ok(())) => (Some(Annotation::Enabled), None),
            (Err(why), _) => (Some(Annotation::Pending), Some(why)),
            // As upstream: until probes get through the annotation stays.
            (Ok(_), Err(why)) => (memory.annotation(), Some(why)),
        };
        let is_due = memory.annotation() != target;
        memory.annotate = is_due.then_some(target);
        memory.not_annotated = false;
        let state = match why {
            None => State::Enrolled,
            Some(_) => State::Pending,
        };
        let is_settled = why.is_none();
        self.turn(memory, Some(state), why);
        // Another proxy connected meanwhile, or this one went: nobody else looks at a pod whose job runs.
        let newest = self.hands.proxy.newest();
        let is_outdated = memory.taken.is_some_and(|(by, _)| Some(by) != newest);
        match (is_due || is_outdated, is_settled) {
            (true, _) => Next::After(Duration::ZERO),
            (false, true) => Next::Settled,
            (false, false) => Next::Retry,
        }
    }

    fn outcome(&self, memory: &mut Memory, enrolled: &Enrolled, by: Option<Writer>) {
        let pod = memory.reference();
        if let Some(proof) = &enrolled.proof {
            memory.proved = Some(proof.answer());
            let (pod, proof) = (pod.clone(), proof.clone());
            self.journal.record(Event::Proved { pod, proof });
        }
        match &enrolled.outcome {
            Outcome::Same => {}
            Outcome::Made { summary } => self.journal.record(Event::Enrolled {
                pod,
                summary: summary.clone(),
                took: enrolled.took,
            }),
            Outcome::Healed {
                first,
                differences,
                cause,
                summary,
            } => {
                let now = Instant::now();
                let notify = memory.event.is_none_or(|at| now - at >= EVENTS);
                if notify {
                    memory.event = Some(now);
                }
                self.journal.record(Event::Healed {
                    pod: pod.clone(),
                    first: first.clone(),
                    differences: *differences,
                    cause: *cause,
                    by: by.clone(),
                    summary: summary.clone(),
                    notify,
                });
                if let Some((times, pause)) = memory.heals.add(now) {
                    self.journal.record(Event::Contention {
                        pod,
                        times,
                        pause,
                        by,
                    });
                }
            }
        }
    }

    fn left(&self, memory: &mut Memory, left: Left) -> Next {
        // Of a pod that was only looked at nothing is known to be left. It is looked at until that succeeds: an earlier agent may
        // have ended before the annotation said that it had captured it.
        let was_member = memory.has_traces();
        memory.inherited &= left.why.is_some() && !was_member;
        (memory.probed, memory.captured) = (left.probed, left.captured);
        memory.probes_pass = false;
        memory.announced = left.announced;
        memory.suspected = left.suspected && was_member;
        memory.taken = None;
        memory.told = None;
        match left.why.filter(|_| was_member) {
            Some(why) => {
                self.turn(memory, Some(State::Leaving), Some(why));
                Next::Retry
            }
            None if memory.inherited && !memory.gone => Next::Retry,
            None if memory.gone => {
                self.turn(memory, None, None);
                Next::Settled
            }
            // The annotation is next.
            None => Next::After(Duration::ZERO),
        }
    }

    fn annotated(
        &self,
        memory: &mut Memory,
        value: Option<Annotation>,
        done: Result<(), String>,
    ) -> Next {
        match done {
            Ok(()) => {
                memory.annotated = Some(value);
                match memory.state {
                    Some(State::Pending | State::Failed) => Next::Retry,
                    Some(State::Leaving) => Next::After(Duration::ZERO),
                    _ => Next::Settled,
                }
            }
            // A pod that is being deleted needs none, and soon is not there.
            Err(_) if memory.gone || (memory.view.deleting && value.is_none()) => Next::Settled,
            Err(why) => {
                let pod = memory.reference();
                self.journal.record(Event::NotAnnotated { pod, why });
                memory.annotate = Some(value).filter(|_| memory.decision == Decision::Member);
                memory.not_annotated = true;
                Next::Retry
            }
        }
    }
}

/// The pod as the proxy knows it, without its namespace.
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
        let claims = self.claims(&views);
        let there: BTreeSet<Uid> = views.iter().map(|view| view.uid().into()).collect();
        let mut changed = BTreeSet::new();
        for view in views {
            let uid: Uid = view.uid().into();
            let claimed = self.claimed(&claims, &view);
            if self.see(view, claimed) {
                changed.insert(uid);
            }
        }
        self.began = true;
        for (uid, memory) in &mut self.memory {
            if !there.contains(uid) && !std::mem::replace(&mut memory.gone, true) {
                changed.insert(Uid::clone(uid));
            }
        }
        for (uid, by) in self.drifted.take() {
            if let Some(memory) = self.memory.get_mut(&uid) {
                memory.drifted = Some(by);
                changed.insert(uid);
            }
        }
        let proxy = self.hands.proxy.newest();
        if proxy != self.proxy {
            self.proxy = proxy;
            let members = self.memory.iter().filter(|(_, m)| m.captured.is_some());
            changed.extend(members.map(|(uid, _)| Uid::clone(uid)));
        }
        // What is gone and left nothing is forgotten; the rest has to be removed first.
        let is_left = |memory: &Memory| {
            memory.gone && memory.task(None, false, Instant::now()) == Task::Forget
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
        if !self.memory.contains_key(&start.uid) {
            // The plugin hands over what was seen a moment ago.
            let views = self.pods.all();
            let Some(view) = views.iter().find(|view| view.uid() == &*start.uid) else {
                return Err(Next::Settled);
            };
            let claimed = self.claims(&views).check(view);
            self.see(Arc::clone(view), claimed);
        }
        let told = self.told.take(&start.uid);
        if let (Some(told), Some(memory)) = (&told, self.memory.get_mut(&start.uid)) {
            memory.handed_over(told.addresses.clone(), told.netns.clone());
            let view = Arc::clone(&memory.view);
            let claimed = self.claimed(&self.claims(&self.pods.all()), &view);
            if let Some(memory) = self.memory.get_mut(&start.uid) {
                memory.claimed = claimed;
            }
        }
        let Some(mut memory) = self.memory.remove(&start.uid) else {
            return Err(Next::Settled);
        };
        if told.is_some() {
            // The plugin is answered by the state: that of the sandbox before says nothing.
            if memory.state.is_some() {
                self.turn(&mut memory, Some(State::Enrolling), None);
            }
        }
        let task = memory.task(self.hands.proxy.newest(), start.sweep, Instant::now());
        let job = self.start(&mut memory, task, start);
        self.memory.insert(Uid::clone(&start.uid), memory);
        job
    }

    fn done(&mut self, uid: &Uid, done: Result<Done, String>) -> Next {
        let Some(mut memory) = self.memory.remove(uid) else {
            return Next::Settled;
        };
        memory.in_flight = None;
        let next = match done {
            Ok(Done::Enrolled(enrolled, spent)) => {
                self.measured(&spent);
                self.enrolled(&mut memory, *enrolled)
            }
            Ok(Done::Left(left)) => self.left(&mut memory, *left),
            Ok(Done::Annotated(value, done)) => self.annotated(&mut memory, value, done),
            Err(why) => {
                (memory.captured, memory.suspected) = (None, true);
                self.turn(&mut memory, Some(State::Failed), Some(why));
                Next::Retry
            }
        };
        let kind = match (memory.gone, memory.state) {
            (true, _) => "delete",
            (_, Some(State::Enrolling)) => "add",
            _ => "update",
        };
        self.journal.record(Event::Reconciled { kind });
        self.memory.insert(Uid::clone(uid), memory);
        next
    }

    fn late(&mut self, uid: &Uid) {
        if let Some(mut memory) = self.memory.remove(uid) {
            let why = "its namespace, or the proxy, takes long; that goes on, and other pods are dealt with meanwhile";
            let state = match memory.captured {
                Some(_) => State::Pending,
                None => State::Failed,
            };
            self.turn(&mut memory, Some(state), Some(why.to_owned()));
            self.memory.insert(Uid::clone(uid), memory);
        }
    }

    fn round(&mut self, ended: bool) {
        if !ended {
            return;
        }
        self.roster.complete();
        let mut all = BTreeMap::new();
        for (uid, memory) in &self.memory {
            let addresses = memory.in_flight.as_ref().unwrap_or(&memory.probed).iter();
            all.extend(addresses.map(|address| (*address, Uid::clone(uid))));
        }
        self.hands.probes.expect(all);
        let is_done = |m: &Memory| m.decision != Decision::Member || m.gone || m.captured.is_some();
        if self.memory.values().all(is_done) {
            self.hands.probes.all_captured();
        }
    }

    fn show(&mut self) {
        let mut members: Vec<Member> = self.memory.values().filter_map(Memory::member).collect();
        members
            .sort_by(|a, b| (&a.pod.namespace, &a.pod.name).cmp(&(&b.pod.namespace, &b.pod.name)));
        let members = members.into();
        self.journal.record(Event::Members { members });
        let peers = self.hands.proxy.peers().into();
        self.journal.record(Event::Proxy(Proxy::Peers(peers)));
    }

    fn verdict(&self, uid: &Uid) -> Result<(), String> {
        let memory = self.memory.get(uid).ok_or("the pod is gone")?;
        match (memory.state, &memory.why) {
            (Some(State::Enrolled), _) => Ok(()),
            (Some(state), Some(why)) => Err(format!("it is {}: {why}", state.name())),
            (Some(state), None) => Err(format!("it is {}", state.name())),
            (None, _) => Err("it is no pod of ambient mode".to_owned()),
        }
    }
}

impl Keeper {
    fn measured(&self, spent: &Spent) {
        let phases = Phases::default();
        for (phase, time) in &spent.0 {
            phases.add(*phase, *time);
        }
        self.journal.record(pod::Event::Measured {
            by: "agent",
            phases,
        });
    }
}
