//! The rules of pods, in their namespaces; and the rules of the host, for probes.

use super::ebpf;
use super::hands::{Asked, Captured, Outcome, Probes, Rules};
use crate::dataplane::ambient::{Ambient, Plan};
use crate::dataplane::sidecar::difference;
use crate::dataplane::{Converged, Spent, converge};
use crate::drift::Drift;
use crate::reconcile::Uid;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_ambient::eni::{self, BranchEnis};
use weir_ambient::host::{self, Host};
use weir_ambient::{AMBIENT, Config};
use weir_cni::compile::Engine;
use weir_cni::plugin::Phase;
use weir_cni::redirection::Desired;
use weir_core::journal::Journal;
use weir_core::journal::ambient::{By, Event, Purpose};
use weir_core::journal::pod::Cause;
use weir_core::sandboxes::{Held, Sandboxes};
use weir_ebpf::Bpffs;
use weir_live::{DOCUMENTATION_V4, DOCUMENTATION_V6, Proof};
use weir_netlink::Netns;
use weir_netlink::route::Routing;

/// Rules that did not change since are compared again after this long all the same.
const WHOLE: Duration = Duration::from_secs(600);

/// The rules of pods.
pub(super) struct Kernel {
    pub(super) plane: Ambient,
    pub(super) sandboxes: Sandboxes,
    pub(super) drift: Drift,
    /// `WEIR_LIVE_PROOF`
    pub(super) live_proof: bool,
    /// Where an agent with another setting pinned programs.
    pub(super) bpffs: PathBuf,
}

impl Kernel {
    /// Whether the result of the last look still holds.
    fn still_holds(&self, before: &Captured, asked: &Asked) -> bool {
        before.fingerprint.is_some()
            && before.asked == *asked
            && before.compared.elapsed() < WHOLE
            && self.sandboxes.kept(&asked.identity).is_some_and(|held| {
                held.id() == before.netns && held.fingerprint() == before.fingerprint
            })
    }
}

/// The namespace to release a pod in: its own, or where that is not found any more the one in which it was captured.
pub(super) fn held_last(
    sandboxes: &Sandboxes,
    asked: &Asked,
    before: Option<&Captured>,
) -> Result<Arc<Held>, String> {
    sandboxes
        .find(&asked.identity, Instant::now())
        .or_else(|why| before.and_then(|before| before.held.clone()).ok_or(why))
}

impl Rules for Kernel {
    fn capture(
        &self,
        asked: &Asked,
        before: Option<&Captured>,
        since: Instant,
        spent: &mut Spent,
    ) -> Result<(Captured, Outcome), String> {
        if let Some(before) = before.filter(|before| self.still_holds(before, asked)) {
            return Ok((before.clone(), Outcome::Same));
        }
        let find = || self.sandboxes.find(&asked.identity, since);
        let held = spent.measure(Phase::Facts, find)?;
        let redirect = self.plane.redirect(&asked.overrides)?;
        let is_known = before.is_some_and(|before| before.netns == held.id());
        let uid = asked.identity.uid().map(Uid::from);
        if let Some(uid) = uid.as_ref().filter(|_| !is_known) {
            // From before they are read. Where they cannot be watched, rounds look.
            let _ = self.drift.watch(uid, &held);
        }
        let tables = uid.as_ref().and_then(|uid| self.drift.tables(uid, &held));
        let is_still_its = || self.sandboxes.check(&held, &asked.identity);
        let Converged {
            observed,
            plan,
            applied,
        } = converge(&self.plane, &held.sandbox, &redirect, &is_still_its, spent)?;
        let captured = |engine, fingerprint| Captured {
            netns: held.id(),
            asked: asked.clone(),
            engine: Option::map(engine, By::Rules),
            fingerprint,
            compared: Instant::now(),
            held: Some(Arc::clone(&held)),
        };
        if !is_known && !matches!(plan, Plan::Leave(_)) && !matches!(applied, Some(Err(_))) {
            ebpf::hand_over(&held, &self.bpffs)?;
        }
        match (plan, applied) {
            (Plan::Leave(why), _) => Err(why),
            (_, None) => {
                if let (Some(Engine::Xtables), Some(uid)) = (observed.engine, &uid) {
                    let _ = self.drift.tables_in_sync(uid, &held, tables);
                }
                let by_nft = observed.engine == Some(Engine::Nft);
                let fingerprint = observed.fingerprint.filter(|_| by_nft);
                Ok((captured(observed.engine, fingerprint), Outcome::Same))
            }
            (_, Some(applied)) => {
                let applied = applied?;
                if let (Engine::Xtables, Some(uid), false) = (applied.engine, &uid, is_known) {
                    let _ = self.drift.tables_in_sync(uid, &held, None);
                }
                let changes = observed.changes.as_ref().unwrap_or(&applied.changes);
                let outcome = match is_known {
                    true => Outcome::Healed {
                        first: changes.first().map(difference).unwrap_or_default(),
                        differences: changes.len(),
                        cause: Cause::of(changes),
                        summary: applied.summary,
                    },
                    false => Outcome::Made {
                        summary: applied.summary,
                    },
                };
                Ok((captured(Some(applied.engine), applied.fingerprint), outcome))
            }
        }
    }

