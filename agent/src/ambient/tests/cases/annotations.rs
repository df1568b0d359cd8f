//! The annotation of a pod, and what other programs do to it.

use super::run;
use crate::ambient::REDIRECTION;
use crate::ambient::tests::histories::Step;
use crate::ambient::tests::{Fault, Scene};
use serde_json::json;
use std::time::Duration;
use weir_ambient::PodOverrides;
use weir_core::journal::ambient::State;
use weir_core::pods::PodView;
use weir_reconcile::{Reconciler, Uid};

impl Scene {
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

/// It was shown as enrolled, for as long as the API server did not answer.
#[test]
fn a_pod_is_shown_as_enrolled_when_it_is_annotated() {
    let (mut scene, uid) = Scene::joining();
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

/// It left before the annotation was written, and without rules other nodes could not reach it by HBONE.
#[test]
fn a_pod_that_joins_again_is_not_called_enabled_before_it_is_captured() {
    let (mut scene, uid) = Scene::joining();
    let done = run(scene.begin());
    let next = scene.agent.keeper.done(&uid, Ok(done));
    scene.agent.queue.done(&uid, next, scene.now);
    scene.namespace("none");
    scene.work(10);
    assert!(scene.shared.world().rules.is_empty());
    scene.step(&Step::Fault('r', Some(Fault::Fails)));
    scene.namespace("ambient");
    scene.work(10);
    assert_eq!(scene.shared.world().annotations, [].into());
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
}
