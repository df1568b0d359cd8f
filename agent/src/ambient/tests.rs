//! A keeper of pods on stand-ins for the kernel, the proxy, the host and the API server.

mod cases;
mod hands;
mod histories;
mod steps;

use super::REDIRECTION;
use super::decision::{Decision, decide};
use super::hands::Hands;
use super::keeper::{Annotate, Done, Keeper, Sandbox, Told};
use super::pod::Annotation;
use super::roster::Roster;
use super::settings::AmbientSettings;
use crate::dataplane::Hindrance;
use futures::FutureExt;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use steps::Running;
use weir_core::journal::Journal;
use weir_core::pods::{NamespaceView, PodView, Pods, Writer};
use weir_core::sandboxes::Sandboxes;
use weir_core::settings::resolve;
use weir_drift::{Drift, Drifted};
use weir_live::Proof;
use weir_netlink::Netns;
use weir_reconcile::{Job, Next, Queue, Reconciler, Uid};
use weir_testing::TempDir;

const PODS: u8 = 4;
/// What is at the paths where the plugin says that pods are. It does not matter to the stand-in for rules, but has to be a namespace.
static NETNS: LazyLock<Option<Netns>> = LazyLock::new(weir_testing::namespace);

/// What there is outside of the agent. It survives the agent.
#[derive(Default)]
struct World {
    /// The namespace of each pod that has one, by UID.
    netns: BTreeMap<String, u64>,
    /// The same for pods that the plugin handed over for the one of their name before.
    mistaken: BTreeMap<String, u64>,
    /// Namespaces that hold the rules.
    rules: BTreeSet<u64>,
    /// Those that lost them by another program or with the sandbox. For an agent that starts: those whose pod was captured, perhaps in
    /// an earlier one.
    lost: BTreeSet<u64>,
    /// Connections of proxies, and what each knows: the namespace by UID.
    proxies: BTreeMap<u64, Known>,
    last_proxy: u64,
    /// A connection with a snapshot in progress: the list was taken.
    arriving: Option<(u64, Known)>,
    /// What the newest proxy knew whose connection ended: it connects again and still has that.
    away: Known,
    /// What slow proxies have not answered yet: the connection, and the namespace to be added, or the pod to be removed.
    unanswered: Vec<(u64, String, Option<u64>)>,
    probes: BTreeMap<IpAddr, String>,
    /// What fails, by the first letter: rules, proxy, host, annotation. A lost answer is done and fails.
    faults: BTreeMap<char, Fault>,
    annotations: BTreeMap<String, String>,
    /// The newest of any object.
    version: u64,
    /// What keeps packets from the rules of every pod.
    foreign: Option<Hindrance>,
    /// The proxy takes pods, and has not answered yet.
    is_slow: bool,
    /// The keeper said that all pods are captured.
    all_captured: bool,
    /// The result of a connection test, and how many were made.
    proof: Option<Proof>,
    proofs: usize,
    wrong: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Fails,
    AnswerLost,
}