    fn prove(&self, captured: &Captured) -> Option<Proof> {
        let held = captured.held.as_ref().filter(|_| self.live_proof)?;
        let redirect = self.plane.redirect(&captured.asked.overrides).ok()?;
        let name_servers = match redirect.captures_dns() {
            true => vec![DOCUMENTATION_V4.into(), DOCUMENTATION_V6.into()],
            false => Vec::new(),
        };
        let plan = weir_live::Plan {
            name_servers,
            ipv6: redirect.captures_ipv6(),
            ..weir_live::Plan::default()
        };
        weir_live::prove(held.sandbox.netns(), &plan).ok()
    }

    fn release(&self, asked: &Asked, before: Option<&Captured>) -> Result<(), String> {
        if let Some(uid) = asked.identity.uid() {
            self.drift.forget(&uid.into());
        }
        let held = held_last(&self.sandboxes, asked, before)?;
        let redirect = self.plane.redirect(&asked.overrides)?;
        let plan = redirect.compile(Engine::Xtables);
        let cleaned = held
            .sandbox
            .visit_for(&AMBIENT, |visit| visit.clean(Some(&plan)))
            .map_err(|e| e.to_string())?;
        cleaned.map(|_| ()).map_err(|e| e.to_string())
    }
}

/// The rules of the host; clones are the same.
#[derive(Clone)]
pub(super) struct HostRules(Arc<Shared>);

struct Shared {
    config: Config,
    native_nftables: bool,
    /// Pods behind a branch ENI of AWS are looked for.
    branch_enis: bool,
    /// The namespace of the host, if it is not this process's own.
    netns: Option<PathBuf>,
    proc: PathBuf,
    /// Where an agent with another setting pinned programs.
    bpffs: PathBuf,
    /// Where that agent wrote, and what keeps it open.
    former: Box<dyn Fn() -> (weir_node_ambient::Config, Vec<Arc<Held>>) + Send + Sync>,
    journal: Journal,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    addresses: BTreeMap<IpAddr, Arc<str>>,
    engine: Option<Engine>,
    /// The user of the kubelet, as the last round found it: a look at every process of the node.
    kubelet: Option<u32>,
    /// Whether the node is set up for branch ENIs (`tcp_early_demux`); `None`: it was not asked yet.
    has_enis: Option<bool>,
    enis: BranchEnis,
    /// What was verified last.
    in_force: Option<host::InForce>,
    /// Every pod was looked at: addresses that are not known here are of no pod.
    complete: bool,
    /// The last result that was told.
    told: Option<Option<String>>,
    /// What captured at the node for an agent with another setting was looked for.
    is_alone: bool,
    /// Everything was removed for good.
    ended: bool,
}

