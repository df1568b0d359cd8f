//! Random histories: whatever happens in whatever order, with whatever failures, at rest the kernel, the proxy, the host
//! and the annotations agree with what the API server says.

use super::{Fault, PODS, Scene, agent};
use proptest::prelude::*;
use serde_json::json;
use std::time::Duration;

impl Scene {
    pub(super) fn step(&mut self, step: &Step) {
        match step {
            Step::Birth(pod) => self.birth(*pod),
            Step::Death(pod) => self.death(*pod),
            Step::Ends(pod) => self.change(*pod, |p| {
                p["status"] = json!({"phase": "Succeeded"});
            }),
            Step::OptOut(pod, out) => self.change(*pod, |p| {
                p["metadata"]["labels"]["m"] = json!(if *out { "none" } else { "x" });
            }),
            Step::Moves(pod) => {
                // To one that it never had: back in the address of a sandbox before, nobody could tell.
                self.births += 1;
                let address = format!("10.1.{}.{pod}", self.births);
                self.change(*pod, |p| {
                    if p["status"]["phase"] == "Running" {
                        p["status"] = json!({"phase": "Running", "podIP": address});
                    }
                });
            }
            Step::Publish(pod) => self.publish(*pod),
            Step::Namespace(on) => self.namespace(if *on { "ambient" } else { "none" }),
            Step::Connect => self.connect(),
            Step::Disconnect => _ = self.shared.world().proxies.pop_last(),
            Step::Flush(pod) => self.flush(*pod),
            Step::Sandbox(pod, moves) => self.sandbox(*pod, *moves),
            Step::Strips(pod) => {
                // Another program removes the annotation.
                let uid = self.uid(*pod);
                uid.and_then(|uid| self.shared.world().annotations.remove(&*uid));
                self.publish(*pod);
            }
            Step::Foreign(pod, is_there) => self.foreign(*pod, *is_there),
            Step::Fault(what, fault) => {
                let mut world = self.shared.world();
                match fault {
                    Some(fault) => _ = world.faults.insert(*what, *fault),
                    None => _ = world.faults.remove(what),
                }
            }
            Step::Restart => {
                let mut world = self.shared.world();
                // Its connections end with it.
                world.proxies.clear();
                // The next one knows which pods were captured, and not in which sandbox.
                let is_it = |(uid, _): &(&String, &u64)| world.ruled_pods.contains(*uid);
                let may_be: Vec<u64> = world.netns.iter().filter(is_it).map(|(_, n)| *n).collect();
                world.ruled.extend(may_be);
                drop(world);
                self.agent = agent(&self.shared, &self.pods, &self.settings);
            }
            Step::Work(jobs) => self.work(usize::from(*jobs)),
            Step::Time(seconds) => self.now += Duration::from_secs(u64::from(*seconds)),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) enum Step {
    Birth(u8),
    Death(u8),
    Ends(u8),
    OptOut(u8, bool),
    Moves(u8),
    Publish(u8),
    Namespace(bool),
    Connect,
    Disconnect,
    Flush(u8),
    /// The plugin hands it over, with the address of its birth or one that it never had.
    Sandbox(u8, bool),
    Foreign(u8, bool),
    Strips(u8),
    Fault(char, Option<Fault>),
    Restart,
    Work(u8),
    Time(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let pod = 0..PODS;
    let fault = prop_oneof![
        Just(None),
        Just(Some(Fault::Fails)),
        Just(Some(Fault::AnswerLost))
    ];
    let what = prop_oneof![Just('r'), Just('p'), Just('h'), Just('a')];
    prop_oneof![
        5 => pod.clone().prop_map(Step::Birth),
        2 => pod.clone().prop_map(Step::Death),
        1 => pod.clone().prop_map(Step::Ends),
        2 => (pod.clone(), any::<bool>()).prop_map(|(pod, out)| Step::OptOut(pod, out)),
        1 => pod.clone().prop_map(Step::Moves),
        3 => pod.clone().prop_map(Step::Publish),
        3 => any::<bool>().prop_map(Step::Namespace),
        3 => Just(Step::Connect),
        2 => Just(Step::Disconnect),
        2 => pod.clone().prop_map(Step::Flush),
        2 => (pod.clone(), any::<bool>()).prop_map(|(pod, moves)| Step::Sandbox(pod, moves)),
        1 => pod.clone().prop_map(Step::Strips),
        1 => (pod, any::<bool>()).prop_map(|(pod, is)| Step::Foreign(pod, is)),
        3 => (what, fault).prop_map(|(what, fault)| Step::Fault(what, fault)),
        1 => Just(Step::Restart),
        8 => (0..6u8).prop_map(Step::Work),
        3 => (0..70u8).prop_map(Step::Time),
    ]
}

proptest! {
    #[test]
    fn histories_come_to_rest(steps in proptest::collection::vec(step(), 0..60)) {
        let mut scene = Scene::new();
        for step in &steps {
            scene.step(step);
        }
        scene.rest();
        prop_assert_eq!(scene.check(), Ok(()));
    }
}
