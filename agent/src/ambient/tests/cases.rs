//! Histories that once went wrong, one by one.

use super::histories::Step;
use super::{Fault, NETNS, Scene};
use crate::ambient::REDIRECTION;
use crate::ambient::keeper::Done;
use crate::ambient::pod::{Annotation, Memory};
use crate::dataplane::Hindrance;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use weir_ambient::PodOverrides;
use weir_cni::plugin::Phase;
use weir_core::journal::ambient::State;
use weir_core::journal::pod::Writer;
use weir_core::pods::PodView;
use weir_live::{Answer, Proof};
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

    /// The first pod asks for something else. Returns all that it asks for then.
    fn annotate_bypass(&mut self) -> PodOverrides {
        let key = "ambient.istio.io/bypass-inbound-capture";
        let object = self.objects.get_mut(&1).unwrap();
        object["metadata"]["annotations"] = json!({REDIRECTION: "enabled", key: "true"});
        let mut world = self.shared.world();
        world.version += 1;
        object["metadata"]["resourceVersion"] = json!(world.version.to_string());
        drop(world);
        let view = PodView::from_value(object).unwrap();
        let asked = PodOverrides::of_annotations(&view.pod.metadata.annotations);
        self.writer.apply(view).unwrap();
        asked
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

    /// The next job of this pod, which does not run yet.
    fn begin(&mut self) -> Result<Job<Done>, Next> {
        self.agent.keeper.changes();
        let start = self.agent.queue.start(self.now).unwrap();
        self.agent.keeper.job(&start)
    }
}

fn run(job: Result<Job<Done>, Next>) -> Done {
    match job {
        Ok(Job::Thread(work)) => work(),
        Ok(Job::Request(_)) => panic!("a request"),
        Err(_) => panic!("no job"),
    }
}

#[test]
fn rules_are_repaired_while_annotations_cannot_be_written() {
    let (mut scene, _) = Scene::enrolled();
    scene.step(&Step::Fault('a', Some(Fault::Fails)));
    // Another program has removed it.
    scene.shared.world().annotations.clear();
    scene.publish(1);
    scene.work(10);
    assert!(scene.check().is_err(), "the annotation is due");
    scene.flush(1);
    for _ in 0..3 {
        scene.now += Duration::from_secs(1);
        scene.work(10);
    }
    assert_eq!(scene.shared.world().rules.len(), 1);
}

/// The watch shows the pod as it is now, and the annotation was written and removed since.
#[test]
fn an_annotation_that_another_program_removes_before_it_is_seen_is_written_again() {
    let (mut scene, _) = Scene::enrolled();
    scene.birth(1);
    scene.work(10);
    let uid = scene.uid(1).unwrap();
    let is_there = |scene: &Scene| scene.shared.world().annotations.contains_key(&*uid);
    assert!(is_there(&scene));
    scene.step(&Step::Strips(1));
    assert!(!is_there(&scene));
    scene.work(10);
    assert!(is_there(&scene));
}

#[test]
fn an_annotation_whose_removal_was_not_answered_is_written_again() {
    let (mut scene, _) = Scene::enrolled();
    // The watch has not shown the annotation yet.
    scene.birth(1);
    scene.work(10);
    scene.step(&Step::Fault('a', Some(Fault::AnswerLost)));
    scene.namespace("none");
    scene.work(2);
    assert!(scene.shared.world().annotations.is_empty());
    scene.namespace("ambient");
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
}

