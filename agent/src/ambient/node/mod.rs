//! Pods whose traffic is captured in the node's namespace and routed to the one proxy of the node
//! (`WEIR_AMBIENT_ENGINE=node`), or by programs of eBPF there (`node-ebpf`).
//!
//! What the node is to have follows from all pods that are known now ([`desired`]), not from the pod that is asked about: after
//! a restart no pod loses its capture while others are looked at. Before all pods are known nothing is written. One comparison
//! answers for all pods that were asked about before it began.

mod desired;
#[cfg(test)]
mod tests;

use super::ebpf;
use super::hands::{Asked, Captured, Outcome, Probes, Proxy, Rules, Workload};
use super::settings::{AmbientSettings, Way};
use crate::dataplane::Spent;
use crate::dataplane::ambient::Ambient;
use desired::Desired;
pub(super) use desired::former;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_ambient::AMBIENT;
use weir_cni::compile::Engine;
use weir_cni::plugin::Phase;
use weir_cni::redirection::{Desired as _, Fingerprint, FingerprintReader};
use weir_core::journal::Journal;
use weir_core::journal::ambient::{By, Event, Purpose};
use weir_core::journal::pod::Cause;
use weir_core::pods::Pods;
use weir_core::sandboxes::place::Processes;
use weir_core::sandboxes::{Held, Sandboxes};
use weir_ebpf::Bpffs;
use weir_ebpf::node::{Attached, Node as Programs};
use weir_netlink::Netns;
use weir_node_ambient::{Collision, Config, Node, Pod, ebpf as programs};

/// The objects of the node; clones are the same.
#[derive(Clone)]
pub(super) struct AtNode(Arc<Shared>);

struct Shared {
    settings: Arc<AmbientSettings>,
    plane: Ambient,
    pods: Pods,
    sandboxes: Sandboxes,
    places: Places,
    journal: Journal,
    state: Mutex<State>,
}

/// What is not a pod's.
pub(super) struct Places {
    /// The namespace of the node, if it is not this process's own.
    pub(super) netns: Option<PathBuf>,
    /// Where an agent with another setting pinned programs.
    pub(super) bpffs: PathBuf,
}

#[derive(Default)]
struct State {
    /// Addresses by the plugin, by UID, which the API server may not know yet.
    told: BTreeMap<String, Vec<IpAddr>>,
    /// What was written last.
    applied: Option<Config>,
    /// What was seen to be in force last; `None`: the last look failed.
    seen: Option<Seen>,
    /// Host ends of pods' links, and for which addresses and namespace they were found.
    devices: BTreeMap<String, (Pod, Vec<String>)>,
    reader: Option<FingerprintReader>,
    /// The last result that was reported.
    reported: Option<Option<String>>,
    /// What `config.json` says.
    shared: Option<bool>,
    /// Everything was removed for good.
    ended: bool,
}

/// All was found as it should be.
#[derive(Clone)]
struct Seen {
    config: Config,
    node: Arc<Node>,
    by: By,
    at: Instant,
    /// From before that was compared.
    fingerprint: Option<Print>,
    /// What others have meanwhile that prevents a part of it.
    collision: Option<Collision>,
}

impl Seen {
    /// Why it is not good though it is as it should be.
    fn but(&self) -> Option<String> {
        let found = self.collision.as_ref();
        found.map(|found| format!("the rules are in force, but {found}"))
    }

    /// Connections of pods reach their peer without the proxy.
    fn is_bypassed(&self) -> bool {
        self.collision.as_ref().is_some_and(|found| found.bypasses)
    }
}

/// What tells that another writer was there.
#[derive(Clone, PartialEq)]
struct Print {
    rules: Fingerprint,
    /// The kernel reports neither a detached program nor a replaced one.
    programs: Option<Attached>,
}

/// What was found, what captures, and what was changed.
struct Written {
    node: Node,
    by: By,
    steps: Vec<String>,
    collision: Option<Collision>,
}

impl Written {
    fn new(node: Node, by: By, steps: Vec<String>) -> Self {
        Self {
            node,
            by,
            steps,
            collision: None,
        }
    }

    /// They are in force.
    fn by_rules(change: weir_node_ambient::Change, steps: Vec<String>) -> Self {
        let collisions = &change.collisions;
        let worst = collisions.iter().find(|c| c.bypasses);
        Self {
            collision: worst.or(collisions.first()).cloned(),
            ..Self::new(change.node, By::Rules(change.engine), steps)
        }
    }
}

