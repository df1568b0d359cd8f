//! Random histories: whatever happens in whatever order, with whatever failures, at rest the kernel, the proxy, the host
//! and the annotations agree with what the API server says.

use super::REDIRECTION;
use super::decision::{Decision, decide};
use super::hands::{Asked, Captured, Hands, Outcome, Probes, Proxy, Rules, Workload};
use super::keeper::{Annotate, Done, Keeper, Sandbox, Told};
use super::pod::{Annotation, Memory};
use super::roster::Roster;
use super::settings::AmbientSettings;
use crate::dataplane::Spent;
use crate::drift::{Drift, Drifted};
use crate::reconcile::{Job, Next, Queue, Reconciler, Uid};
use futures::FutureExt;
use proptest::prelude::*;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use weir_core::journal::Journal;
use weir_core::journal::pod::Cause;
use weir_core::pods::{NamespaceView, PodView, Pods, Writer};
use weir_core::sandboxes::Sandboxes;
use weir_core::settings::resolve;
use weir_netlink::{Netns, NetnsId};

const PODS: u8 = 4;

/// What there is outside of the agent. It survives the agent.
#[derive(Default)]
struct World {
    /// The namespace of each pod that has one, by UID.
    netns: BTreeMap<String, u64>,
    /// Namespaces that hold the rules.
    rules: BTreeSet<u64>,
    /// Connections of proxies, and what each knows: the namespace by UID.
    proxies: BTreeMap<u64, BTreeMap<String, Option<u64>>>,
    last_proxy: u64,
    probes: BTreeMap<IpAddr, String>,
    /// What fails, by the first letter: rules, proxy, host, annotation. A lost answer is done and fails.
    faults: BTreeMap<char, Fault>,
    annotations: BTreeMap<String, String>,
    wrong: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Fails,
    AnswerLost,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<World>>);

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }
}

impl World {
    /// Whether the deed is done, and what is said of it.
    fn tried(&self, what: char) -> (bool, Result<(), String>) {
        match self.faults.get(&what) {
            None => (true, Ok(())),
            Some(Fault::Fails) => (false, Err("it failed".into())),
            Some(Fault::AnswerLost) => (true, Err("the answer is lost".into())),
        }
    }
}

fn uid_of(asked: &Asked) -> String {
    asked.identity.uid().unwrap_or_default().to_owned()
}

impl Rules for Shared {
    fn capture(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        _: Instant,
        _: &mut Spent,
    ) -> Result<(Captured, Outcome), String> {
        let mut world = self.world();
        let netns = *world.netns.get(&uid_of(asked)).ok_or("no namespace")?;
        let (done, said) = world.tried('r');
        let had = world.rules.contains(&netns);
        if done {
            world.rules.insert(netns);
        }
        said?;
        let id = NetnsId { dev: 4, ino: netns };
        let outcome = match (had, before.is_some_and(|b| b.netns == id)) {
            (true, _) => Outcome::Same,
            (false, false) => Outcome::Made {
                summary: "made".into(),
            },
            (false, true) => Outcome::Healed {
                first: "missing".into(),
                differences: 1,
                cause: Cause::Missing,
                summary: "made".into(),
            },
        };
        let captured = Captured {
            netns: id,
            asked: asked.clone(),
            engine: None,
            fingerprint: None,
            compared: Instant::now(),
            held: None,
        };
        Ok((captured, outcome))
    }

    fn release(&self, asked: &Asked, _: Option<&Captured>) -> Result<(), String> {
        let mut world = self.world();
        let (done, said) = world.tried('r');
        let netns = world.netns.get(&uid_of(asked)).copied();
        if let Some(netns) = netns.filter(|_| done) {
            world.rules.remove(&netns);
        }
        said
    }
}

impl Proxy for Shared {
    fn peers(&self) -> Vec<weir_zds::Peer> {
        Vec::new()
    }

    fn newest(&self) -> Option<u64> {
        self.world().proxies.keys().next_back().copied()
    }