/// Who hands it over waits, and is not told that it failed.
#[test]
fn a_pod_waits_for_a_proxy_that_has_not_answered_yet() {
    let (mut scene, _) = Scene::enrolled();
    scene.shared.world().is_slow = true;
    scene.birth(1);
    let uid = scene.uid(1).unwrap();
    for _ in 0..3 {
        scene.work(10);
        scene.publish(1);
        let memory = scene.memory(&uid);
        let why = memory.why.clone().unwrap_or_default();
        assert_eq!(memory.state, Some(State::Pending));
        assert!(why.contains("waits for ztunnel"), "{why}");
        assert!(scene.agent.keeper.is_undecided(&uid));
        assert!(scene.agent.keeper.verdict(&uid).is_err());
        scene.now += Duration::from_secs(1);
    }
    scene.shared.world().is_slow = false;
    scene.agent.roster.answered(&uid);
    scene.work(1);
    assert!(!scene.agent.keeper.is_undecided(&uid));
    assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    // One that is lost before it answers is another matter.
    scene.shared.world().is_slow = true;
    scene.birth(1);
    scene.work(10);
    let uid = scene.uid(1).unwrap();
    assert!(scene.agent.keeper.is_undecided(&uid));
    scene.step(&Step::Disconnect);
    scene.work(10);
    assert!(!scene.agent.keeper.is_undecided(&uid));
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

/// Other nodes would send to it in plain text until it is `enabled` again.
#[test]
fn a_pod_that_was_enrolled_stays_annotated_while_no_proxy_is_connected() {
    for restart in [false, true] {
        let (mut scene, uid) = Scene::enrolled();
        scene.step(&Step::Disconnect);
        if restart {
            scene.step(&Step::Restart);
        }
        for _ in 0..3 {
            scene.now += Duration::from_secs(61);
            scene.work(10);
            scene.publish(1);
        }
        assert_eq!(scene.memory(&uid).state, Some(State::Pending), "{restart}");
        let annotation = scene.shared.world().annotations.get(&*uid).cloned();
        assert_eq!(annotation.as_deref(), Some("enabled"), "{restart}");
        scene.rest();
        assert_eq!(scene.check(), Ok(()), "{restart}");
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

/// The plugin starts the pod when it is told so.
#[test]
fn a_new_sandbox_is_enrolled_at_once_and_not_called_so_before() {
    let _ = weir_testing::namespace_or_skip!();
    let (mut scene, uid) = Scene::enrolled();
    scene.contend(&uid);
    scene.memory(&uid).annotate = Some(Some(Annotation::Pending));
    assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
    scene.sandbox(1, false);
    let job = scene.begin();
    assert!(scene.agent.keeper.verdict(&uid).is_err());
    let done = run(job);
    scene.agent.keeper.done(&uid, Ok(done));
    assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
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
    let (sender, told) = std::sync::mpsc::channel();
    let (mut scene, uid) = Scene::enrolled();
    scene.agent.keeper.journal.add(Turns(sender));
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

struct Turns(std::sync::mpsc::Sender<Option<State>>);

impl weir_core::journal::Sink for Turns {
    fn record(&self, _: std::time::SystemTime, event: &weir_core::journal::Event) {
        use weir_core::journal::ambient::Event::{Healed, Turned};
        match event {
            weir_core::journal::Event::Ambient(Turned { to, .. }) => _ = self.0.send(*to),
            weir_core::journal::Event::Ambient(Healed(_)) => panic!("nothing was repaired"),
            _ => {}
        }
    }
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

/// A webhook does not keep it, and changes the pod each time, which is seen at once.
#[test]
fn an_annotation_that_is_not_kept_is_written_less_and_less() {
    for mode in ["ambient", "none"] {
        let (mut scene, _) = Scene::enrolled();
        if mode == "ambient" {
            scene.shared.world().annotations.clear();
        }
        scene.namespace(mode);
        scene.shared.world().faults.insert('a', Fault::Fails);
        let version = |scene: &Scene| scene.shared.world().version;
        let (before, changes) = (version(&scene), 600);
        // A minute of it. Each change and each attempt to write is a version.
        for _ in 0..changes {
            scene.publish(1);
            scene.work(10);
            scene.now += Duration::from_millis(100);
        }
        let writes = version(&scene) - before - changes;
        assert!((6..20).contains(&writes), "{mode}: {writes}");
        scene.rest();
        assert_eq!(scene.check(), Ok(()), "{mode}");
    }
}

/// What annotations ask for later is none of another program's doing.
#[test]
fn annotations_of_an_enrolled_pod_change_nothing() {
    let (mut scene, uid) = Scene::enrolled();
    let before = scene.memory(&uid).captured.clone().unwrap().asked;
    let asked = scene.annotate_bypass();
    assert_ne!(asked, before.overrides);
    scene.flush(1);
    scene.work(10);
    assert_eq!(scene.shared.world().rules.len(), 1);
    let after = scene.memory(&uid).captured.clone().unwrap().asked;
    assert_eq!(after.overrides, before.overrides);
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

/// It took its list of pods before the job put this one there.
#[test]
fn a_proxy_that_connects_during_a_job_is_told_of_the_pod() {
    let _ = weir_testing::namespace_or_skip!();
    let (mut scene, uid) = Scene::enrolled();
    scene.sandbox(1, false);
    let done = run(scene.begin());
    let newest = scene.shared.world().last_proxy + 1;
    scene.shared.world().proxies.insert(newest, BTreeMap::new());
    scene.agent.keeper.changes();
    let next = scene.agent.keeper.done(&uid, Ok(done));
    assert!(matches!(next, Next::After(Duration::ZERO)));
}

/// After a reboot the API server has the addresses of the sandboxes before, until the kubelet has told it of the new ones.
#[test]
fn the_plugin_knows_the_addresses_of_a_new_sandbox_better_than_the_api_server() {
    let _ = weir_testing::namespace_or_skip!();
    let (mut scene, uid) = Scene::enrolled();
    let probed = |scene: &Scene| {
        let world = scene.shared.world();
        let all = world.probes.keys().map(ToString::to_string);
        all.collect::<Vec<_>>()
    };
    assert_eq!(probed(&scene), ["10.0.0.1"]);
    scene.birth(2);
    scene.change(2, |p| {
        p["status"] = json!({"phase": "Running", "podIP": "10.0.9.1"});
    });
    scene.hand_over(1, "10.0.9.1");
    let job = scene.begin();
    let done = run(job);
    scene.agent.keeper.done(&uid, Ok(done));
    // Also where the API server says that another pod has it, of which the plugin has told nothing.
    assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
    assert_eq!(probed(&scene), ["10.0.9.1"]);
    // What was said before is no news, what is said now is.
    scene.publish(1);
    scene.agent.keeper.changes();
    assert_eq!(
        scene.memory(&uid).addresses(),
        ["10.0.9.1".parse::<IpAddr>().unwrap()]
    );
    scene.change(1, |p| {
        p["status"] = json!({"phase": "Running", "podIP": "10.0.1.1"});
    });
    scene.agent.keeper.changes();
    assert_eq!(
        scene.memory(&uid).addresses(),
        ["10.0.1.1".parse::<IpAddr>().unwrap()]
    );
}

/// What a job did for a pod is known when it ends, and not before.
#[test]
fn a_pod_that_is_deleted_during_its_job_leaves_nothing() {
    let mut scene = Scene::new();
    scene.namespace("ambient");
    scene.work(0);
    scene.connect();
    scene.birth(1);
    scene.work(0);
    let uid = scene.uid(1).unwrap();
    let done = run(scene.begin());
    assert!(scene.check().is_err(), "it is not annotated yet");
    scene.death(1);
    scene.work(0);
    let next = scene.agent.keeper.done(&uid, Ok(done));
    scene.agent.queue.done(&uid, next, scene.now);
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    assert!(scene.agent.keeper.memory.is_empty());
}

/// One that does not answer may have the pod, and that its namespace is not found later tells nothing about that.
#[test]
fn a_pod_that_a_silent_proxy_may_have_is_taken_from_it_when_it_is_deleted() {
    let mut scene = Scene::new();
    scene.namespace("ambient");
    scene.work(1);
    scene.connect();
    scene.birth(1);
    let uid = scene.uid(1).unwrap();
    scene.step(&Step::Fault('p', Some(Fault::AnswerLost)));
    scene.step(&Step::Fault('a', Some(Fault::Fails)));
    scene.work(1);
    let known = |scene: &Scene| {
        let world = scene.shared.world();
        let (_, newest) = world.proxies.last_key_value().unwrap();
        newest.contains_key(&*uid)
    };
    assert!(known(&scene));
    scene.shared.world().netns.remove(&*uid);
    for _ in 0..4 {
        scene.now += Duration::from_secs(61);
        scene.work(1);
    }
    assert!(scene.memory(&uid).captured.is_none());
    scene.death(1);
    scene.rest();
    assert!(!known(&scene));
    assert_eq!(scene.check(), Ok(()));
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

/// Nothing of it is on this node: there is nothing to remove, and the proxy and the annotation do not wait for it.
#[test]
fn a_pod_without_a_namespace_leaves_at_once() {
    let (mut scene, uid) = Scene::enrolled();
    scene.shared.world().netns.remove(&*uid);
    scene.namespace("none");
    for _ in 0..3 {
        scene.work(2);
        scene.publish(1);
    }
    let world = scene.shared.world();
    assert!(world.probes.is_empty() && world.annotations.is_empty());
    assert!(
        world
            .proxies
            .values()
            .all(|known| !known.contains_key(&*uid))
    );
}

/// The API server says that it answers: where it runs is not seen, and it would have no network without the proxy.
#[test]
fn a_pod_that_is_ready_and_not_found_stays_known_to_the_proxy() {
    let (mut scene, uid) = Scene::enrolled();
    scene.shared.world().netns.remove(&*uid);
    scene.change(1, |p| {
        p["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    });
    scene.namespace("none");
    scene.work(2);
    assert_eq!(scene.memory(&uid).state, Some(State::Leaving));
    let world = scene.shared.world();
    assert!(
        world
            .proxies
            .values()
            .any(|known| known.contains_key(&*uid))
    );
}

/// A proxy that is new has none of its rules' traffic to fall back on: without it the pod would have no network.
#[test]
fn a_pod_whose_rules_cannot_be_repaired_is_handed_to_the_next_proxy() {
    for restart in [false, true] {
        let (mut scene, uid) = Scene::enrolled();
        scene.step(&Step::Fault('r', Some(Fault::Fails)));
        if restart {
            scene.step(&Step::Restart);
        }
        scene.flush(1);
        scene.work(10);
        assert_eq!(scene.memory(&uid).state, Some(State::Failed), "{restart}");
        scene.shared.world().proxies.clear();
        scene.connect();
        let known = |scene: &Scene| {
            let world = scene.shared.world();
            let (_, newest) = world.proxies.last_key_value().unwrap();
            newest.get(&*uid).copied().flatten().is_some()
        };
        assert!(known(&scene), "by its snapshot, {restart}");
        // One that took its list before.
        let newest = scene.shared.world().last_proxy + 1;
        scene.shared.world().last_proxy = newest;
        scene.shared.world().proxies.insert(newest, BTreeMap::new());
        scene.step(&Step::Fault('p', Some(Fault::Fails)));
        scene.work(10);
        let why = scene.memory(&uid).why.clone();
        let both = "it failed; besides: it failed";
        assert_eq!(why.as_deref(), Some(both), "the proxy's, too, {restart}");
        scene.step(&Step::Fault('p', None));
        scene.now += Duration::from_secs(61);
        scene.work(10);
        assert!(known(&scene), "by the next job, {restart}");
        scene.rest();
        assert_eq!(scene.check(), Ok(()), "{restart}");
    }
}

/// One whose sandbox is gone has its address at the API server for as long as it is there.
#[test]
fn a_reused_address_stays_that_of_the_pod_that_has_it() {
    let _ = weir_testing::namespace_or_skip!();
    for [old, new] in [[1, 2], [2, 1]] {
        let mut scene = Scene::new();
        scene.namespace("ambient");
        scene.birth(old);
        scene.rest();
        let (gone, address) = (scene.uid(old).unwrap(), format!("10.0.0.{old}"));
        scene.shared.world().netns.remove(&*gone);
        scene.agent.drifted.put(Uid::clone(&gone), None);
        scene.work(10);
        assert_eq!(scene.memory(&gone).state, Some(State::Failed));
        scene.birth(new);
        let status = json!({"phase": "Running", "podIP": address});
        scene.change(new, |p| p["status"] = status);
        scene.hand_over(new, &address);
        scene.work(10);
        let uid = scene.uid(new).unwrap();
        let is_known = |scene: &Scene| {
            let world = scene.shared.world();
            world
                .probes
                .get(&address.parse().unwrap())
                .map(String::as_str)
                == Some(&*uid)
        };
        assert!(is_known(&scene), "{old}");
        scene.agent.keeper.round(true);
        assert!(is_known(&scene), "{old}: after a round");
        scene.hand_over(old, "10.0.9.9");
        scene.work(10);
        assert_eq!(scene.memory(&gone).state, Some(State::Enrolled));
        assert!(is_known(&scene), "{old}: after the other has another one");
    }
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

/// It is made again at each look, and told of once.
#[test]
fn a_proof_that_failed_is_made_again() {
    let (sender, told) = std::sync::mpsc::channel();
    let mut scene = Scene::new();
    scene.agent.keeper.journal.add(Healings(sender));
    let netns = NetnsId { dev: 4, ino: 1 };
    let mut look = |proof: Proof| {
        scene.shared.world().proof = Some(proof);
        if scene.uid(1).is_none() {
            scene.namespace("ambient");
            scene.birth(1);
            scene.rest();
        }
        scene.step(&Step::Round);
        scene.work(10);
        let uid = scene.uid(1).unwrap();
        let member = scene.memory(&uid).member().unwrap();
        let events: Vec<String> = told.try_iter().collect();
        let made = std::mem::take(&mut scene.shared.world().proofs);
        (made > 0, events, member.proved)
    };
    let unknown = Some(Answer::Unknown);
    let of = |why: &str| vec![format!("proved: {why}")];
    let failed = |why: &str| Proof::failed(netns, why);
    assert_eq!(look(failed("busy")), (true, of("busy"), unknown));
    assert_eq!(look(failed("busy")), (true, vec![], unknown));
    assert_eq!(look(failed("full")), (true, of("full"), unknown));
    let made = Proof {
        failure: None,
        ..failed("")
    };
    let none = of("no connection could be made");
    assert_eq!(look(made.clone()), (true, none, unknown));
    assert_eq!(look(made), (false, vec![], unknown));
}

/// Drifts that are counted, and proofs.
struct Healings(std::sync::mpsc::Sender<String>);

impl weir_core::journal::Sink for Healings {
    fn record(&self, _: std::time::SystemTime, event: &weir_core::journal::Event) {
        use weir_core::journal::ambient::Event::{Contention, Healed, Proved};
        let weir_core::journal::Event::Ambient(event) = event else {
            return;
        };
        let text = match event {
            Healed(healed) => {
                let by = healed.by.as_ref().map_or("", |by| by.name.as_str());
                let is = |is: bool, word| if is { word } else { "" };
                format!(
                    "{}{} {by}",
                    is(healed.is_new, "counted "),
                    is(healed.failed, "failed")
                )
            }
            Proved { proof, .. } => format!("proved: {}", proof.reason().unwrap_or_default()),
            Contention(_) => "contention".to_owned(),
            _ => return,
        };
        let _ = self.0.send(text);
    }
}

/// Of legacy rules and programs no writer is known, and something else may have failed before.
#[test]
fn each_loss_is_counted_once_also_if_the_repair_fails() {
    for is_known in [true, false] {
        let (sender, told) = std::sync::mpsc::channel();
        let (mut scene, uid) = Scene::enrolled();
        scene.agent.keeper.journal.add(Healings(sender));
        let writer = |name: &str| {
            let name = name.to_owned();
            is_known.then_some(Writer { pid: 7, name })
        };
        let flush = |scene: &mut Scene, name: &str| {
            scene.flush(1);
            scene.agent.drifted.put(Uid::clone(&uid), writer(name));
            scene.work(1);
        };
        let counted = || told.try_iter().collect::<Vec<_>>();
        let name =
            |text: &str, name: &str| vec![format!("{text} {}", if is_known { name } else { "" })];
        // Something else fails.
        scene.step(&Step::Fault('r', Some(Fault::AnswerLost)));
        scene.agent.drifted.put(Uid::clone(&uid), None);
        scene.work(1);
        assert_eq!(scene.memory(&uid).state, Some(State::Failed));
        assert_eq!(counted(), [""; 0]);
        // The rules are written, and that is not the whole of it.
        for _ in 0..2 {
            flush(&mut scene, "iptables");
            assert_eq!(counted(), name("counted failed", "iptables"));
            scene.agent.drifted.put(Uid::clone(&uid), None);
            scene.work(1);
            assert_eq!(counted(), [""; 0]);
        }
        // They cannot be written, whatever other programs do.
        scene.step(&Step::Fault('r', Some(Fault::Fails)));
        flush(&mut scene, "iptables");
        assert_eq!(counted(), name("counted failed", "iptables"));
        for _ in 0..2 {
            scene.agent.drifted.put(Uid::clone(&uid), writer("dockerd"));
            scene.now += Duration::from_secs(61);
            scene.work(1);
        }
        assert_eq!(counted(), [""; 0]);
        scene.rest();
        assert_eq!(scene.check(), Ok(()));
        assert_eq!(counted(), [" "]);
    }
}

/// The plugin handed it over, and once its namespace was not found: it is captured all the same.
#[test]
fn a_pod_that_was_not_found_once_is_handed_to_the_next_proxy() {
    let _ = weir_testing::namespace_or_skip!();
    let (mut scene, uid) = Scene::enrolled();
    scene.sandbox(1, false);
    scene.rest();
    assert!(scene.memory(&uid).by_plugin.is_some());
    let netns = scene.shared.world().netns.remove(&*uid).unwrap();
    scene.agent.drifted.put(Uid::clone(&uid), None);
    scene.work(10);
    assert_eq!(scene.memory(&uid).state, Some(State::Failed));
    assert!(scene.memory(&uid).captured.is_none());
    assert!(scene.memory(&uid).was_captured());
    // There again, and its rules cannot be compared.
    scene.shared.world().netns.insert(uid.to_string(), netns);
    scene.step(&Step::Fault('r', Some(Fault::Fails)));
    scene.now += Duration::from_secs(61);
    scene.work(10);
    assert_eq!(scene.memory(&uid).state, Some(State::Failed));
    scene.shared.world().proxies.clear();
    scene.connect();
    let world = scene.shared.world();
    let (_, newest) = world.proxies.last_key_value().unwrap();
    assert!(newest.get(&*uid).copied().flatten().is_some());
}

/// What annotations say later has no effect, whatever failed meanwhile.
#[test]
fn a_failure_changes_nothing_in_what_is_asked_for() {
    let (mut scene, uid) = Scene::enrolled();
    let before = scene.memory(&uid).captured.clone().unwrap().asked.overrides;
    let asked = scene.annotate_bypass();
    assert_ne!(asked, before);
    let netns = scene.shared.world().netns.remove(&*uid).unwrap();
    scene.agent.drifted.put(Uid::clone(&uid), None);
    scene.work(10);
    assert_eq!(scene.memory(&uid).state, Some(State::Failed));
    scene.shared.world().netns.insert(uid.to_string(), netns);
    scene.now += Duration::from_secs(61);
    scene.work(10);
    assert_eq!(scene.memory(&uid).state, Some(State::Enrolled));
    let after = scene.memory(&uid).captured.clone().unwrap().asked.overrides;
    assert_eq!(after, before);
}

/// It was never annotated, so only this agent's look at it can tell.
#[test]
fn rules_of_an_earlier_agent_that_cannot_be_removed_are_told_and_tried_again() {
    let mut scene = Scene::new();
    scene.namespace("none");
    scene.birth(1);
    let (uid, netns) = (scene.uid(1).unwrap(), scene.births);
    scene.shared.world().rules.insert(netns);
    scene.step(&Step::Fault('r', Some(Fault::Fails)));
    scene.work(1);
    assert_eq!(scene.memory(&uid).state, Some(State::Leaving));
    assert_eq!(scene.memory(&uid).why.as_deref(), Some("it failed"));
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    assert!(scene.shared.world().rules.is_empty());
}

struct Whys(std::sync::mpsc::Sender<Option<String>>);

impl weir_core::journal::Sink for Whys {
    fn record(&self, _: std::time::SystemTime, event: &weir_core::journal::Event) {
        use weir_core::journal::ambient::Event::Turned;
        if let weir_core::journal::Event::Ambient(Turned { to: None, why, .. }) = event {
            let _ = self.0.send(why.clone());
        }
    }
}

/// Settings change with a restart.
#[test]
fn a_pod_whose_namespace_becomes_excluded_leaves_with_the_reason() {
    let (sender, told) = std::sync::mpsc::channel();
    let (mut scene, _) = Scene::enrolled();
    scene.publish(1);
    scene.rest();
    let mut settings = super::settings();
    settings.exclude_namespaces = vec!["shop".to_owned()];
    scene.settings = std::sync::Arc::new(settings);
    scene.step(&Step::Restart);
    scene.agent.keeper.journal.add(Whys(sender));
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    assert!(scene.shared.world().rules.is_empty());
    let whys: Vec<Option<String>> = told.try_iter().collect();
    let [Some(why)] = &whys[..] else {
        panic!("{whys:?}");
    };
    assert!(why.contains("EXCLUDE_NAMESPACES"), "{why}");
}

struct Kinds(std::sync::mpsc::Sender<&'static str>);

impl weir_core::journal::Sink for Kinds {
    fn record(&self, _: std::time::SystemTime, event: &weir_core::journal::Event) {
        use weir_core::journal::ambient::Event::Reconciled;
        if let weir_core::journal::Event::Ambient(Reconciled { kind }) = event {
            let _ = self.0.send(kind);
        }
    }
}

/// `nodeagent_reconcile_events_total`
#[test]
fn attempts_are_counted_by_what_they_were_for() {
    let (sender, kinds) = std::sync::mpsc::channel();
    let mut scene = Scene::new();
    scene.agent.keeper.journal.add(Kinds(sender));
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

/// Multus calls the plugin for each network of a pod; the rules are those of its namespace.
#[test]
fn another_attachment_of_an_enrolled_pod_takes_nothing_away() {
    let Some(netns) = &*NETNS else { return };
    let foreign: IpAddr = "10.99.0.5".parse().unwrap();
    for is_handed_over in [true, false] {
        for addresses in [vec![], vec![foreign]] {
            let mut scene = Scene::new();
            scene.namespace("ambient");
            scene.birth(1);
            let uid = scene.uid(1).unwrap();
            if is_handed_over {
                scene.hand_over(1, "10.0.0.1");
            }
            let ino = netns.id().ino;
            scene.shared.world().netns.insert(uid.to_string(), ino);
            scene.rest();
            assert_eq!(scene.check(), Ok(()));
            let probes = scene.shared.world().probes.clone();
            scene.call(&uid, netns, addresses);
            // What would be told to the proxy is not.
            scene.step(&Step::Fault('p', Some(Fault::Fails)));
            scene.work(10);
            assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
            assert_eq!(scene.shared.world().probes, probes);
            // Rules that are gone are made again before the answer.
            scene.shared.world().rules.clear();
            scene.call(&uid, netns, vec![]);
            scene.work(10);
            assert_eq!(scene.shared.world().rules.len(), 1);
            assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
            scene.rest();
            assert_eq!(scene.check(), Ok(()));
            assert_eq!(scene.shared.world().probes, probes);
        }
    }
}

/// The pods cannot be watched, one is made anew, and the plugin hands it over: only its name is known, which is that of the one before.
#[test]
fn what_was_made_for_a_pod_under_the_uid_of_the_one_before_is_removed() {
    let (mut scene, old) = Scene::enrolled();
    scene.hand_over(1, "10.0.0.1");
    scene.work(10);
    if NETNS.is_none() {
        return;
    }
    assert_eq!(scene.shared.world().rules.len(), 1);
    {
        let mut world = scene.shared.world();
        let netns = world.netns.remove(&*old).unwrap();
        world.netns.insert("uid-next".into(), netns);
    }
    // Now they are watched, and it is no pod of the mesh.
    scene.change(1, |object| {
        object["metadata"]["uid"] = "uid-next".into();
        object["metadata"]["labels"] = json!({"m": "none"});
    });
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    assert!(scene.shared.world().rules.is_empty());
}

/// Its process has ended, and the node was restarted or its rules flushed: probes of the next one would be captured.
#[test]
fn an_enrolled_pod_without_a_namespace_has_its_addresses_at_the_host_after_a_restart() {
    let (mut scene, uid) = Scene::enrolled();
    scene.publish(1);
    let netns = scene.shared.world().netns.remove(&*uid).unwrap();
    scene.shared.world().probes.clear();
    scene.step(&Step::Restart);
    scene.work(10);
    assert_eq!(scene.memory(&uid).state, Some(State::Failed));
    let probes = scene.shared.world().probes.clone();
    assert_eq!(
        probes,
        [("10.0.0.1".parse().unwrap(), uid.to_string())].into()
    );
    // Another pod that surely has the address gets it.
    if NETNS.is_some() {
        scene.birth(2);
        let other = scene.uid(2).unwrap().to_string();
        scene.hand_over(2, "10.0.0.1");
        scene.work(10);
        scene.agent.keeper.round(true);
        let of_other = [("10.0.0.1".parse().unwrap(), other)].into();
        assert_eq!(scene.shared.world().probes, of_other);
        scene.death(2);
        scene.rest();
    }
    scene.shared.world().netns.insert(uid.to_string(), netns);
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    scene.death(1);
    scene.rest();
    assert_eq!(scene.shared.world().probes, [].into());
}

/// It was shown as enrolled, for as long as the API server did not answer.
#[test]
fn a_pod_is_shown_as_enrolled_when_it_is_annotated() {
    let mut scene = Scene::new();
    scene.namespace("ambient");
    scene.work(0);
    scene.connect();
    scene.birth(1);
    scene.work(0);
    let uid = scene.uid(1).unwrap();
    let shown = |scene: &mut Scene| {
        let member = scene.memory(&uid).member().unwrap();
        (member.state, member.why.unwrap_or_default().to_string())
    };
    let done = run(scene.begin());
    let next = scene.agent.keeper.done(&uid, Ok(done));
    scene.agent.queue.done(&uid, next, scene.now);
    let (state, why) = shown(&mut scene);
    assert_eq!(state, State::Pending);
    assert!(
        why.ends_with("ambient.istio.io/redirection is not written yet"),
        "{why}"
    );
    // The pod may start.
    assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
    scene.work(1);
    assert_eq!(shown(&mut scene), (State::Enrolled, String::new()));
    // Another program removes it each time.
    for _ in 0..10 {
        scene.step(&Step::Strips(1));
        scene.work(10);
    }
    let (state, why) = shown(&mut scene);
    assert_eq!(state, State::Pending);
    assert!(
        why.contains("not written yet: it was written more than five times"),
        "{why}"
    );
    scene
        .shared
        .world()
        .annotations
        .insert(uid.to_string(), "enabled".to_owned());
    scene.publish(1);
    scene.namespace("none");
    scene.work(10);
    let (state, why) = shown(&mut scene);
    assert_eq!(state, State::Leaving);
    assert!(
        why.contains("not removed yet: it was written more than five times"),
        "{why}"
    );
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
}
