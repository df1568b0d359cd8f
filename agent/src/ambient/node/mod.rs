//! Captures the traffic of pods in the node's network namespace and routes it to the one proxy of the node
//! (`WEIR_AMBIENT_ENGINE=node`), or does so by eBPF programs there (`node-ebpf`).
//!
//! The desired state of the node is computed from all known pods ([`desired`]), not from the pod of the request: after
//! a restart no pod loses its capture while others are processed. Nothing is written before all pods are known. One comparison
//! serves all pods requested before it started.

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

/// The redirection objects of the node. Clones share the state.
#[derive(Clone)]
pub(super) struct AtNode(Arc<Shared>);

struct Shared {
    settings: Arc<AmbientSettings>,
    plane: Ambient,
    pods: Pods,
    sandboxes: Sandboxes,
    places: Places,
    journal: Journal,
    /// Links of pods that refused a program.
    refusals: Refusals,
    state: Mutex<State>,
}

/// Paths outside of pods.
pub(super) struct Places {
    /// The network namespace of the node, if it is not that of this process.
    pub(super) netns: Option<PathBuf>,
    /// The bpf file system where programs are pinned.
    pub(super) bpffs: PathBuf,
}

#[derive(Default)]
struct State {
    /// The addresses of pods as known when their capture was requested, by UID.
    asked: BTreeMap<String, Addresses>,
    /// The configuration written last.
    applied: Option<Config>,
    /// The addresses of pods that are captured, or will be when a proxy is ready; `None`: they have to be read from the node.
    captured: Option<BTreeSet<IpAddr>>,
    /// The state found in force by the last comparison; `None`: it failed.
    seen: Option<Seen>,
    /// Host ends of pods' links, with the pod configuration for which they were found.
    devices: BTreeMap<String, (Pod, Vec<String>)>,
    reader: Option<FingerprintReader>,
    /// The last result that was reported.
    reported: Reported,
    /// The readiness written to `config.json`.
    shared: Option<bool>,
    /// The values of sysctls before they were changed. The rules of the node store them, too, but another program may delete those.
    sysctls: BTreeMap<String, String>,
    /// The removal of rules for probes of an agent with another setting was started.
    is_alone: bool,
    /// Everything was removed permanently.
    ended: bool,
}

/// The addresses of a pod when its capture was requested.
struct Addresses {
    all: Vec<IpAddr>,
    by_plugin: Option<ByPlugin>,
}

impl Addresses {
    /// Returns the present addresses given this view of the API server.
    fn now(&self, view: &PodView) -> Vec<IpAddr> {
        let by_plugin = self.by_plugin.as_ref();
        let now = by_plugin.map_or_else(|| view.addresses(), |by| by.addresses(view));
        match now.is_empty() {
            true => self.all.clone(),
            false => now,
        }
    }

    /// Returns those of [`Addresses::now`] that only the API server reports.
    fn hearsay(&self, view: &PodView) -> Vec<IpAddr> {
        let by_plugin = self.by_plugin.as_ref();
        by_plugin.map_or_else(|| view.addresses(), |by| by.hearsay(view))
    }
}

/// A state of the node that was found in sync.
#[derive(Clone)]
struct Seen {
    config: Config,
    node: Arc<Node>,
    by: By,
    at: Instant,
    /// Taken before the comparison.
    fingerprint: Option<Print>,
    /// A foreign object that prevents a part of the redirection.
    collision: Option<Collision>,
}

impl Seen {
    /// Returns the problem of a state that is otherwise in sync.
    fn but(&self) -> Option<String> {
        let found = self.collision.as_ref();
        found.map(|found| format!("the redirection is in force, but {found}"))
    }

    /// Returns true if connections of pods bypass the proxy.
    fn is_bypassed(&self) -> bool {
        self.collision.as_ref().is_some_and(|found| found.bypasses)
    }
}

/// The result of one call.
struct Synced {
    seen: Seen,
    /// Descriptions of the changes.
    steps: Vec<String>,
    /// The same configuration was in force before: another writer changed it.
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
        // No code panics while holding the lock.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host(&self) -> Result<Netns, String> {
        let netns = self.0.places.netns.as_deref();
        netns.map_or_else(Netns::current, Netns::open).map_err(text)
    }

    /// Brings the node in sync. A comparison of the same configuration that started after `since` is reused; `None`: any one.
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
        // A failed write may be partially applied.
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

    /// Brings the node in sync and records the result.
    ///
    /// # Errors
    /// What failed; also recorded in the journal.
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

    /// Writes `config.json`, from which other programs learn whether a proxy is ready, as in Istio 1.18 to 1.20. Nothing is written if
    /// the directory is not mounted.
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
            Ok(_) => state.shared = Some(ready),
            Err(e) => {
                let why = format!("{}: {e}", file.display());
                self.0.journal.record(Event::NotShared { why });
            }
        }
    }
}
