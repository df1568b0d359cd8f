//! Histories that once went wrong, one by one.

mod annotations;
mod leaving;
mod proxies;
mod recorded;
mod sandboxes;

use super::histories::Step;
use super::{Fault, Scene};
use crate::ambient::keeper::Done;
use crate::ambient::pod::Memory;
use crate::dataplane::Hindrance;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant, SystemTime};
use weir_cni::plugin::Phase;
use weir_core::journal::ambient::{self, State};
use weir_core::journal::{Event, Sink};
use weir_live::Proof;
use weir_netlink::NetnsId;
use weir_reconcile::{Job, Next, Reconciler, Uid};

/// The plainest history, so that the others are known to lead somewhere.
#[test]
fn a_pod_joins_and_leaves() {
    let mut scene = Scene::new();
    scene.namespace("ambient");
    scene.birth(1);
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    assert_eq!(scene.shared.world().rules.len(), 1);
    scene.namespace("none");
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    let world = scene.shared.world();
    assert!(world.rules.is_empty() && world.probes.is_empty() && world.annotations.is_empty());
}

impl Scene {
    /// A pod that is enrolled.
    fn enrolled() -> (Self, Uid) {
        let mut scene = Self::new();
        scene.namespace("ambient");
        scene.birth(1);
        scene.rest();
        assert_eq!(scene.check(), Ok(()));
        let uid = scene.uid(1).unwrap();
        (scene, uid)
    }

    /// A pod whose first job is due.
    fn joining() -> (Self, Uid) {
        let mut scene = Self::new();
        scene.namespace("ambient");
        scene.work(0);
        scene.connect();
        scene.birth(1);
        scene.work(0);
        let uid = scene.uid(1).unwrap();
        (scene, uid)
    }

    fn memory(&mut self, uid: &Uid) -> &mut Memory {
        self.agent.keeper.memory.get_mut(uid).unwrap()
    }

    /// Five repairs within a minute, and one more.
    fn contend(&mut self, uid: &Uid) {
        let heals = &mut self.memory(uid).heals;
        let pauses: Vec<_> = (0..6).map(|_| heals.add(Instant::now())).collect();
        assert!(pauses[4].is_none() && pauses[5].is_some());
    }

    /// What `pick` takes from the events of ambient mode from now on.
    fn hears<T: Send + 'static>(
        &self,
        pick: impl Fn(&ambient::Event) -> Option<T> + Send + Sync + 'static,
    ) -> Receiver<T> {
        let (sender, heard) = channel();
        self.agent.keeper.journal.add(Hears(pick, sender));
        heard
    }

    /// The next job of this pod, which does not run yet.
    fn begin(&mut self) -> Result<Job<Done>, Next> {
        self.agent.keeper.changes();
        let start = self.agent.queue.start(self.now).unwrap();
        self.agent.keeper.job(&start)
    }
}

struct Hears<F, T>(F, Sender<T>);

impl<T: Send, F: Fn(&ambient::Event) -> Option<T> + Send + Sync> Sink for Hears<F, T> {
    fn record(&self, _: SystemTime, event: &Event) {
        let heard = match event {
            Event::Ambient(event) => (self.0)(event),
            _ => None,
        };
        heard.into_iter().for_each(|heard| _ = self.1.send(heard));
    }
}

fn run(job: Result<Job<Done>, Next>) -> Done {
    match job {
        Ok(Job::Thread(work)) => work(),
        Ok(Job::Request(_)) => panic!("a request"),
        Err(_) => panic!("no job"),
    }
}

/// What goes on has not failed, and why something failed before is known.
#[test]
fn a_job_that_takes_long_is_no_failure() {
    let (mut scene, uid) = Scene::enrolled();
    for (before, after) in [
        (Some(State::Enrolled), Some(State::Pending)),
        (Some(State::Conflict), Some(State::Pending)),
        (Some(State::Enrolling), Some(State::Enrolling)),
        (Some(State::Leaving), Some(State::Leaving)),
        (Some(State::Failed), Some(State::Failed)),
        (None, None),
    ] {
        let memory = scene.memory(&uid);
        (memory.state, memory.why) = (before, None);
        scene.agent.keeper.late(&uid);
        let memory = scene.memory(&uid);
        assert_eq!(memory.state, after, "{before:?}");
        let is_told = !matches!(before, None | Some(State::Failed));
        assert_eq!(memory.why.is_some(), is_told, "{before:?}");
    }
}

