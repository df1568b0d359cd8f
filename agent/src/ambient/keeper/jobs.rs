//! Starts the job for a pod's task and processes its result.

use super::{Done, Keeper, workload};
use crate::ambient::REDIRECTION;
use crate::ambient::by_plugin::ByPlugin;
use crate::ambient::decision::{Decision, Why};
use crate::ambient::hands::{Asked, Captured, Outcome};
use crate::ambient::pod::{Annotation, Memory, Task};
use crate::ambient::work::{self, Enrolled, Enrolment, Leaving, Left, NotEnrolled};
use crate::dataplane::Spent;
use futures::FutureExt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use weir_ambient::PodOverrides;
use weir_core::journal::ambient::{Event, State};
use weir_core::journal::pod::{Contention, Healed, Writer};
use weir_live::Proof;
use weir_reconcile::{Job, Next, Start, Uid};

/// Maximum delay before a pod is offered to the proxy again; as long as ztunnel waits for the agent.
const PENDING: Duration = Duration::from_secs(5);
/// The reason of a pending pod until the proxy has answered.
const WAITS: &str = "it is redirected, and waits for ztunnel";

/// Nothing follows, unless something about the pod's rules is unknown.
fn settled(memory: &Memory) -> Next {
    match memory.captured.as_ref().is_some_and(Captured::is_in_doubt) {
        true => Next::Retry,
        false => Next::Settled,
    }
}

/// Decides on the annotation. Returns true if it is to be written, and why the pod is not enrolled yet.
fn annotation_due(
    memory: &mut Memory,
    taken: Result<(), String>,
    probes: Result<(), String>,
) -> (bool, Option<String>) {
    let is_decided = taken.is_err() || probes.is_ok();
    let (target, why) = match (taken, probes) {
        (Ok(()), Ok(())) => (Some(Annotation::Enabled), None),
        // While `enabled`, other nodes send to the pod by HBONE only: the replacement of a proxy or of the agent must not
        // make them send plain text in the meantime.
        (Err(why), _) => (memory.annotation().or(Some(Annotation::Pending)), Some(why)),
        // As upstream, the annotation is not changed until probes get through.
        (Ok(()), Err(why)) => (memory.annotation(), Some(why)),
    };
    // After a failed write the API server may have the old or the new value, so it is written again.
    let is_unsure = memory.not_annotated.is_some() && is_decided;
    let is_due = memory.annotation() != target || is_unsure;
    memory.annotate = is_due.then_some(target);
    // Other nodes choose the protocol by the annotation: until it is written the pod is not enrolled.
    let refused = memory.not_annotated.take_if(|_| is_due);
    (is_due, why.or(refused))
}