impl HostRules {
    pub(super) fn new(
        config: Config,
        (native_nftables, branch_enis): (bool, bool),
        netns: Option<PathBuf>,
        (proc, bpffs): (PathBuf, PathBuf),
        former: impl Fn() -> (weir_node_ambient::Config, Vec<Arc<Held>>) + Send + Sync + 'static,
        journal: Journal,
    ) -> Self {
        Self(Arc::new(Shared {
            config,
            native_nftables,
            branch_enis,
            netns,
            proc,
            bpffs,
            former: Box::new(former),
            journal,
            state: Mutex::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the host as it should be.
    ///
    /// # Errors
    /// What failed; it is told, too.
    pub(super) fn heal(&self) -> Result<(), String> {
        let mut state = self.state();
        let was_in_force = state.told == Some(None);
        let applied = self.apply(&mut state, None);
        let failure = applied.as_ref().err().cloned();
        let healed = applied.as_ref().ok().and_then(|changes| changes.first());
        let healed = healed.filter(|_| was_in_force).cloned();
        if state.told.as_ref() != Some(&failure) || healed.is_some() {
            state.told = Some(failure.clone());
            self.0.journal.record(Event::Host {
                purpose: Purpose::Probes,
                failure,
                healed,
            });
        }
        applied.map(|_| ())
    }

    /// Whether there may be policy rules for pods behind a branch ENI.
    pub(super) fn has_enis(&self) -> bool {
        let proc = &self.0.proc;
        self.0.branch_enis
            && self
                .at_host(|| Ok(eni::early_demux_is_off(proc)))
                .unwrap_or(true)
    }

    /// What is to be there changed, for these addresses.
    fn change(&self, addresses: &[IpAddr], change: impl FnOnce(&mut State)) -> Result<(), String> {
        let mut state = self.state();
        change(&mut state);
        self.apply(&mut state, Some(addresses)).map(|_| ())
    }

    /// Writes what differs. Pods behind a branch ENI are looked for among `changed`; `None`: among all.
    fn apply(&self, state: &mut State, changed: Option<&[IpAddr]>) -> Result<Vec<String>, String> {
        let shared = &self.0;
        if state.ended {
            return Ok(Vec::new());
        }
        let work = || {
            let engine = match state.engine {
                Some(engine) => engine,
                None => host::choose(shared.native_nftables)?,
            };
            if engine == Engine::Nft && (changed.is_none() || state.kubelet.is_none()) {
                // Where no process of it is seen it is taken for root's, as it nearly always is.
                state.kubelet = host::kubelet(&shared.proc).or(Some(0));
            }
            let mut addresses = state.addresses.clone();
            if !state.complete {
                // Those of an earlier agent stay until it is known whose they are.
                for (address, uid) in host::addresses(engine)? {
                    addresses.entry(address).or_insert(uid);
                }
            }
            let host = Host {
                config: shared.config.clone(),
                addresses,
                kubelet: state.kubelet,
            };
            if changed.is_none() {
                // A round compares everything, whatever is known.
                state.in_force = None;
            }
            let mut changes = host::update(&host, engine, &mut state.in_force)?;
            if shared.branch_enis {
                changes.extend(state.branch_enis(&shared.proc, changed)?);
            }
            Ok((engine, changes))
        };
        let (engine, changes) = self.at_host(work)?;
        state.engine = Some(engine);
        Ok(changes)
    }

    fn at_host<T: Send>(
        &self,
        work: impl FnOnce() -> weir_netlink::Result<T> + Send,
    ) -> Result<T, String> {
        let done = match &self.0.netns {
            None => work(),
            Some(path) => Netns::open(path)
                .and_then(|netns| netns.run(work))
                .and_then(|r| r),
        };
        done.map_err(|e| e.to_string())
    }

    /// On a thread of its own: the host's tables may be locked by another program.
    fn later(&self, work: impl FnOnce(&Self) + Send + 'static) {
        let rules = self.clone();
        let work = move || work(&rules);
        let _ = std::thread::Builder::new().name("host".into()).spawn(work);
    }
}

impl State {
    /// The policy rules of pods behind a branch ENI, in the namespace of this thread. Returns what was added.
    fn branch_enis(
        &mut self,
        proc: &Path,
        changed: Option<&[IpAddr]>,
    ) -> weir_netlink::Result<Vec<String>> {
        // Of this thread's namespace, whichever /proc it is read from.
        let asked = || eni::early_demux_is_off(proc);
        if !*self.has_enis.get_or_insert_with(asked) {
            return Ok(Vec::new());
        }
        let routing = Routing::open()?;
        let all = || self.addresses.keys().copied().chain(self.enis.addresses());
        let due: BTreeSet<IpAddr> = match changed {
            Some(changed) => changed.iter().copied().collect(),
            None => all().collect(),
        };
        let mut changes = Vec::new();
        for address in due {
            match self.addresses.contains_key(&address) {
                true => {
                    let added = self.enis.put(&routing, address)?.unwrap_or_default();
                    changes.extend(added.iter().map(|rule| format!("add policy rule {rule}")));
                }
                false => self.enis.remove(&routing, address)?,
            }
        }
        Ok(changes)
    }
}

impl Probes for HostRules {
    fn put(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String> {
        let uid: Arc<str> = uid.into();
        self.change(addresses, |state| {
            let pairs = addresses.iter().map(|a| (*a, Arc::clone(&uid)));
            state.addresses.extend(pairs);
        })
    }

    fn remove(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String> {
        self.change(addresses, |state| {
            let is_its =
                |address: &IpAddr, of: &Arc<str>| **of == *uid && addresses.contains(address);
            state.addresses.retain(|address, of| !is_its(address, of));
        })
    }

    fn expect(&self, all: BTreeMap<IpAddr, Arc<str>>) {
        let mut state = self.state();
        (state.addresses, state.complete) = (all, true);
        drop(state);
        self.later(|rules| drop(rules.heal()));
    }

    fn all_captured(&self) {
        if std::mem::replace(&mut self.state().is_alone, true) {
            return;
        }
        self.later(|rules| {
            let bpffs = rules.0.bpffs.clone();
            let (config, _held) = (rules.0.former)();
            let host = move || {
                let host = Netns::current()?;
                let mut removed = weir_node_ambient::remove(&host, Some(&config))?;
                // Without a bpf file system nothing is pinned.
                if let Ok(bpffs) = Bpffs::at(&bpffs)
                    && weir_ebpf::node::Node::of(&host, &bpffs).is_present()
                {
                    let changes = weir_node_ambient::ebpf::remove(&host, &bpffs, Some(&config))?;
                    removed.extend(changes.iter().map(ToString::to_string));
                }
                Ok(removed)
            };
            match rules.at_host(host) {
                Ok(removed) => {
                    for what in removed {
                        rules.0.journal.record(Event::NodeCleaned { what });
                    }
                }
                Err(_) => rules.state().is_alone = false,
            }
        });
    }

    fn end(&self) -> Result<Vec<String>, String> {
        let mut state = self.state();
        state.ended = true;
        let mut enis = std::mem::take(&mut state.enis);
        self.at_host(move || {
            let routing = Routing::open()?;
            let addresses: Vec<IpAddr> = enis.addresses().collect();
            for address in addresses {
                enis.remove(&routing, address)?;
            }
            host::remove()
        })
    }
}