/// What one call found and did.
struct Synced {
    seen: Seen,
    /// In words.
    steps: Vec<String>,
    /// The same had been in force before: another writer changed it.
    healed: bool,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A number that tells one proxy from another.
fn number(uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    hasher.finish()
}

impl AtNode {
    pub(super) fn new(
        settings: Arc<AmbientSettings>,
        plane: Ambient,
        (pods, sandboxes): (Pods, Sandboxes),
        places: Places,
        journal: Journal,
    ) -> Self {
        Self(Arc::new(Shared {
            settings,
            plane,
            pods,
            sandboxes,
            places,
            journal,
            state: Mutex::default(),
        }))
    }

    pub(super) fn pods(&self) -> &Pods {
        &self.0.pods
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host(&self) -> Result<Netns, String> {
        let netns = self.0.places.netns.as_deref();
        netns.map_or_else(Netns::current, Netns::open).map_err(text)
    }

    /// Whether something that belongs to the node's routing or to nf_tables changed since it was compared. What cannot be
    /// read may have changed.
    pub(super) fn has_changed(&self) -> bool {
        let mut state = self.state();
        let State {
            seen: Some(seen),
            reader,
            ..
        } = &mut *state
        else {
            return true;
        };
        let now = self.fingerprint(reader, &seen.config);
        now.is_none() || now != seen.fingerprint
    }

    fn fingerprint(
        &self,
        reader: &mut Option<FingerprintReader>,
        config: &Config,
    ) -> Option<Print> {
        let rules = self.rules(reader)?;
        let programs = match self.by_programs() {
            true => Some(self.attached(config)?),
            false => None,
        };
        Some(Print { rules, programs })
    }

    fn attached(&self, config: &Config) -> Option<Attached> {
        let bpffs = Bpffs::at(&self.0.places.bpffs).ok()?;
        let active = config.active().into_iter();
        let active = active.map(|proxy| Netns::open(&proxy.netns));
        let active: weir_netlink::Result<Vec<Netns>> = active.collect();
        let host = self.host().ok()?;
        Programs::of(&host, &bpffs).attached(&active.ok()?).ok()
    }

    fn rules(&self, reader: &mut Option<FingerprintReader>) -> Option<Fingerprint> {
        if reader.is_none() {
            let host = self.host().ok()?;
            *reader = FingerprintReader::of_node(&host).ok();
        }
        let read = reader.as_mut()?.read();
        if read.is_err() {
            *reader = None;
        }
        read.ok()
    }

    /// Makes the node as it should be. A comparison that began after `since` answers for the same pods; `None`: any one.
    fn sync(&self, state: &mut State, since: Option<Instant>) -> Result<Synced, String> {
        let begun = Instant::now();
        let synced = self.look(state, since, begun);
        state.seen = synced.as_ref().ok().map(|synced| synced.seen.clone());
        synced
    }

    fn look(
        &self,
        state: &mut State,
        since: Option<Instant>,
        begun: Instant,
    ) -> Result<Synced, String> {
        if state.ended {
            return Err("the agent is being removed from this node".to_owned());
        }
        let Desired { config, _held } = self.desired(state, begun)?;
        let holds = |seen: &&Seen| seen.config == config && since.is_none_or(|at| seen.at >= at);
        if let Some(seen) = state.seen.as_ref().filter(holds) {
            return Ok(Synced {
                seen: seen.clone(),
                steps: Vec::new(),
                healed: false,
            });
        }
        let fingerprint = self.fingerprint(&mut state.reader, &config);
        let Written {
            node,
            by,
            steps,
            collision,
        } = self.compare_and_write(state, &config)?;
        let found = node.config.pods.iter().filter_map(|pod| {
            let names = node.devices.get(&pod.uid)?.clone();
            Some((pod.uid.clone(), (pod.clone(), names)))
        });
        state.devices = found.collect();
        let healed = state.applied.as_ref() == Some(&config);
        state.applied = Some(config.clone());
        Ok(Synced {
            healed: healed && !steps.is_empty(),
            steps,
            seen: Seen {
                config,
                node: Arc::new(node),
                by,
                at: begun,
                fingerprint,
                collision,
            },
        })
    }

    fn by_programs(&self) -> bool {
        self.0.settings.way == Way::NodePrograms
    }

    fn compare_and_write(&self, state: &State, config: &Config) -> Result<Written, String> {
        let known = state.devices.iter();
        let known = known.filter(|(_, (pod, _))| config.pods.contains(pod));
        let asked = Config {
            devices: known
                .map(|(uid, (_, names))| (uid.clone(), names.clone()))
                .collect(),
            leave_out: true,
            ..config.clone()
        };
        let host = self.host()?;
        if self.by_programs() {
            let bpffs = Bpffs::at(&self.0.places.bpffs).map_err(text)?;
            let change = programs::compare(&asked, &host, &bpffs).map_err(text)?;
            if change.is_empty() {
                return Ok(Written::new(change.node, By::Ebpf, Vec::new()));
            }
            // It is read back there.
            let written = programs::apply(&asked, &host, &bpffs).map_err(text)?;
            // Of proxies that are gone.
            let living = || Processes::of_node().namespaces();
            bpffs.sweep(living).map_err(text)?;
            let steps = written.steps.proxy.iter().chain(&written.steps.host);
            let mut steps: Vec<String> = steps.map(text).collect();
            if written.replaces {
                steps.push("remove rules and routing that capture instead".to_owned());
            }
            return Ok(Written::new(written.node, By::Ebpf, steps));
        }
        let engine = self.0.settings.native_nftables.then_some(Engine::Nft);
        let compare = || weir_node_ambient::compare(&asked, &host, engine).map_err(text);
        let mut change = compare()?;
        // Programs of an agent with another setting go after the rules capture. A route and a policy rule in the proxy's
        // namespace, which both need, go as well, and are written again.
        let has_programs = self.has_programs(&host);
        if change.is_empty() && has_programs {
            self.detach(&host, Some(&asked))?;
            change = compare()?;
        }
        if change.is_empty() {
            return Ok(Written::by_rules(change, Vec::new()));
        }
        if let Some(first) = change.refused(&host).map_err(text)? {
            let count = change.collisions.len();
            return Err(format!(
                "nothing was written: {first} ({count} such in total); WEIR_AMBIENT_NODE_CONFIG chooses other marks, tables and priorities"
            ));
        }
        let apply = || weir_node_ambient::apply(&asked, &host, engine, false).map_err(text);
        let written = apply()?;
        if has_programs && self.has_programs(&host) {
            self.detach(&host, Some(&asked))?;
            apply()?;
        }
        let left = compare()?;
        if let Some(first) = left.host.first().or(left.proxy.first()) {
            return Err(format!("after it was written, weir would still {first}"));
        }
        let steps = written.host.iter().chain(&written.proxy).map(text);
        Ok(Written::by_rules(left, steps.collect()))
    }

    fn has_programs(&self, host: &Netns) -> bool {
        // Without a bpf file system nothing is pinned.
        Bpffs::at(&self.0.places.bpffs).is_ok_and(|bpffs| Programs::of(host, &bpffs).is_present())
    }

    fn detach(&self, host: &Netns, config: Option<&Config>) -> Result<Vec<String>, String> {
        if !self.has_programs(host) {
            return Ok(Vec::new());
        }
        let bpffs = Bpffs::at(&self.0.places.bpffs).map_err(text)?;
        let removed = programs::remove(host, &bpffs, config).map_err(text)?;
        Ok(removed.iter().map(text).collect())
    }

    /// Makes the node as it should be, and reports that.
    ///
    /// # Errors
    /// What failed; it is reported, too.
    pub(super) fn heal(&self) -> Result<(), String> {
        let mut state = self.state();
        if state.ended {
            return Ok(());
        }
        let synced = self.sync(&mut state, Some(Instant::now()));
        let failure = match &synced {
            Ok(synced) => synced.seen.but(),
            Err(why) => Some(why.clone()),
        };
        let healed = synced.as_ref().ok().filter(|synced| synced.healed);
        let healed = healed.and_then(|synced| synced.steps.first().map(text));
        if state.reported.as_ref() != Some(&failure) || healed.is_some() {
            state.reported = Some(failure.clone());
            let purpose = Purpose::Capture;
            self.0.journal.record(Event::Host {
                purpose,
                failure,
                healed,
            });
        }
        self.share(&mut state);
        synced.map(drop)
    }

    /// Other programs read in `config.json` whether a proxy is ready, as from Istio 1.18 to 1.20. Where the directory is not
    /// mounted none does.
    fn share(&self, state: &mut State) {
        let file = self.0.settings.config_dir.join("config.json");
        let ready = state.applied.as_ref();
        let ready = ready.is_some_and(|config| config.active().is_some());
        if state.shared == Some(ready) || !self.0.settings.config_dir.is_dir() {
            return;
        }
        let mode = if self.by_programs() {
            "ebpf"
        } else {
            "iptables"
        };
        let text = format!(r#"{{"ztunnelReady":{ready},"redirectMode":"{mode}"}}"#);
        match weir_install::replace(&file, text.as_bytes(), 0o644) {
            Ok(()) => state.shared = Some(ready),
            Err(e) => {
                let why = format!("{}: {e}", file.display());
                self.0.journal.record(Event::NotShared { why });
            }
        }
    }

    /// What an agent with another setting wrote in the pod's own namespace goes when the node captures.
    fn remove_in_pod(&self, held: &Held, asked: &Asked) -> Result<(), String> {
        ebpf::hand_over(held, &self.0.places.bpffs)?;
        let in_use = held
            .sandbox
            .visit_for(&AMBIENT, |visit| visit.engine_in_use());
        if in_use.and_then(|engine| engine).map_err(text)?.is_none() {
            return Ok(());
        }
        let plan = self.0.plane.redirect(&asked.overrides)?;
        let plan = plan.compile(Engine::Xtables);
        let cleaned = held
            .sandbox
            .visit_for(&AMBIENT, |visit| visit.clean(Some(&plan)));
        cleaned.map_err(text)?.map(drop).map_err(text)
    }
}

impl Rules for AtNode {
    fn capture(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        since: Instant,
        spent: &mut Spent,
    ) -> Result<(Captured, Outcome), String> {
        let uid = asked.identity.uid().ok_or("it has no UID")?;
        let find = || self.0.sandboxes.find(&asked.identity, since);
        let held = spent.measure(Phase::Facts, find)?;
        let mut state = self.state();
        let addresses = asked.identity.addresses.clone();
        state.told.insert(uid.to_owned(), addresses);
        let synced = spent.measure(Phase::Apply, || self.sync(&mut state, Some(since)))?;
        drop(state);
        let node = &synced.seen.node;
        if let Some(why) = synced.seen.but().filter(|_| synced.seen.is_bypassed()) {
            return Err(why);
        }
        if !node.is_capturing() {
            return Err(
                "no proxy of this node is ready, so it is not captured (WEIR_AMBIENT_WITHOUT_PROXY=open)"
                    .to_owned(),
            );
        }
        if let Some(why) = node.left_out.get(uid) {
            return Err(why.clone());
        }
        if !node.config.pods.iter().any(|pod| pod.uid == uid) {
            return Err("it is not one of the pods to be captured any more".to_owned());
        }
        let is_known = before.is_some_and(|before| before.netns == held.id());
        if !is_known {
            self.remove_in_pod(&held, asked)?;
        }
        let captured = Captured {
            netns: held.id(),
            asked: asked.clone(),
            engine: Some(synced.seen.by),
            fingerprint: None,
            compared: synced.seen.at,
            held: Some(held),
        };
        let differences = synced.steps.len();
        let how = match synced.seen.by {
            By::Rules(_) => format!("first packets by {}", node.carrier),
            By::Ebpf => "by programs of eBPF".to_owned(),
        };
        let summary = format!("captured at the node, {how}: {differences} changes, verified");
        let first = synced.steps.first().filter(|_| synced.healed);
        Ok((
            captured,
            match (first, is_known) {
                (_, false) => Outcome::Made { summary },
                (None, true) => Outcome::Same,
                (Some(step), true) => Outcome::Healed {
                    first: format!("weir would {step}"),
                    differences,
                    cause: Cause::Missing,
                    summary,
                },
            },
        ))
    }

    fn release(&self, asked: &Asked, _: Option<&Captured>) -> Result<(), String> {
        Probes::remove(self, asked.identity.uid().unwrap_or_default(), &[])
    }
}

impl Proxy for AtNode {
    fn newest(&self) -> Option<u64> {
        self.active().map(|view| number(view.uid()))
    }

    fn peers(&self) -> Vec<weir_zds::Peer> {
        Vec::new()
    }

    fn add(&self, _: &Workload) -> Result<u64, String> {
        let state = self.state();
        let active = state.applied.as_ref().and_then(Config::active);
        let uid = active.map(|proxy| number(&proxy.uid));
        uid.ok_or_else(|| "no proxy of this node is ready: its TCP connections are refused".into())
    }

    fn remove(&self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

impl Probes for AtNode {
    /// Connections of the node itself are excepted by the rules that capture.
    fn put(&self, _: &str, _: &[IpAddr]) -> Result<(), String> {
        Ok(())
    }

    fn remove(&self, uid: &str, _: &[IpAddr]) -> Result<(), String> {
        let mut state = self.state();
        state.told.remove(uid);
        self.sync(&mut state, None).map(drop)
    }

    fn expect(&self, _: BTreeMap<IpAddr, Arc<str>>) {}

    fn end(&self) -> Result<Vec<String>, String> {
        let mut state = self.state();
        state.ended = true;
        let config = state.applied.take();
        let host = self.host()?;
        let detached = self.detach(&host, config.as_ref());
        let removed = weir_node_ambient::remove(&host, config.as_ref()).map_err(text);
        let mut all = removed?;
        all.extend(detached?);
        Ok(all)
    }
}
