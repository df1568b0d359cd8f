//! The host's part of ambient mode: rules for probes, and policy rules of pods behind a branch ENI.
//!
//! Programs of eBPF in pods see who sent a probe: for them the host has no rules.

mod enis;

use super::former::Attempts;
use super::hands::Probes;
use super::keep::Reported;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use weir_ambient::Config;
use weir_ambient::eni::{self, BranchEnis};
use weir_ambient::host::{self, Host};
use weir_cni::compile::Engine;
use weir_core::journal::Journal;
use weir_core::journal::ambient::Purpose;
use weir_core::sandboxes::{Held, is_of_pod};
use weir_drift::heals::Heals;
use weir_netlink::Netns;
use weir_netlink::route::Routing;

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
    /// Of the removal of what was written in another form; `None`: nothing is left. Tables of others, which may be large, are read
    /// for it.
    cleaning: Mutex<Option<Attempts>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    addresses: BTreeMap<IpAddr, Arc<str>>,
    engine: Option<Engine>,
    /// The user of the kubelet, as the last round found it: a look at every process of the node. All, as in legacy tables, where
    /// nf_tables were chosen automatically.
    users: Option<RangeInclusive<u32>>,
    /// Whether the node is set up for branch ENIs (`tcp_early_demux`); `None`: it was not asked yet.
    has_enis: Option<bool>,
    enis: BranchEnis,
    /// What was verified last.
    in_force: Option<host::InForce>,
    /// Programs in the pods let probes through.
    without_rules: bool,
    /// Every pod was looked at: addresses that are not known here are of no pod.
    complete: bool,
    /// But for these pods, with the addresses that are known of them: what an earlier agent left for them stays.
    spared: BTreeMap<Arc<str>, Vec<IpAddr>>,
    /// What is to be there changed, and is not there yet: what is written then is no repair.
    is_new: bool,
    told: Reported,
    /// What captured at the node for an agent with another setting was looked for.
    is_alone: bool,
    /// The foreign rule that takes packets of probes before those of the host.
    ahead: Option<String>,
    /// Foreign rules before those of the host were looked for; these are put behind at once then, and later where one takes packets.
    is_first: bool,
    /// When that was done: another program may do the same with its own.
    moves: Heals,
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
            cleaning: Mutex::new(Some(Attempts::begin())),
            state: Mutex::default(),
        }))
    }

    /// Pods are redirected by programs, which need no rules at the host; those of an agent with another setting are removed once
    /// all pods are captured.
    pub(super) fn without_rules(self) -> Self {
        self.state().without_rules = true;
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half-way.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the host as it should be; what was written in another form goes last.
    ///
    /// # Errors
    /// What failed; it is told, too.
    pub(super) fn heal(&self) -> Result<(), String> {
        self.heal_of(None)?;
        self.clean();
        Ok(())
    }

    /// Removes what was written in another form than the present one. No pod waits for it: another program may hold the lock of
    /// legacy tables. What cannot be removed is told, and the next round tries again.
    fn clean(&self) {
        let engine = {
            let state = self.state();
            state
                .engine
                .filter(|_| !state.ended && !state.without_rules)
        };
        let (Some(engine), Ok(mut cleaning)) = (engine, self.0.cleaning.try_lock()) else {
            return;
        };
        let Some(attempts) = cleaning.as_mut() else {
            return;
        };
        let removed = self.at_host(|| {
            // One that cannot be removed keeps not the other.
            let (other, of_tools) = (host::remove_other(engine), host::remove_of_iptables_nft());
            let mut removed = other?;
            removed.extend(of_tools?);
            Ok(removed)
        });
        let removed = removed.map_err(|e| format!("rules for probes in another form: {e}"));
        if attempts.ended(removed, &self.0.journal).is_none() {
            *cleaning = None;
        }
    }

    /// The same for the rules and addresses alone, after a commit: neither the kubelet nor branch ENIs are looked for.
    ///
    /// # Errors
    /// As [`HostRules::heal`].
    pub(super) fn heal_rules(&self) -> Result<(), String> {
        self.heal_of(Some(&[]))
    }

    /// The namespace of the host, and what wrote the rules there.
    pub(super) fn in_use(&self) -> (Option<PathBuf>, Option<Engine>) {
        (self.0.netns.clone(), self.state().engine)
    }

    fn heal_of(&self, changed: Option<&[IpAddr]>) -> Result<(), String> {
        let mut state = self.state();
        // Where a foreign rule is ahead, ours are in force all the same.
        let was_in_force = (state.told.is_good() || state.ahead.is_some()) && !state.is_new;
        let applied = self.apply(&mut state, changed);
        let failure = applied.as_ref().err().or(state.ahead.as_ref()).cloned();
        let healed = applied.as_ref().ok().and_then(|changes| changes.first());
        let healed = healed.filter(|_| was_in_force).cloned();
        let purpose = match state.without_rules {
            true => Purpose::ProbesByPrograms,
            false => Purpose::Probes,
        };
        let journal = &self.0.journal;
        state.told.tell(journal, purpose, failure, healed);
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
        state.is_new = true;
        self.apply(&mut state, Some(addresses)).map(|_| ())
    }

    /// Writes what differs. Pods behind a branch ENI are looked for among `changed`; `None`: among all.
    fn apply(&self, state: &mut State, changed: Option<&[IpAddr]>) -> Result<Vec<String>, String> {
        let changes = self.write(state, changed)?;
        state.is_new = false;
        Ok(changes)
    }

    fn write(&self, state: &mut State, changed: Option<&[IpAddr]>) -> Result<Vec<String>, String> {
        let shared = &self.0;
        if state.ended {
            return Ok(Vec::new());
        }
        let enis = |state: &mut State| match shared.branch_enis {
            true => state.branch_enis((&shared.proc, shared.config.enable_ipv6), changed),
            false => Ok(Vec::new()),
        };
        if state.without_rules {
            // It is entered in any case: where it cannot be, programs do not know it either, and probes fail.
            return self.at_host(|| enis(state));
        }
        let work = || {
            let engine = match state.engine {
                Some(engine) => engine,
                None => host::choose(shared.native_nftables)?,
            };
            if !shared.native_nftables {
                state.users = Some(host::EVERY_USER);
            } else if engine == Engine::Nft && (changed.is_none() || state.users.is_none()) {
                // Where no process of it is seen it is taken for root's, as it nearly always is.
                let kubelet = host::kubelet(&shared.proc, is_of_pod).unwrap_or(0);
                state.users = Some(kubelet..=kubelet);
            }
            let mut addresses = state.addresses.clone();
            if !state.complete || !state.spared.is_empty() {
                // Those of an earlier agent stay until it is known whose they are, and that they are not needed.
                for (address, uid) in host::addresses(engine)? {
                    if !state.complete || state.spares(address, &uid) {
                        addresses.entry(address).or_insert(uid);
                    }
                }
            }
            let host = Host {
                config: shared.config.clone(),
                addresses,
                users: state.users.clone(),
            };
            if changed.is_none() {
                // A round compares everything, whatever is known.
                state.in_force = None;
            }
            let mut changes = host::update(&host, engine, &mut state.in_force)?;
            changes.extend(enis(state)?);
            if changed.is_none() {
                changes.extend(state.look_ahead(&host, engine)?);
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

    /// What captured at the node, and where rules let no probes through any more those that did. Returns what was removed.
    fn remove_former(&self, without_rules: bool) -> Result<Vec<String>, String> {
        let bpffs = self.0.bpffs.clone();
        let (config, _held) = (self.0.former)();
        self.at_host(move || {
            let host = Netns::current()?;
            let mut removed = weir_node_ambient::remove(&host, Some(&config))?;
            let programs = weir_node_ambient::ebpf::remove_pinned(&host, &bpffs, Some(&config))?;
            removed.extend(programs.into_iter().flatten());
            // Last: what holds it up leaves no pod captured twice.
            if without_rules {
                removed.extend(host::remove()?);
            }
            Ok(removed)
        })
    }

    /// On a thread of its own: the host's tables may be locked by another program.
    fn later(&self, work: impl FnOnce(&Self) + Send + 'static) {
        let rules = self.clone();
        let work = move || work(&rules);
        let _ = std::thread::Builder::new().name("host".into()).spawn(work);
    }
}

impl State {
    /// Foreign rules before those of the host, in the namespace of this thread. Returns what was changed.
    fn look_ahead(&mut self, host: &Host, engine: Engine) -> weir_netlink::Result<Vec<String>> {
        // What cannot be read says nothing new.
        let Ok(mut found) = host::ahead(host, engine) else {
            return Ok(Vec::new());
        };
        let (mut changes, now) = (Vec::new(), Instant::now());
        let is_due = !self.is_first || !found.takes.is_empty();
        if found.is_behind && is_due && self.moves.pause(now).is_none() {
            self.moves.add(now);
            changes = host::to_front(host)?;
            if let Ok(now) = host::ahead(host, engine) {
                found = now;
            }
        }
        self.is_first = true;
        self.ahead = found.takes.first().map(|rule| {
            format!(
                "the rules are in force, but a foreign rule takes packets before them: {rule}; remove it, or have it come after them"
            )
        });
        Ok(changes)
    }
}

impl Probes for HostRules {
    fn put(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String> {
        let uid: Arc<str> = uid.into();
        self.change(addresses, |state| {
            let pairs = addresses.iter().map(|a| (*a, Arc::clone(&uid)));
            state.addresses.extend(pairs);
            state.spared.remove(&uid);
        })
    }

    fn remove(&self, uid: &str, addresses: &[IpAddr]) -> Result<(), String> {
        self.change(addresses, |state| {
            let is_its =
                |address: &IpAddr, of: &Arc<str>| **of == *uid && addresses.contains(address);
            state.addresses.retain(|address, of| !is_its(address, of));
            state.spared.remove(uid);
        })
    }

    fn expect(&self, all: BTreeMap<IpAddr, Arc<str>>, spared: BTreeMap<Arc<str>, Vec<IpAddr>>) {
        let mut state = self.state();
        let is_same = state.complete && state.addresses == all && state.spared == spared;
        state.is_new |= !is_same;
        (state.addresses, state.spared, state.complete) = (all, spared, true);
        drop(state);
        self.later(|rules| drop(rules.heal()));
    }

    fn all_captured(&self) {
        let without_rules = {
            let mut state = self.state();
            if std::mem::replace(&mut state.is_alone, true) {
                return;
            }
            state.without_rules
        };
        self.later(move |rules| {
            let mut attempts = Attempts::begin();
            while !rules.state().ended {
                let removed = rules.remove_former(without_rules);
                match attempts.ended(removed, &rules.0.journal) {
                    Some(pause) => std::thread::sleep(pause),
                    None => return,
                }
            }
        });
    }

    fn end(&self) -> Result<Vec<String>, String> {
        let mut state = self.state();
        state.ended = true;
        let mut enis = std::mem::take(&mut state.enis);
        let has_enis = self.0.branch_enis;
        self.at_host(move || {
            // What cannot be removed of one keeps nothing of the other.
            let mut of_enis = || {
                let routing = Routing::open()?;
                enis.remove_all(&routing)?;
                enis.remove_others(&routing)
            };
            let of_enis = if has_enis { of_enis() } else { Ok(Vec::new()) };
            let mut removed = host::remove()?;
            let rules = of_enis?;
            removed.extend(
                rules
                    .iter()
                    .map(|rule| format!("delete policy rule {rule}")),
            );
            Ok(removed)
        })
    }
}

#[cfg(test)]
pub(super) mod tests;
