//! Random histories: whatever happens in whatever order, also between the operations of a job, with whatever failures, at rest the
//! kernel, the proxies, the host and the annotations agree with what the API server says.
//!
//! `WEIR_LONG` tries many, and `WEIR_SEED` repeats a run. Earlier failures are stored in `proptest-regressions` and run first.

use super::steps::Running;
use super::{Fault, NETNS, PODS, Scene, agent};
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed, TestRunner};
use serde_json::json;
use std::time::Duration;
use weir_reconcile::Reconciler;
use weir_testing::effort;

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
            Step::List => self.list(),
            Step::Arrive => self.arrive(),
            Step::Disconnect => {
                let mut world = self.shared.world();
                world.away = world.proxies.pop_last().unwrap_or_default().1;
            }
            Step::Slow(is) => self.slow(*is),
            Step::Flush(pod) => self.flush(*pod),
            Step::Sandbox(pod, moves) => self.sandbox(*pod, *moves),
            Step::Untold(pod) => self.make_untold(*pod),
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
            Step::Restart => self.restart(),
            Step::Reboot => {
                // The plugin hands over the sandboxes that are made anew.
                if NETNS.is_some() {
                    self.restart();
                    let mut world = self.shared.world();
                    (world.rules, world.lost) = Default::default();
                    world.netns.clear();
                    world.probes.clear();
                    world.away.clear();
                }
            }
            Step::Watch(is) => self.watch(*is),
            Step::Begin => self.begin_job(),
            Step::Go(job, times) => {
                for _ in 0..*times {
                    self.go_on(usize::from(*job));
                }
            }
            Step::Late(job) => self.late(usize::from(*job)),
            Step::Round => {
                let all: Vec<_> = self.agent.keeper.memory.keys().cloned().collect();
                all.iter()
                    .for_each(|uid| self.agent.queue.sweep(uid, self.now));
            }
            Step::Work(jobs) => self.work(usize::from(*jobs)),
            Step::Time(seconds) => self.now += Duration::from_secs(u64::from(*seconds)),
        }
    }

    fn restart(&mut self) {
        let mut world = self.shared.world();
        // Its connections end with it.
        let proxies = std::mem::take(&mut world.proxies);
        world.away = proxies.into_values().next_back().unwrap_or_default();
        world.unanswered.clear();
        world.arriving = None;
        // The next one knows which pods were captured, and not in which sandbox.
        let is_it = |(uid, _): &(&String, &u64)| world.annotations.contains_key(*uid);
        let may_be: Vec<u64> = world.netns.iter().filter(is_it).map(|(_, n)| *n).collect();
        world.lost.extend(may_be);
        drop(world);
        // The next one begins with a list.
        self.watch(true);
        self.agent = agent(&self.shared, &self.pods, &self.settings);
    }

    /// A proxy that was slow answers everything, in order.
    fn slow(&mut self, is: bool) {
        let mut world = self.shared.world();
        world.is_slow = is;
        if is {
            return;
        }
        for (proxy, uid, netns) in std::mem::take(&mut world.unanswered) {
            let Some(known) = world.known(proxy) else {
                continue;
            };
            match netns {
                Some(_) => _ = known.insert(uid.clone(), netns),
                None => _ = known.remove(&uid),
            }
            self.agent.roster.answered(&uid.into());
        }
    }

    /// Events of the API server do not arrive, or all is listed anew.
    fn watch(&mut self, is: bool) {
        if !std::mem::replace(&mut self.is_watched, is) && is {
            self.writer.begin();
            (0..PODS).for_each(|pod| self.publish(pod));
            self.writer.complete();
            if let Some(mode) = self.mode.clone() {
                self.namespace(&mode);
            }
        }
    }

    fn begin_job(&mut self) {
        if self.look().is_none() {
            return;
        }
        let Some(start) = self.agent.queue.start(self.now) else {
            return;
        };
        match self.agent.keeper.job(&start) {
            Err(next) => self.settle(&start.uid, next),
            Ok(job) => {
                let running = Running::begin(job);
                if let Running::Request(_) = running {
                    self.agent.queue.late(&start.uid);
                    self.looked_at(&start.uid);
                }
                self.agent.running.insert(start.uid, running);
            }
        }
    }

    /// The n-th job that has begun does its next operation, or its result is taken.
    fn go_on(&mut self, n: usize) {
        let count = self.agent.running.len().max(1);
        let uid = self.agent.running.keys().nth(n % count).cloned();
        let Some((uid, running)) = uid.and_then(|uid| self.agent.running.remove_entry(&uid)) else {
            return;
        };
        match running {
            Running::Ended(done) => {
                let next = self.agent.keeper.done(&uid, Ok(done));
                self.settle(&uid, next);
            }
            running => _ = self.agent.running.insert(uid, running.next()),
        }
    }

    fn late(&mut self, n: usize) {
        let (count, mut all) = (self.agent.running.len().max(1), self.agent.running.iter());
        if let Some((uid, Running::Thread { .. })) = all.nth(n % count) {
            let uid = uid.clone();
            self.agent.queue.late(&uid);
            self.agent.keeper.late(&uid);
            self.looked_at(&uid);
        }
    }

    /// All that was begun ends, and what was broken off is made up for.
    fn end(&mut self) {
        self.slow(false);
        self.shared.world().faults.clear();
        while !self.agent.running.is_empty() {
            self.go_on(0);
        }
        self.watch(true);
        self.arrive();
        for pod in 0..PODS {
            let uid = self.uid(pod).unwrap_or_default();
            if !self.shared.world().netns.contains_key(&*uid) {
                self.sandbox(pod, false);
            }
        }
        self.rest();
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
    /// The same in two parts.
    List,
    Arrive,
    /// The connection of the newest ends.
    Disconnect,
    /// Proxies answer later, or again at once.
    Slow(bool),
    Flush(u8),
    /// The plugin hands it over, with the address of its birth or one that it never had.
    Sandbox(u8, bool),
    /// Its sandbox is made anew, with the same address, and the plugin does not reach the agent.
    Untold(u8),
    Foreign(u8, bool),
    Strips(u8),
    Fault(char, Option<Fault>),
    Restart,
    Reboot,
    Watch(bool),
    /// A job begins.
    Begin,
    /// A job that has begun does so many operations.
    Go(u8, u8),
    /// A job that has begun is not waited for.
    Late(u8),
    Round,
    Work(u8),
    Time(u8),
}