/// What an earlier agent captured is healed and handed over, and nothing else is captured, while the labels of the namespace are not
/// known.
#[test]
fn a_pod_that_was_captured_is_looked_after_without_its_namespace() {
    for restart in [false, true] {
        let (mut scene, uid) = Scene::enrolled();
        scene.writer.delete_namespace("shop");
        if restart {
            scene.step(&Step::Restart);
        }
        scene.flush(1);
        scene.birth(2);
        scene.shared.world().proxies.clear();
        scene.rest();
        let state = |scene: &mut Scene, uid: &Uid| scene.memory(uid).state;
        assert_eq!(state(&mut scene, &uid), Some(State::Enrolled), "{restart}");
        let new = scene.uid(2).unwrap();
        assert_eq!(state(&mut scene, &new), Some(State::Waiting), "{restart}");
        {
            let world = scene.shared.world();
            let netns = world.netns[&*uid];
            assert_eq!(world.rules, [netns].into(), "{restart}");
            let newest = world.proxies.values().next_back().unwrap();
            assert_eq!(newest.get(&*uid), Some(&Some(netns)), "{restart}");
            let annotation = world.annotations.get(&*uid);
            assert_eq!(annotation.map(String::as_str), Some("enabled"));
        }
        scene.namespace("none");
        scene.rest();
        assert_eq!(scene.check(), Ok(()), "{restart}");
        assert!(scene.shared.world().rules.is_empty());
    }
}

#[test]
fn under_contention_a_pod_whose_rules_changed_is_not_shown_as_good() {
    let (mut scene, uid) = Scene::enrolled();
    scene.contend(&uid);
    scene.flush(1);
    scene.agent.keeper.changes();
    scene.agent.queue.changed(&uid, scene.now);
    assert!(matches!(scene.begin(), Err(Next::After(_))));
    let why = scene.agent.keeper.verdict(&uid).unwrap_err();
    assert!(why.contains("again and again"), "{why}");
}

/// What is not known is no conflict, and is said.
#[test]
fn a_pod_whose_foreign_rules_cannot_be_read_is_enrolled() {
    let (mut scene, uid) = Scene::enrolled();
    scene.foreign(1, true);
    scene.shared.world().foreign = Some(Hindrance::Unknown("not known".into()));
    scene.work(10);
    let memory = scene.memory(&uid);
    assert_eq!(memory.state, Some(State::Enrolled));
    assert_eq!(memory.why.as_deref(), Some("not known"));
}

/// Without the proxy it would have no network.
#[test]
fn a_pod_whose_packets_are_taken_first_is_told_of_once_and_stays_enrolled() {
    let (mut scene, uid) = Scene::enrolled();
    let told = scene.hears(|event| match event {
        ambient::Event::Turned { to, .. } => Some(*to),
        ambient::Event::Healed(_) => panic!("nothing was repaired"),
        _ => None,
    });
    let states = || told.try_iter().collect::<Vec<_>>();
    for _ in 0..7 {
        scene.foreign(1, true);
        scene.work(10);
        assert_eq!(scene.memory(&uid).state, Some(State::Conflict));
        let why = scene.memory(&uid).why.clone();
        assert_eq!(why.as_deref(), Some("a foreign rule"));
    }
    assert_eq!(states(), [Some(State::Conflict)]);
    assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
    // The next proxy has it at once.
    scene.shared.world().proxies.clear();
    scene.connect();
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    assert_eq!(scene.memory(&uid).state, Some(State::Conflict));
    states();
    scene.foreign(1, false);
    scene.work(10);
    assert_eq!(states(), [Some(State::Enrolled)]);
}

/// Each of its commits leads to a comparison, and it decides how long that takes.
#[test]
fn a_pod_whose_comparison_takes_long_is_compared_after_a_pause() {
    const LONG: Duration = Duration::from_secs(60);
    let (mut scene, uid) = Scene::enrolled();
    scene.foreign(1, false);
    scene.agent.queue.changed(&uid, scene.now);
    let mut done = run(scene.begin());
    if let Done::Enrolled(_, spent) = &mut done {
        spent.add(Phase::Verify, LONG);
    }
    let before = Instant::now();
    let next = scene.agent.keeper.done(&uid, Ok(done));
    scene.agent.queue.done(&uid, next, scene.now);
    let heals = &mut scene.memory(&uid).heals;
    assert!(heals.pause(before).is_some());
    // However slowly this test goes on.
    heals.took(LONG, Instant::now() + 60 * LONG);
    // A new proxy does not wait for it.
    scene.shared.world().proxies.clear();
    scene.connect();
    scene.work(10);
    assert!(scene.memory(&uid).is_complete(Some(2)));
    scene.foreign(1, false);
    scene.agent.queue.changed(&uid, scene.now);
    assert!(matches!(scene.begin(), Err(Next::After(_))));
    assert!(scene.agent.keeper.verdict(&uid).is_err());
}