    fn add(&self, workload: &Workload) -> Result<u64, String> {
        let mut world = self.world();
        let netns = workload.captured.as_ref().map(|c| c.netns.ino);
        if netns.is_none_or(|netns| !world.rules.contains(&netns)) {
            world.wrong = Some(format!(
                "{} is told to the proxy and has no rules",
                workload.uid
            ));
        }
        let (done, said) = world.tried('p');
        let Some((id, mut known)) = world.proxies.last_entry().map(|e| e.remove_entry()) else {
            return Err("no proxy is connected".into());
        };
        if done {
            known.insert(workload.uid.to_string(), netns);
        }
        world.proxies.insert(id, known);
        said.map(|()| id)
    }

    fn remove(&self, uid: &str) -> Result<(), String> {
        let mut world = self.world();
        let (done, said) = world.tried('p');
        if done {
            world
                .proxies
                .values_mut()
                .for_each(|known| _ = known.remove(uid));
        }
        said
    }
}

impl Probes for Shared {
    fn put(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String> {
        let mut world = self.world();
        let (done, said) = world.tried('h');
        for address in addresses.iter().filter(|_| done) {
            world.probes.insert(*address, uid.to_owned());
        }
        said
    }

    fn remove(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String> {
        let mut world = self.world();
        let (done, said) = world.tried('h');
        if done {
            world
                .probes
                .retain(|address, of| of != uid || !addresses.contains(address));
        }
        said
    }

    fn expect(&self, all: BTreeMap<IpAddr, Arc<str>>) {
        let mut world = self.world();
        world
            .probes
            .retain(|address, of| all.get(address).is_some_and(|uid| **uid == **of));
    }
}

/// One agent, and the clock.
struct Agent {
    keeper: Keeper,
    queue: Queue,
    roster: Roster,
    drifted: Drifted,
    told: Told,
    /// Pods that were not looked at in the first round.
    first: Option<BTreeSet<Uid>>,
}

/// Everything.
struct Scene {
    shared: Shared,
    pods: Pods,
    writer: Writer,
    settings: Arc<AmbientSettings>,
    agent: Agent,
    now: Instant,
    /// Which pod of a name it is.
    births: u64,
    /// By number: the object as the API server has it.
    objects: BTreeMap<u8, serde_json::Value>,
    version: u64,
}

fn settings() -> AmbientSettings {
    let lookup = |name: &str| {
        let value = match name {
            "AMBIENT_ENABLED" => "true",
            "AMBIENT_ENABLEMENT_SELECTOR" => {
                "[{podSelector: {matchExpressions: [{key: m, operator: NotIn, values: [none]}]}, \
                  namespaceSelector: {matchLabels: {m: ambient}}}]"
            }
            _ => return None,
        };
        Some(OsString::from(value))
    };
    AmbientSettings::of(&resolve(&BTreeMap::new(), &lookup))
        .unwrap()
        .unwrap()
}

fn agent(shared: &Shared, pods: &Pods, settings: &Arc<AmbientSettings>) -> Agent {
    let (roster, drifted, told) = (Roster::default(), Drifted::default(), Told::default());
    let world = shared.clone();
    let annotate: Annotate = Arc::new(move |pod, value: Option<Annotation>| {
        let mut world = world.world();
        let (done, said) = world.tried('a');
        if done {
            match value {
                Some(value) => {
                    _ = world
                        .annotations
                        .insert(pod.uid.to_string(), value.text().to_owned())
                }
                None => _ = world.annotations.remove(&*pod.uid),
            }
        }
        futures::future::ready(said).boxed()
    });
    let keeper = Keeper {
        settings: Arc::clone(settings),
        pods: pods.clone(),
        sandboxes: Sandboxes::of_node(),
        hands: Hands {
            rules: Arc::new(shared.clone()),
            proxy: Arc::new(shared.clone()),
            probes: Arc::new(shared.clone()),
        },
        roster: roster.clone(),
        annotate,
        told: told.clone(),
        drifted: drifted.clone(),
        drift: Drift::new(Arc::new(|_, _| {})).0,
        journal: Journal::default(),
        memory: BTreeMap::new(),
        began: false,
        proxy: None,
    };
    Agent {
        keeper,
        queue: Queue::new(2),
        roster,
        drifted,
        told,
        first: None,
    }
}

impl Scene {
    fn new() -> Self {
        let (shared, settings) = (Shared::default(), Arc::new(settings()));
        let (pods, mut writer) = Pods::new();
        writer.begin();
        writer.complete();
        writer.begin_namespaces();
        writer.complete_namespaces();
        let agent = agent(&shared, &pods, &settings);
        Self {
            shared,
            pods,
            writer,
            settings,
            agent,
            now: Instant::now(),
            births: 0,
            objects: BTreeMap::new(),
            version: 0,
        }
    }

    fn namespace(&mut self, mode: &str) {
        let namespace = NamespaceView {
            name: "shop".into(),
            labels: [("m".to_owned(), mode.to_owned())].into(),
            annotations: BTreeMap::new(),
        };
        self.writer.apply_namespace(namespace).unwrap();
    }

    fn birth(&mut self, pod: u8) {
        self.death(pod);
        self.births += 1;
        let (uid, address) = (
            format!("uid-{pod}-{}", self.births),
            format!("10.0.0.{pod}"),
        );
        self.shared.world().netns.insert(uid.clone(), self.births);
        let object = json!({
            "metadata": {"name": format!("web-{pod}"), "namespace": "shop", "uid": uid, "labels": {}},
            "spec": {}, "status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]},
        });
        self.objects.insert(pod, object);
        self.publish(pod);
    }

    fn death(&mut self, pod: u8) {
        if let Some(object) = self.objects.remove(&pod) {
            let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
            let mut world = self.shared.world();
            world.annotations.remove(&uid);
            if let Some(netns) = world.netns.remove(&uid) {
                world.rules.remove(&netns);
            }
            drop(world);
            self.writer.delete("shop", &format!("web-{pod}"));
        }
    }

    /// The object with its annotations, as the watch sees it.
    fn publish(&mut self, pod: u8) {
        let Some(object) = self.objects.get(&pod) else {
            return;
        };
        let mut object = object.clone();
        let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
        if let Some(value) = self.shared.world().annotations.get(&uid) {
            object["metadata"]["annotations"] = json!({REDIRECTION: value});
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.writer
            .apply(PodView::from_value(&object).unwrap())
            .unwrap();
    }

    fn change(&mut self, pod: u8, change: impl FnOnce(&mut serde_json::Value)) {
        if let Some(object) = self.objects.get_mut(&pod) {
            change(object);
            self.publish(pod);
        }
    }

    fn connect(&mut self) {
        let Some(all) = self.agent.roster.all() else {
            return;
        };
        let mut world = self.shared.world();
        // What it knew before and is not told again it drops; what is to be kept it keeps.
        let before = world
            .proxies
            .values()
            .next_back()
            .cloned()
            .unwrap_or_default();
        let known = all.iter().filter_map(|w| {
            let uid = w.uid.to_string();
            match &w.captured {
                Some(captured) => Some((uid, Some(captured.netns.ino))),
                None => before.get(&uid).map(|netns| (uid, *netns)),
            }
        });
        let known = known.collect();
        world.last_proxy += 1;
        let id = world.last_proxy;
        world.proxies.insert(id, known);
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Birth(pod) => self.birth(*pod),
            Step::Death(pod) => self.death(*pod),
            Step::Ends(pod) => self.change(*pod, |p| {
                p["status"] = json!({"phase": "Succeeded"});
            }),
            Step::OptOut(pod, out) => self.change(*pod, |p| {
                p["metadata"]["labels"]["m"] = json!(if *out { "none" } else { "x" });
            }),
            Step::Moves(pod) => self.change(*pod, |p| {
                if p["status"]["phase"] == "Running" {
                    let address = format!("10.0.1.{pod}");
                    p["status"] = json!({"phase": "Running", "podIP": address});
                }
            }),
            Step::Publish(pod) => self.publish(*pod),
            Step::Namespace(on) => self.namespace(if *on { "ambient" } else { "none" }),
            Step::Connect => self.connect(),
            Step::Disconnect => _ = self.shared.world().proxies.pop_last(),
            Step::Flush(pod) => self.flush(*pod),
            Step::Sandbox(pod) => self.sandbox(*pod),
            Step::Fault(what, fault) => {
                let mut world = self.shared.world();
                match fault {
                    Some(fault) => _ = world.faults.insert(*what, *fault),
                    None => _ = world.faults.remove(what),
                }
            }
            Step::Restart => {
                // Its connections end with it.
                self.shared.world().proxies.clear();
                self.agent = agent(&self.shared, &self.pods, &self.settings);
            }
            Step::Work(jobs) => self.work(usize::from(*jobs)),
            Step::Time(seconds) => self.now += Duration::from_secs(u64::from(*seconds)),
        }
    }

    fn uid(&self, pod: u8) -> Option<Uid> {
        Some(self.objects.get(&pod)?["metadata"]["uid"].as_str()?.into())
    }

    fn flush(&mut self, pod: u8) {
        let Some(uid) = self.uid(pod) else { return };
        let mut world = self.shared.world();
        if let Some(netns) = world.netns.get(&*uid).copied() {
            world.rules.remove(&netns);
            drop(world);
            self.agent.drifted.put(uid, None);
        }
    }

    /// The runtime makes the pod's sandbox anew, and the plugin hands it over. What the kubelet tells the API server of it is not
    /// seen yet.
    fn sandbox(&mut self, pod: u8) {
        let address = format!("10.0.0.{pod}");
        let Some(object) = self.objects.get_mut(&pod) else {
            return;
        };
        if object["status"]["phase"] == "Running" {
            object["status"] = json!({"phase": "Running", "podIP": address});
        }
        self.hand_over(pod, &address);
    }

    fn hand_over(&mut self, pod: u8, address: &str) {
        // Where it is does not matter to the stand-in for rules, but it has to be a namespace.
        static NETNS: LazyLock<Option<Netns>> = LazyLock::new(weir_testing::namespace);
        let (Some(uid), Some(netns)) = (self.uid(pod), &*NETNS) else {
            return;
        };
        self.births += 1;
        let mut world = self.shared.world();
        let old = world.netns.insert(uid.to_string(), self.births);
        old.iter().for_each(|old| _ = world.rules.remove(old));
        drop(world);
        let sandbox = Sandbox {
            addresses: vec![address.parse().unwrap()],
            netns: netns.path(),
        };
        self.agent.told.put(&uid, sandbox);
        self.agent.queue.changed(&uid, self.now);
    }

    fn work(&mut self, jobs: usize) {
        let agent = &mut self.agent;
        let Some(changes) = agent.keeper.changes() else {
            return;
        };
        for uid in &changes.gone {
            agent.queue.forget(uid);
        }
        for uid in &changes.changed {
            agent.queue.changed(uid, self.now);
        }
        if agent.first.is_none() {
            for uid in &changes.all {
                agent.queue.sweep(uid, self.now);
            }
            agent.first = Some(changes.all.clone());
        }
        for _ in 0..jobs {
            let Some(start) = agent.queue.start(self.now) else {
                break;
            };
            let next = match agent.keeper.job(&start) {
                Err(next) => next,
                Ok(job) => {
                    let done: Done = match job {
                        Job::Thread(work) => work(),
                        Job::Request(request) => request.now_or_never().unwrap(),
                    };
                    agent.keeper.done(&start.uid, Ok(done))
                }
            };
            agent.queue.done(&start.uid, next, self.now);
            if let Some(first) = agent.first.as_mut() {
                first.remove(&start.uid);
            }
        }
        if agent
            .first
            .as_ref()
            .is_some_and(|first| first.iter().all(|uid| !changes.all.contains(uid)))
        {
            agent.keeper.round(true);
        }
    }

    /// Faults end, a proxy connects, and all work is done.
    fn rest(&mut self) {
        self.shared.world().faults.clear();
        for _ in 0..60 {
            self.now += Duration::from_secs(61);
            self.work(1000);
            if self.shared.world().proxies.is_empty() {
                self.connect();
            }
            for pod in 0..PODS {
                self.publish(pod);
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        let world = self.shared.world();
        if let Some(wrong) = &world.wrong {
            return Err(wrong.clone());
        }
        let newest = world.proxies.values().next_back().ok_or("no proxy")?;
        let mut members = BTreeSet::new();
        for view in self.pods.all() {
            let namespace = self.pods.namespace("shop");
            let uid = view.uid();
            let netns = world.netns.get(uid);
            let is_ruled = netns.is_some_and(|netns| world.rules.contains(netns));
            let annotation = world.annotations.get(uid).map(String::as_str);
            let is_known = newest.get(uid) == Some(&netns.copied());
            match decide(&self.settings, &view, namespace.as_deref()) {
                Decision::Member => {
                    members.insert(uid.to_owned());
                    let probed = view
                        .addresses()
                        .iter()
                        .all(|a| world.probes.get(a).is_some_and(|of| of == uid));
                    if !(is_ruled && is_known && probed && annotation == Some("enabled")) {
                        return Err(format!(
                            "{uid}: rules {is_ruled}, proxy {is_known}, probes {probed}, {annotation:?}"
                        ));
                    }
                }
                Decision::No(why) => {
                    let ended = view.ended();
                    if (is_ruled && !ended) || newest.contains_key(uid) || annotation.is_some() {
                        return Err(format!(
                            "{uid} is not to be a member ({why}): rules {is_ruled}, {annotation:?}, {newest:?}"
                        ));
                    }
                }
                Decision::Unknown => {}
            }
        }
        let unknown = newest.keys().find(|uid| !members.contains(*uid));
        let stale = world.probes.values().find(|uid| !members.contains(*uid));
        match (unknown, stale, self.pods.namespace("shop")) {
            (Some(uid), _, Some(_)) => Err(format!("the proxy still has {uid}")),
            (_, Some(uid), Some(_)) => Err(format!("the host still has {uid}")),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
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
    Sandbox(u8),
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
        1 => pod.prop_map(Step::Sandbox),
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
    scene.step(&Step::Disconnect);
    scene.work(10);
    assert!(scene.check().is_err(), "the annotation is due");
    scene.flush(1);
    for _ in 0..3 {
        scene.now += Duration::from_secs(1);
        scene.work(10);
    }
    assert_eq!(scene.shared.world().rules.len(), 1);
}

/// The plugin starts the pod when it is told so.
#[test]
fn a_new_sandbox_is_enrolled_at_once_and_not_called_so_before() {
    let _ = weir_testing::namespace_or_skip!();
    let (mut scene, uid) = Scene::enrolled();
    scene.contend(&uid);
    scene.memory(&uid).annotate = Some(Some(Annotation::Pending));
    assert_eq!(scene.agent.keeper.verdict(&uid), Ok(()));
    scene.sandbox(1);
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

/// What annotations ask for later is none of another program's doing.
#[test]
fn annotations_of_an_enrolled_pod_change_nothing() {
    let (mut scene, uid) = Scene::enrolled();
    let before = scene.memory(&uid).captured.clone().unwrap().asked;
    let key = "ambient.istio.io/dns-capture";
    let object = scene.objects.get_mut(&1).unwrap();
    object["metadata"]["annotations"] = json!({REDIRECTION: "enabled", key: "true"});
    scene.version += 1;
    object["metadata"]["resourceVersion"] = json!(scene.version.to_string());
    let view = PodView::from_value(object).unwrap();
    let asked = weir_ambient::PodOverrides::of_annotations(&view.pod.metadata.annotations);
    assert_ne!(asked, before.overrides);
    scene.writer.apply(view).unwrap();
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
    scene.sandbox(1);
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
    scene.sandbox(1);
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
    scene.step(&Step::Moves(1));
    scene.agent.keeper.changes();
    assert_eq!(
        scene.memory(&uid).addresses(),
        ["10.0.1.1".parse::<IpAddr>().unwrap()]
    );
}
