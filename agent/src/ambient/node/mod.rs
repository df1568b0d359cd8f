//! Pods whose traffic is captured in the node's namespace and routed to the one proxy of the node
//! (`WEIR_AMBIENT_ENGINE=node`), or by programs of eBPF there (`node-ebpf`).
//!
//! What the node is to have follows from all pods that are known now ([`desired`]), not from the pod that is asked about: after
//! a restart no pod loses its capture while others are looked at. Before all pods are known nothing is written. One comparison
//! answers for all pods that were asked about before it began.

mod desired;
mod doubt;
mod hands;
mod print;
#[cfg(test)]
mod tests;
mod write;

use super::by_plugin::ByPlugin;
use super::keep::Reported;
use super::settings::{AmbientSettings, Way};
use crate::dataplane::ambient::Ambient;
use desired::Desired;
pub(super) use desired::former;
use print::Print;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_cni::redirection::FingerprintReader;
use weir_core::journal::Journal;
use weir_core::journal::ambient::{By, Event, Purpose};
use weir_core::pods::{PodView, Pods};
use weir_core::sandboxes::Sandboxes;
use weir_ebpf::node::Refusals;
use weir_netlink::Netns;
use weir_node_ambient::{Collision, Config, Node, Pod};
use write::Written;

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
    /// Links of pods that took no program.
    refusals: Refusals,
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
    /// What was known of the addresses of pods when they were asked for, by UID.
    asked: BTreeMap<String, Addresses>,
    /// What was written last.
    applied: Option<Config>,
    /// The addresses of pods that are captured, or will be when a proxy is ready; `None`: it is to be read from the node.
    captured: Option<BTreeSet<IpAddr>>,
    /// What was seen to be in force last; `None`: the last look failed.
    seen: Option<Seen>,
    /// Host ends of pods' links, and for which addresses and namespace they were found.
    devices: BTreeMap<String, (Pod, Vec<String>)>,
    reader: Option<FingerprintReader>,
    /// The last result that was reported.
    reported: Reported,
    /// What `config.json` says.
    shared: Option<bool>,
    /// What sysctls were before, as the rules of the node remember it. Another program may delete these with their memory.
    sysctls: BTreeMap<String, String>,
    /// What let probes through for an agent with another setting was looked for.
    is_alone: bool,
    /// Everything was removed for good.
    ended: bool,
}

/// The addresses of a pod when it was asked for.
struct Addresses {
    all: Vec<IpAddr>,
    by_plugin: Option<ByPlugin>,
}

impl Addresses {
    /// Those of now, when this is what the API server says.
    fn now(&self, view: &PodView) -> Vec<IpAddr> {
        let by_plugin = self.by_plugin.as_ref();
        let now = by_plugin.map_or_else(|| view.addresses(), |by| by.addresses(view));
        match now.is_empty() {
            true => self.all.clone(),
            false => now,
        }
    }

    /// Of those, the ones that the API server alone knows.
    fn hearsay(&self, view: &PodView) -> Vec<IpAddr> {
        let by_plugin = self.by_plugin.as_ref();
        by_plugin.map_or_else(|| view.addresses(), |by| by.hearsay(view))
    }
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
        found.map(|found| format!("the redirection is in force, but {found}"))
    }

    /// Connections of pods reach their peer without the proxy.
    fn is_bypassed(&self) -> bool {
        self.collision.as_ref().is_some_and(|found| found.bypasses)
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
            refusals: Refusals::default(),
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
        let written = self.compare_and_write(state, &config);
        // What failed may have been done in part.
        state.captured = written.as_ref().ok().map(Written::captured);
        let Written {
            node,
            by,
            steps,
            collision,
            sysctls,
        } = written?;
        state.sysctls = sysctls;
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
        let journal = &self.0.journal;
        state
            .reported
            .tell(journal, Purpose::Capture, failure, healed);
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
}