fn step() -> impl Strategy<Value = Step> {
    // Most concern one pod, so that a history is about something.
    let pod = prop_oneof![2 => Just(0), 1 => 0..PODS];
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
        4 => (pod.clone(), any::<bool>()).prop_map(|(pod, out)| Step::OptOut(pod, out)),
        1 => pod.clone().prop_map(Step::Moves),
        3 => pod.clone().prop_map(Step::Publish),
        5 => any::<bool>().prop_map(Step::Namespace),
        3 => Just(Step::Connect),
        2 => Just(Step::List),
        2 => Just(Step::Arrive),
        2 => Just(Step::Disconnect),
        2 => pod.clone().prop_map(Step::Flush),
        2 => (pod.clone(), any::<bool>()).prop_map(|(pod, moves)| Step::Sandbox(pod, moves)),
        1 => pod.clone().prop_map(Step::Untold),
        1 => pod.clone().prop_map(Step::Strips),
        1 => (pod, any::<bool>()).prop_map(|(pod, is)| Step::Foreign(pod, is)),
        8 => (what, fault).prop_map(|(what, fault)| Step::Fault(what, fault)),
        2 => any::<bool>().prop_map(Step::Slow),
        2 => Just(Step::Restart),
        1 => Just(Step::Reboot),
        2 => any::<bool>().prop_map(Step::Watch),
        8 => Just(Step::Begin),
        12 => (0..2u8, 1..5u8).prop_map(|(job, times)| Step::Go(job, times)),
        1 => (0..2u8).prop_map(Step::Late),
        1 => Just(Step::Round),
        12 => (0..8u8).prop_map(Step::Work),
        3 => (0..70u8).prop_map(Step::Time),
    ]
}

/// Half of the histories begin with pods that are enrolled.
fn histories() -> impl Strategy<Value = Vec<Step>> {
    let before = [
        Step::Namespace(true),
        Step::Birth(0),
        Step::Birth(1),
        Step::Work(8),
        Step::Connect,
        Step::Work(8),
    ];
    let steps = proptest::collection::vec(step(), 0..80);
    (any::<bool>(), steps).prop_map(move |(are_enrolled, steps)| {
        let before = before.iter().filter(|_| are_enrolled).cloned();
        before.chain(steps).collect()
    })
}

fn comes_to_rest(steps: &[Step]) -> Result<(), String> {
    let mut scene = Scene::new();
    steps.iter().for_each(|step| scene.step(step));
    scene.end();
    scene.check()
}

#[test]
fn histories_come_to_rest() {
    let usual = match std::env::var_os("WEIR_LONG") {
        Some(_) => 20_000,
        None => 256,
    };
    let (cases, seed) = (effort::cases(usual), effort::seed());
    println!("{cases} cases; the same again with WEIR_SEED={seed}");
    let kept = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/histories.txt"
    );
    let config = ProptestConfig {
        cases,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(&histories(), |steps| {
        comes_to_rest(&steps).map_err(TestCaseError::fail)
    });
    if let Err(e) = outcome {
        panic!("WEIR_SEED={seed}: {e}");
    }
}

/// Failures of earlier versions of these steps.
#[test]
fn histories_that_went_wrong_come_to_rest() {
    use Step::*;
    let fails = |what| Fault(what, Some(super::Fault::Fails));
    let lost = |what| Fault(what, Some(super::Fault::AnswerLost));
    #[rustfmt::skip]
    let all = [
        vec![Birth(0), Namespace(true), Work(1), fails('r'), Namespace(false), Restart, Work(1)],
        vec![Birth(3), Sandbox(3, false), Namespace(true), Moves(3)],
        vec![Work(0), Connect, Namespace(true), Birth(3), fails('h'), Work(1), fails('r'), Sandbox(3, false), Work(1), Ends(3)],
        vec![Birth(0), Work(1), Namespace(true), Connect, Work(2), lost('a'), Moves(1), Namespace(false), Work(2), Namespace(true)],
        vec![Namespace(true), Birth(2), Work(2), fails('r'), Publish(2), Sandbox(2, false), Restart, Work(1)],
        // Its rules were removed by this agent, and the annotation of an earlier one is still seen.
        vec![Namespace(true), Birth(0), Birth(2), Work(4), Ends(0), Namespace(false), Publish(2), Restart, Begin, Work(1), Birth(0), fails('r'), Namespace(true), Work(1)],
        // The annotation is of the sandbox before, and the new one has never had rules.
        vec![Namespace(true), Birth(0), Work(4), Connect, Work(4), Publish(0), Restart, Work(4), Sandbox(0, false), fails('r'), Work(2), OptOut(0, true), Work(1), OptOut(0, false), Work(1)],
        // The path that the plugin reported is gone.
        vec![Namespace(true), Birth(0), Work(1), fails('r'), Sandbox(0, false), Work(1), Untold(0)],
    ];
    for steps in all {
        assert_eq!(comes_to_rest(&steps), Ok(()), "{steps:?}");
    }
}