#[test]
fn the_end_of_a_round_keeps_what_a_job_makes_known() {
    let _ = weir_testing::namespace_or_skip!();
    let mut scene = Scene::new();
    scene.namespace("ambient");
    scene.birth(1);
    scene.rest();
    scene.sandbox(1, false);
    let uid = scene.uid(1).unwrap();
    scene.memory(&uid).probed.clear();
    scene.memory(&uid).probes_pass = false;
    let done = run(scene.begin());
    assert_eq!(scene.shared.world().probes.len(), 1);
    scene.agent.keeper.round(true);
    assert_eq!(scene.shared.world().probes.len(), 1);
    scene.agent.keeper.done(&uid, Ok(done));
    scene.agent.keeper.round(true);
    assert_eq!(scene.shared.world().probes.len(), 1);
}

/// What changes after the job has compared the rules, and before it has ended, is looked at in the next one.
#[test]
fn a_change_during_a_job_is_looked_at_after_it() {
    let (mut scene, uid) = Scene::enrolled();
    scene.agent.drifted.put(Uid::clone(&uid), None);
    scene.work(0);
    let done = run(scene.begin());
    scene.flush(1);
    scene.work(0);
    assert!(scene.shared.world().rules.is_empty());
    let next = scene.agent.keeper.done(&uid, Ok(done));
    scene.agent.queue.done(&uid, next, scene.now);
    // No round is due.
    scene.work(3);
    assert_eq!(scene.shared.world().rules.len(), 1);
}

/// Where no connection can be made, nothing is known of where it lands.
#[test]
fn a_proof_is_of_the_rules_of_now() {
    let _ = weir_testing::namespace_or_skip!();
    let (mut scene, uid) = Scene::enrolled();
    let proof = Proof::failed(NetnsId { dev: 4, ino: 1 }, "none");
    scene.memory(&uid).proved = Some(proof.clone());
    scene.flush(1);
    scene.work(10);
    assert_eq!(scene.memory(&uid).state, Some(State::Enrolled));
    assert_eq!(scene.memory(&uid).proved, None, "after a repair");
    scene.memory(&uid).proved = Some(proof);
    scene.sandbox(1, false);
    let _job = scene.begin();
    assert_eq!(scene.memory(&uid).proved, None, "of a new sandbox");
    assert_eq!(scene.memory(&uid).verified_at, None);
}

/// `nodeagent_reconcile_events_total`
#[test]
fn attempts_are_counted_by_what_they_were_for() {
    let mut scene = Scene::new();
    let kinds = scene.hears(|event| match event {
        ambient::Event::Reconciled { kind } => Some(*kind),
        _ => None,
    });
    let counted = || kinds.try_iter().collect::<Vec<_>>();
    scene.namespace("ambient");
    scene.work(1);
    assert_eq!(counted(), [""; 0]);
    scene.birth(1);
    scene.work(1);
    assert_eq!(
        counted(),
        ["add", "add"],
        "its namespace, and without a proxy"
    );
    scene.rest();
    let more = counted();
    assert!(
        !more.is_empty() && more.iter().all(|kind| *kind == "update"),
        "{more:?}"
    );
    scene.namespace("none");
    scene.work(0);
    assert_eq!(counted(), ["update"], "its namespace");
    scene.death(1);
    scene.rest();
    assert!(counted().contains(&"delete"));
}

/// It was asked at the end of rounds only, the next of which comes after a minute.
#[test]
fn all_pods_are_captured_as_soon_as_the_last_one_is() {
    let mut scene = Scene::new();
    scene.birth(1);
    let uid = scene.uid(1).unwrap();
    let enabled = (uid.to_string(), "enabled".to_owned());
    scene.shared.world().annotations.extend([enabled]);
    scene.publish(1);
    scene.step(&Step::Fault('r', Some(Fault::Fails)));
    // Its namespace is not known: it may be one that is captured in another way.
    scene.work(1);
    assert!(!scene.shared.world().all_captured);
    scene.namespace("ambient");
    scene.work(1);
    assert!(!scene.shared.world().all_captured);
    scene.step(&Step::Fault('r', None));
    scene.now += Duration::from_secs(61);
    // No round is due.
    let done = run(scene.begin());
    scene.agent.keeper.done(&uid, Ok(done));
    assert!(scene.shared.world().all_captured);
}