impl Keeper {
    pub(super) fn start(
        &self,
        memory: &mut Memory,
        task: Task,
        start: &Start,
    ) -> Result<Job<Done>, Next> {
        match task {
            Task::Nothing(None) => Err(Next::Settled),
            Task::Nothing(Some((state, why))) => {
                self.turn(memory, Some(state), Some(why));
                Err(Next::Settled)
            }
            Task::Later(pause) => {
                if memory.drifted.is_some() && memory.decision == Decision::Member {
                    let why = "another program changes its rules again and again, or comparing them takes long, and something changed \
                               since; they are compared and repaired after a pause of at most 30 s";
                    self.turn(memory, Some(State::Failed), Some(why.to_owned()));
                }
                Err(Next::After(pause))
            }
            Task::Forget => {
                self.let_go(memory);
                self.turn(memory, None, None);
                // Without an address its network namespace could not be found yet.
                let view = &memory.view;
                let is_unseen = view.addresses().is_empty() && !view.pod.spec.host_network;
                memory.inherited &= is_unseen && !view.ended();
                Err(Next::Settled)
            }
            Task::Enrol => Ok(self.enrol(memory, start)),
            Task::Leave { running } => Ok(self.leave(memory, running)),
            Task::Annotate(value) => {
                memory.annotate = None;
                let _ = memory.writes.add(memory.at);
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
        let annotations = || PodOverrides::of_annotations(&memory.view.pod.metadata.annotations);
        let overrides = memory.overrides.clone().unwrap_or_else(annotations);
        let asked = Asked {
            identity: memory.identity(),
            overrides,
            by_plugin: memory.by_plugin.clone(),
        };
        let (workload, since) = (workload(memory), start.since);
        let (netns, sandboxes) = (memory.netns.clone(), self.sandboxes.clone());
        let is_verified = memory.overrides.is_some();
        let before = memory.captured.clone().filter(|_| is_verified);
        let at = memory.captured.as_ref().map(|captured| captured.netns);
        let was_captured = memory.was_captured().then_some(at);
        let (taken, waits) = (memory.taken, memory.waits);
        let (addresses, probed) = (memory.addresses(), memory.probed.clone());
        let is_proof = |proof: &Proof| proof.failure.is_none();
        let (probes_pass, proved) = (
            memory.probes_pass,
            memory.proved.as_ref().is_some_and(is_proof),
        );
        let in_flight = Arc::clone(memory.in_flight.insert(Arc::default()));
        memory.writer = memory.drifted.take().flatten().or(memory.writer.take());
        let (hands, roster) = (self.hands.clone(), self.roster.clone());
        Job::Thread(Box::new(move || {
            let mut spent = Spent::default();
            let mut work = Enrolment {
                asked,
                workload,
                before,
                was_captured,
                taken,
                waits,
                addresses,
                probed,
                probes_pass,
                proved,
                since,
            };
            // Needs the capabilities of this thread.
            let announced: Result<(), String> = netns.map_or(Ok(()), |path| {
                sandboxes.announce_path(&work.workload.uid, &path)?;
                let told = work
                    .asked
                    .by_plugin
                    .as_ref()
                    .map_or(&[][..], ByPlugin::told);
                if let Some(there) = sandboxes.there(&work.asked.identity, told) {
                    work.has_only(&there);
                }
                Ok(())
            });
            let enrolled = match announced {
                Ok(()) => work::enrol(&hands, &roster, work, &in_flight, &mut spent),
                Err(why) => Err(why.into()),
            };
            Done::Enrolled(Box::new(enrolled), spent)
        }))
    }

    fn leave(&self, memory: &mut Memory, running: bool) -> Job<Done> {
        if memory.has_traces() && memory.state != Some(State::Leaving) {
            self.turn(memory, Some(State::Leaving), None);
        }
        let before = memory.captured.clone();
        let asked = Asked {
            identity: match &before {
                Some(captured) => captured.asked.identity.clone(),
                None => memory.identity(),
            },
            overrides: memory.overrides.clone().unwrap_or_default(),
            by_plugin: memory.by_plugin.clone(),
        };
        memory.in_flight = Some(Arc::new(OnceLock::from(Vec::new())));
        let leaving = Leaving {
            asked,
            uid: memory.view.uid().into(),
            running,
            is_ready: memory.view.ready,
            before,
            probed: memory.probed.clone(),
            announced: memory.announced,
        };
        let (hands, roster) = (self.hands.clone(), self.roster.clone());
        Job::Thread(Box::new(move || {
            Done::Left(Box::new(work::leave(&hands, &roster, leaving)))
        }))
    }

    pub(super) fn enrolled(
        &self,
        memory: &mut Memory,
        done: Result<Enrolled, NotEnrolled>,
    ) -> Next {
        let by = memory.writer.take();
        memory.waits = false;
        let enrolled = match done {
            Ok(enrolled) => enrolled,
            Err(failed) => return self.not_enrolled(memory, failed, by),
        };
        // A proxy that did not answer may have it, too.
        memory.announced = true;
        // Until now only the reported network namespace was used: one found in another way may belong to an earlier sandbox.
        memory.netns = None;
        memory.verified_at = Some(SystemTime::now());
        self.outcome(memory, &enrolled, by);
        if memory.overrides.is_none() {
            for what in PodOverrides::unreadable(&memory.view.pod.metadata.annotations) {
                let pod = memory.reference();
                self.journal.record(Event::AnnotationIgnored { pod, what });
            }
        }
        self.addresses_seen(memory, enrolled.captured.asked.by_plugin.as_ref());
        let (netns, in_force) = (enrolled.captured.netns, enrolled.captured.state());
        memory.waits = matches!(enrolled.taken, Ok(None));
        memory.overrides = Some(enrolled.captured.asked.overrides.clone());
        (memory.captured, memory.suspected) = (Some(enrolled.captured), false);
        let probes = enrolled.probed.1;
        memory.probed = enrolled.probed.0;
        memory.probes_pass = probes.is_ok();
        let taken = match enrolled.taken {
            Ok(by) => by.ok_or_else(|| WAITS.to_owned()),
            Err(why) => Err(why),
        };
        memory.taken = taken.as_ref().ok().map(|by| (*by, netns));
        let (is_due, why) = annotation_due(memory, taken.map(drop), probes);
        let is_settled = why.is_none();
        let (state, why) = match why {
            Some(why) => (State::Pending, Some(why)),
            None => in_force,
        };
        self.turn(memory, Some(state), why);
        self.next_of(memory, is_due, is_settled)
    }

    fn not_enrolled(&self, memory: &mut Memory, failed: NotEnrolled, by: Option<Writer>) -> Next {
        let NotEnrolled { why, at, drift } = failed;
        let pod = memory.reference();
        match drift {
            Some(drift) => {
                let told = memory.heals.failed(pod, *drift, by, &why);
                told.into_iter().for_each(|told| self.record_drift(told));
            }
            None => memory.writer = by,
        }
        // An unknown state is not reported as good.
        (memory.suspected, memory.proved) = (true, None);
        let netns = at.as_ref().map(|(captured, _)| captured.netns);
        let taken = at.as_ref().and_then(|(_, taken)| *taken);
        memory.taken = taken.zip(netns).or(memory.taken);
        memory.captured = at.map(|(captured, _)| *captured);
        match &memory.captured {
            // A proxy that did not answer may have it, too.
            Some(_) => memory.announced = true,
            // The proxy was not asked this time; it may still have the pod from before.
            None => self.roster.unsure(memory.view.uid()),
        }
        self.turn(memory, Some(State::Failed), Some(why));
        Next::Retry
    }

    /// Forgets addresses that the plugin named and that are not in the pod's namespace.
    fn addresses_seen(&self, memory: &mut Memory, found: Option<&ByPlugin>) {
        let (Some(found), Some(by_plugin)) = (found, &mut memory.by_plugin) else {
            return;
        };
        let told = by_plugin.told().iter();
        let absent: Vec<IpAddr> = told
            .filter(|a| !found.told().contains(a))
            .copied()
            .collect();
        by_plugin.retain(found.told());
        if !absent.is_empty() {
            let pod = memory.reference();
            self.journal.record(Event::AddressesAbsent { pod, absent });
        }
    }

    fn next_of(&self, memory: &Memory, is_due: bool, is_settled: bool) -> Next {
        // Another proxy may have connected during the job, or this one disconnected; no other check covers a pod with a running job.
        let newest = self.hands.proxy.newest();
        let is_outdated = memory.taken.is_some_and(|(by, _)| Some(by) != newest);
        let pause = memory.writes.pause(memory.at).filter(|_| !is_outdated);
        let pause = pause.unwrap_or_default();
        match (is_due || is_outdated, is_settled) {
            (true, true) => Next::After(pause),
            (true, false) => Next::After(pause.min(PENDING)),
            (false, true) => settled(memory),
            // It has no network until the proxy takes it. One that has not answered may be disconnected.
            (false, false) if newest.is_some() || memory.waits => Next::Within(PENDING),
            (false, false) => Next::Retry,
        }
    }

    fn outcome(&self, memory: &mut Memory, enrolled: &Enrolled, by: Option<Writer>) {
        let pod = memory.reference();
        if let Some(proof) = &enrolled.proof {
            let before = memory.proved.replace(proof.clone());
            // A proof that failed as a whole is tried again at each look.
            if proof.failure.is_none() || before.as_ref() != Some(proof) {
                let (pod, proof) = (pod.clone(), proof.clone());
                self.journal.record(Event::Proved { pod, proof });
            }
        }
        if enrolled.proof.is_none() && !matches!(enrolled.outcome, Outcome::Same) {
            // The result for the previous rules does not apply to the new ones.
            memory.proved = None;
        }
        match &enrolled.outcome {
            Outcome::Same => {}
            Outcome::Made { summary } => self.journal.record(Event::Enrolled {
                pod,
                summary: summary.clone(),
                is_taken: matches!(enrolled.taken, Ok(Some(_))),
                took: enrolled.took,
            }),
            Outcome::Healed(repair) => {
                self.record_drift(memory.heals.made(pod, repair.clone(), by));
            }
        }
        memory.heals.in_sync();
    }

    fn record_drift(&self, (healed, contention): (Healed, Option<Contention>)) {
        self.journal.record(Event::Healed(healed));
        if let Some(contention) = contention {
            self.journal.record(Event::Contention(contention));
        }
    }

    /// Closes the descriptors of a pod that has ended, which would keep its network namespace alive until its object is deleted.
    fn let_go(&self, memory: &Memory) {
        if !memory.gone && !memory.view.ended() {
            return;
        }
        let uid: Uid = memory.view.uid().into();
        self.drift.forget(&uid);
        self.sandboxes.forget(&uid);
    }

    pub(super) fn left(&self, memory: &mut Memory, left: Left) -> Next {
        // If the network namespace could not be examined, nothing is known to remain. It is retried until that succeeds: an
        // earlier agent may have captured the pod and ended before it wrote the annotation.
        let was_member = memory.has_traces() || (left.suspected && !left.unseen);
        memory.inherited &= left.why.is_some() && !was_member;
        (memory.probed, memory.captured) = (left.probed, left.captured);
        memory.probes_pass = false;
        memory.announced = left.announced;
        memory.suspected = left.suspected && was_member;
        // The annotation of an earlier agent no longer shows that it is captured, although it may be seen for some time.
        memory.is_known &= left.suspected;
        (memory.taken, memory.by_plugin, memory.waits) = (None, None, false);
        // By the time it joins again, the container runtime may have made another sandbox.
        (memory.netns, memory.annotate) = (None, None);
        if memory.captured.is_none() {
            memory.overrides = None;
            self.let_go(memory);
        }
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
            // Next, the annotation is removed.
            None => Next::After(Duration::ZERO),
        }
    }

    pub(super) fn annotated(
        &self,
        memory: &mut Memory,
        value: Option<Annotation>,
        done: Result<String, String>,
    ) -> Next {
        match done {
            Ok(version) => {
                memory.annotated = Some((value, version));
                let state = memory.state;
                if let (None, Decision::No(why @ Why::Excluded)) = (value, memory.decision) {
                    self.turn(memory, None, Some(why.to_string()));
                }
                let is_complete = memory.is_complete(self.hands.proxy.newest());
                match state {
                    Some(State::Pending) if is_complete && value == Some(Annotation::Enabled) => {
                        let captured = memory.captured.as_ref();
                        let (state, why) =
                            captured.map_or((State::Enrolled, None), Captured::state);
                        self.turn(memory, Some(state), why);
                        settled(memory)
                    }
                    Some(State::Pending | State::Failed) => Next::Retry,
                    Some(State::Leaving) => Next::After(Duration::ZERO),
                    _ => settled(memory),
                }
            }
            // A pod that is being deleted needs no change of the annotation.
            Err(_) if memory.gone || (memory.view.deleting && value.is_none()) => Next::Settled,
            Err(why) => {
                let told = format!("its annotation {REDIRECTION} cannot be written: {why}");
                let pod = memory.reference();
                self.journal.record(Event::NotAnnotated { pod, why });
                let may_stay = !matches!(memory.decision, Decision::No(_));
                memory.annotate = Some(value).filter(|_| may_stay);
                memory.not_annotated = Some(told.clone());
                let is_complete = memory.is_complete(self.hands.proxy.newest());
                match memory.state {
                    Some(State::Enrolled | State::Conflict | State::Pending) if is_complete => {
                        self.turn(memory, Some(State::Pending), Some(told));
                    }
                    Some(State::Leaving) => {
                        self.turn(memory, Some(State::Leaving), Some(told));
                    }
                    _ => {}
                }
                Next::Retry
            }
        }
    }
}
