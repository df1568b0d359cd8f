//! Pods that leave the mesh or are deleted.

use super::run;
use crate::ambient::tests::histories::Step;
use crate::ambient::tests::{Fault, Scene, settings};
use serde_json::json;
use weir_core::journal::ambient::{Event, State};
use weir_reconcile::Reconciler;

/// What a job did for a pod is known when it ends, and not before.
#[test]
fn a_pod_that_is_deleted_during_its_job_leaves_nothing() {
    let (mut scene, uid) = Scene::joining();
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

/// Settings change with a restart.
#[test]
fn a_pod_whose_namespace_becomes_excluded_leaves_with_the_reason() {
    let (mut scene, _) = Scene::enrolled();
    scene.publish(1);
    scene.rest();
    let mut settings = settings();
    settings.exclude_namespaces = vec!["shop".to_owned()];
    scene.settings = std::sync::Arc::new(settings);
    scene.step(&Step::Restart);
    let told = scene.hears(|event| match event {
        Event::Turned { to: None, why, .. } => Some(why.clone()),
        _ => None,
    });
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    assert!(scene.shared.world().rules.is_empty());
    let whys: Vec<Option<String>> = told.try_iter().collect();
    let [Some(why)] = &whys[..] else {
        panic!("{whys:?}");
    };
    assert!(why.contains("EXCLUDE_NAMESPACES"), "{why}");
}

/// Its manifest is that of an enrolled pod, with `hostNetwork: true`: no network namespace of its own is ever found.
#[test]
fn a_pod_of_the_host_network_loses_the_annotation_of_its_manifest() {
    let mut scene = Scene::new();
    scene.namespace("ambient");
    scene.birth(1);
    let uid = scene.uid(1).unwrap();
    {
        let mut world = scene.shared.world();
        world.netns.remove(&*uid);
        world
            .annotations
            .insert(uid.to_string(), "enabled".to_owned());
    }
    scene.change(1, |p| {
        p["spec"] = json!({"hostNetwork": true});
        p["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    });
    scene.rest();
    assert_eq!(scene.check(), Ok(()));
    assert_eq!(scene.memory(&uid).state, None);
}