type Known = BTreeMap<String, Option<u64>>;

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

    /// The sandbox ends, and its rules with it.
    fn ends(&mut self, netns: u64) {
        self.rules.remove(&netns);
        self.lost.insert(netns);
    }

    /// Leaves a request to a slow proxy, once.
    fn ask(&mut self, proxy: u64, uid: &str, netns: Option<u64>) {
        let mut all = self.unanswered.iter().rev();
        let last = all.find(|(of, pod, _)| (*of, pod.as_str()) == (proxy, uid));
        if last.is_none_or(|(_, _, asked)| *asked != netns) {
            self.unanswered.push((proxy, uid.to_owned(), netns));
        }
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
    /// Jobs that have begun.
    running: BTreeMap<Uid, Running>,
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
    /// The API server's events arrive.
    is_watched: bool,
    /// The label of the namespace as the API server has it.
    mode: Option<String>,
    /// By number: the object as the API server has it.
    objects: BTreeMap<u8, serde_json::Value>,
    /// As the watch saw them last.
    published: BTreeMap<u8, serde_json::Value>,
    /// Where the plugin reports the sandbox of each pod.
    paths: BTreeMap<u8, PathBuf>,
    dir: TempDir,
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
        let world = world.clone();
        let write = async move {
            let mut world = world.world();
            let (done, said) = world.tried('a');
            world.version += 1;
            let said = said.map(|()| world.version.to_string());
            let uid = pod.uid.to_string();
            match value.filter(|_| done) {
                Some(value) => _ = world.annotations.insert(uid, value.text().to_owned()),
                None if done => _ = world.annotations.remove(&uid),
                None => {}
            }
            said
        };
        write.boxed()
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
        namespaces: BTreeMap::new(),
        began: false,
        proxy: None,
        all_captured: false,
    };
    Agent {
        keeper,
        queue: Queue::new(2),
        roster,
        drifted,
        told,
        first: None,
        running: BTreeMap::new(),
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
            is_watched: true,
            mode: None,
            objects: BTreeMap::new(),
            published: BTreeMap::new(),
            paths: BTreeMap::new(),
            dir: TempDir::new(),
        }
    }

    fn namespace(&mut self, mode: &str) {
        self.mode = Some(mode.to_owned());
        if !self.is_watched {
            return;
        }
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
            world.netns.remove(&uid).iter().for_each(|n| world.ends(*n));
            drop(world);
            if self.is_watched {
                self.writer.delete("shop", &format!("web-{pod}"), None);
            }
        }
    }

    /// The object with its annotations.
    fn object(&self, pod: u8) -> Option<serde_json::Value> {
        let mut object = self.objects.get(&pod)?.clone();
        let uid = object["metadata"]["uid"].as_str()?.to_owned();
        if let Some(value) = self.shared.world().annotations.get(&uid) {
            object["metadata"]["annotations"] = json!({REDIRECTION: value});
        }
        Some(object)
    }

    /// The watch sees the object.
    fn publish(&mut self, pod: u8) {
        let Some(mut object) = self.object(pod).filter(|_| self.is_watched) else {
            return;
        };
        self.published.insert(pod, object.clone());
        let mut world = self.shared.world();
        world.version += 1;
        object["metadata"]["resourceVersion"] = json!(world.version.to_string());
        drop(world);
        self.writer
            .apply(PodView::from_value(&object).unwrap())
            .unwrap();
    }

    /// The same if it has changed since.
    fn publish_news(&mut self, pod: u8) {
        if self.published.get(&pod) != self.object(pod).as_ref() {
            self.publish(pod);
        }
    }

    fn change(&mut self, pod: u8, change: impl FnOnce(&mut serde_json::Value)) {
        if let Some(object) = self.objects.get_mut(&pod) {
            change(object);
            self.publish(pod);
        }
    }

    /// A proxy gets its snapshot.
    fn connect(&mut self) {
        self.list();
        self.arrive();
    }

    /// The snapshot is complete.
    fn arrive(&mut self) {
        let mut world = self.shared.world();
        let arrived = world.arriving.take();
        world.proxies.extend(arrived);
    }

    /// The list of a snapshot is taken.
    fn list(&mut self) {
        let Some(all) = self.agent.roster.all() else {
            return;
        };
        let mut world = self.shared.world();
        // What it knew before and is not told again it drops; what is to be kept it keeps.
        let before = std::mem::take(&mut world.away);
        let known = all.iter().filter_map(|w| {
            let uid = w.uid.to_string();
            match &w.captured {
                Some(captured) => Some((uid, Some(captured.netns.ino))),
                None => before.get(&uid).map(|netns| (uid, *netns)),
            }
        });
        let known = known.collect();
        world.last_proxy += 1;
        world.arriving = Some((world.last_proxy, known));
    }

    fn uid(&self, pod: u8) -> Option<Uid> {
        Some(self.objects.get(&pod)?["metadata"]["uid"].as_str()?.into())
    }

    fn flush(&mut self, pod: u8) {
        let Some(uid) = self.uid(pod) else { return };
        let mut world = self.shared.world();
        if let Some(netns) = world.netns.get(&*uid).copied() {
            world.ends(netns);
            drop(world);
            self.agent.drifted.put(uid, None);
        }
    }

    /// A rule that takes packets first comes or goes, and is noticed at one pod.
    fn foreign(&mut self, pod: u8, is_there: bool) {
        self.shared.world().foreign = is_there.then(|| Hindrance::Foreign("a foreign rule".into()));
        if let Some(uid) = self.uid(pod) {
            self.agent.drifted.put(uid, None);
        }
    }

    /// The runtime makes the pod's sandbox anew, and the plugin hands it over. What the kubelet tells the API server of it is not
    /// seen yet.
    fn sandbox(&mut self, pod: u8, moves: bool) {
        let address = match moves {
            true => format!("10.2.{}.{pod}", self.births),
            false => format!("10.0.0.{pod}"),
        };
        let Some(object) = self.objects.get_mut(&pod) else {
            return;
        };
        if object["status"]["phase"] == "Running" {
            object["status"] = json!({"phase": "Running", "podIP": address});
        }
        self.hand_over(pod, &address);
    }

    /// While nothing is watched the agent may take it for the pod of this name before, or know none: then the sandbox is removed.
    fn hand_over(&mut self, pod: u8, address: &str) {
        let Some((uid, path)) = self.make_anew(pod) else {
            return;
        };
        let known = self.pods.get("shop", &format!("web-{pod}"));
        let mut world = self.shared.world();
        let Some(known) = known else {
            world.netns.remove(&*uid);
            return;
        };
        if known.uid() != &*uid {
            world.mistaken.insert(known.uid().to_owned(), self.births);
        }
        drop(world);
        self.call(&known.uid().into(), &path, vec![address.parse().unwrap()]);
    }

    /// The runtime makes the pod's sandbox anew, at another path.
    fn make_anew(&mut self, pod: u8) -> Option<(Uid, PathBuf)> {
        let (uid, netns) = (self.uid(pod)?, NETNS.as_ref()?);
        self.births += 1;
        let path = self.dir.file(&self.births.to_string());
        std::os::unix::fs::symlink(netns.path(), &path).unwrap();
        if let Some(before) = self.paths.insert(pod, path.clone()) {
            std::fs::remove_file(before).unwrap();
        }
        let mut world = self.shared.world();
        let before = world.netns.insert(uid.to_string(), self.births);
        before.iter().for_each(|n| world.ends(*n));
        // A job that has begun cannot know that the pod was captured in an earlier one.
        if self.agent.running.contains_key(&uid) {
            world.lost.insert(self.births);
        }
        drop(world);
        Some((uid, path))
    }

    /// The same without the plugin. The job of its last call has seen the path of that time, and the agent notices that the namespace it
    /// knows is gone.
    fn make_untold(&mut self, pod: u8) {
        if let (Some(uid), Some(path)) = (self.uid(pod), self.paths.get(&pod)) {
            let _ = self.agent.keeper.sandboxes.announce_path(&uid, path);
        }
        if let Some((uid, path)) = self.make_anew(pod) {
            self.paths.remove(&pod);
            std::fs::remove_file(path).unwrap();
            // Nor can any job, if the rules fail there.
            self.shared.world().lost.insert(self.births);
            self.agent.drifted.put(uid, None);
        }
    }

    /// The plugin is called for the namespace at this path.
    fn call(&mut self, uid: &Uid, netns: &Path, addresses: Vec<IpAddr>) {
        let known = self.pods.all().into_iter().find(|v| v.uid() == &**uid);
        let sandbox = Sandbox {
            addresses,
            before: known.map(|view| view.addresses()).unwrap_or_default(),
            netns: netns.to_owned(),
        };
        self.agent.told.put(uid, sandbox);
        self.agent.queue.changed(uid, self.now);
    }

    /// Collects what changed. None: the pods are not known.
    fn look(&mut self) -> Option<BTreeSet<Uid>> {
        let agent = &mut self.agent;
        let changes = agent.keeper.changes()?;
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
        Some(changes.all)
    }

    fn work(&mut self, jobs: usize) {
        let Some(all) = self.look() else { return };
        for _ in 0..jobs {
            let Some(start) = self.agent.queue.start(self.now) else {
                break;
            };
            let next = match self.agent.keeper.job(&start) {
                Err(next) => next,
                Ok(job) => {
                    let done: Done = match job {
                        Job::Thread(work) => work(),
                        Job::Request(request) => request.now_or_never().unwrap(),
                    };
                    self.agent.keeper.done(&start.uid, Ok(done))
                }
            };
            self.settle(&start.uid, next);
        }
        let first = self.agent.first.iter().flatten();
        if first.into_iter().all(|uid| !all.contains(uid)) {
            self.agent.keeper.round(true);
        }
    }

    fn settle(&mut self, uid: &Uid, next: Next) {
        self.agent.queue.done(uid, next, self.now);
        self.looked_at(uid);
    }

    fn looked_at(&mut self, uid: &Uid) {
        self.agent.first.iter_mut().for_each(|f| _ = f.remove(uid));
    }

    /// Faults end, a proxy connects, and all work is done. Nothing is looked at again but for a reason.
    fn rest(&mut self) {
        self.shared.world().faults.clear();
        for _ in 0..20 {
            self.now += Duration::from_secs(61);
            self.work(1000);
            if self.shared.world().proxies.is_empty() {
                self.connect();
            }
            for pod in 0..PODS {
                self.publish_news(pod);
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
                    let is_told = world.proxies.values().any(|p| p.contains_key(uid));
                    if (is_ruled && !ended) || is_told || annotation.is_some() {
                        return Err(format!(
                            "{uid} is not to be a member ({why}): rules {is_ruled}, {annotation:?}, {newest:?}"
                        ));
                    }
                }
                Decision::Unknown => {}
            }
        }
        let mut known = world.proxies.values().flat_map(Known::keys);
        let unknown = known.find(|uid| !members.contains(*uid));
        let stale = world.probes.values().find(|uid| !members.contains(*uid));
        match (unknown, stale, self.pods.namespace("shop")) {
            (Some(uid), _, Some(_)) => Err(format!("a proxy still has {uid}")),
            (_, Some(uid), Some(_)) => Err(format!("the host still has {uid}")),
            _ => Ok(()),
        }
    }
}
