//! Proxies that do not answer, connect anew or are not there.

use super::run;
use crate::ambient::tests::histories::Step;
use crate::ambient::tests::{Fault, Scene};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use weir_core::journal::ambient::State;
use weir_reconcile::{Next, Reconciler, Uid};

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
