//! The host's part of ambient mode: rules for probes, and policy rules for pods behind a branch ENI.
//!
//! eBPF programs in pods identify the sender of a probe themselves and need no rules at the host.

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

/// Pause after a search for foreign rules, as a multiple of its duration: kube-proxy may have thousands of chains and commit
/// every second.
const SEARCHES: u32 = 50;

/// The rules of the host. Clones share the state.
#[derive(Clone)]
pub(super) struct HostRules(Arc<Shared>);

struct Shared {
    config: Config,
    native_nftables: bool,
    /// Pods behind an AWS branch ENI get policy rules.
    branch_enis: bool,
    /// The network namespace of the host, if it is not that of this process.
    netns: Option<PathBuf>,
    proc: PathBuf,
    /// The bpf file system where an agent with another setting pinned programs.
    bpffs: PathBuf,
    /// Returns the places where such an agent may have written, and the handles that keep their network namespaces open.
    former: Box<dyn Fn() -> Former + Send + Sync>,
    journal: Journal,
    /// Attempts to remove rules written in another form; `None`: nothing is left. Each attempt reads tables of other programs, which
    /// may be large.
    cleaning: Mutex<Option<Attempts>>,
    state: Mutex<State>,
}

type Former = Result<(weir_node_ambient::Config, Vec<Arc<Held>>), String>;

#[derive(Default)]
struct State {
    addresses: BTreeMap<IpAddr, Arc<str>>,
    engine: Option<Engine>,
    /// The user IDs of the kubelet, as found by the last round, which examines every process of the node. All users, as in legacy
    /// tables, if nf_tables was chosen automatically.
    users: Option<RangeInclusive<u32>>,
    /// True if the node is set up for branch ENIs (`tcp_early_demux`); `None`: not read yet.
    has_enis: Option<bool>,
    enis: BranchEnis,
    /// The state as last verified.
    in_force: Option<host::InForce>,
    /// Programs in the pods let probes through, without rules at the host.
    without_rules: bool,
    /// Every pod was examined: addresses that are not known here belong to no pod.
    complete: bool,
    /// Exceptions to `complete`: pods with their known addresses, whose entries left by an earlier agent stay.
    spared: BTreeMap<Arc<str>, Vec<IpAddr>>,
    /// The desired state changed and is not written yet: the next write is not a repair.
    is_new: bool,
    told: Reported,
    /// The removal of what captured at the node for an agent with another setting was started.
    is_alone: bool,
    /// The foreign rule that takes packets of probes before the rules of the host.
    ahead: Option<String>,
    /// The first check for foreign rules before those of the host was made. It moves the host's rules to the front in any case, later
    /// checks only if a foreign rule takes packets.
    is_first: bool,
    /// No search for such rules because of a commit before this time.
    search_after: Option<Instant>,
    /// Recent moves to the front: another program may do the same with its own rules.
    moves: Heals,
    /// Everything was removed permanently.
    ended: bool,
}

impl HostRules {
    pub(super) fn new(
        config: Config,
        (native_nftables, branch_enis): (bool, bool),
        netns: Option<PathBuf>,
        (proc, bpffs): (PathBuf, PathBuf),
        former: impl Fn() -> Former + Send + Sync + 'static,
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

    /// For pods redirected by programs, which need no rules at the host; rules of an agent with another setting are removed once
    /// all pods are captured.
    pub(super) fn without_rules(self) -> Self {
        self.state().without_rules = true;
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the host in sync; rules written in another form are removed last. Returns true if it was in sync.
    ///
    /// # Errors
    /// What failed; also recorded in the journal.
    pub(super) fn heal(&self) -> Result<bool, String> {
        let is_same = self.heal_of(None)?;
        self.clean();
        Ok(is_same)
    }

    /// Removes rules written in another form than the present one. No pod waits for this: another program may hold the lock of
    /// legacy tables. A failure is recorded, and the next round retries.
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
            // A failure of one removal does not stop the other.
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

    /// Like [`HostRules::heal`] for rules and addresses only, after a commit: does not look for the kubelet or branch ENIs, and
    /// for foreign rules unless the last search was a moment ago.
    ///
    /// # Errors
    /// As [`HostRules::heal`].
    pub(super) fn heal_rules(&self) -> Result<bool, String> {
        self.heal_of(Some(&[]))
    }

    /// Returns the network namespace of the host and the engine that holds the rules there.
    pub(super) fn in_use(&self) -> (Option<PathBuf>, Option<Engine>) {
        (self.0.netns.clone(), self.state().engine)
    }

    fn heal_of(&self, changed: Option<&[IpAddr]>) -> Result<bool, String> {
        let mut state = self.state();
        // With a foreign rule ahead, ours are in force nevertheless.
        let was_in_force = (state.told.is_good() || state.ahead.is_some()) && !state.is_new;
        let applied = self.apply(&mut state, changed);
        let failure = applied.as_ref().err().or(state.ahead.as_ref()).cloned();
        let healed = applied.as_ref().ok().and_then(|changes| changes.first());
        let healed = healed.filter(|_| was_in_force).cloned();
        let purpose = match state.without_rules {
            true => Purpose::ProbesByPrograms,
            false => Purpose::Probes,
        };
        state.told.tell(&self.0.journal, purpose, failure, healed);
        applied.map(|changes| changes.is_empty())
    }

    /// Returns true if there may be policy rules for pods behind a branch ENI.
    pub(super) fn has_enis(&self) -> bool {
        let proc = &self.0.proc;
        self.0.branch_enis
            && self
                .at_host(|| eni::early_demux_is_off(proc))
                .unwrap_or(true)
    }

    /// Changes the desired state for these addresses and applies it.
    fn change(&self, addresses: &[IpAddr], change: impl FnOnce(&mut State)) -> Result<(), String> {
        let mut state = self.state();
        change(&mut state);
        state.is_new = true;
        self.apply(&mut state, Some(addresses)).map(|_| ())
    }

    /// Writes the differences. Pods behind a branch ENI are looked for among `changed`; `None`: among all.
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
            // The host's network namespace is entered in any case: if that fails, programs do not know it either, and probes fail.
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
                // If no process of the kubelet is visible, its user is the one known before, or root, as nearly always.
                let kubelet = host::kubelet(&shared.proc, is_of_pod).map(|user| user..=user);
                state.users = kubelet.or(state.users.take()).or(Some(0..=0));
            }
            let mut addresses = state.addresses.clone();
            if !state.complete || !state.spared.is_empty() {
                // Addresses of an earlier agent stay until their pods are known and they are not needed.
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
                // A round compares everything, regardless of the known state.
                state.in_force = None;
            }
            let mut changes = host::update(&host, engine, &mut state.in_force)?;
            changes.extend(enis(state)?);
            if state.is_search_due(changed, Instant::now()) {
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

    /// Removes what captured at the node, and with `without_rules` the rules for probes. Returns what was removed.
    fn remove_former(&self, without_rules: bool) -> Result<Vec<String>, String> {
        let bpffs = self.0.bpffs.clone();
        let (config, _held) = (self.0.former)()?;
        self.at_host(move || {
            let host = Netns::current()?;
            let mut removed = weir_node_ambient::remove(&host, Some(&config))?;
            let programs = weir_node_ambient::ebpf::remove_pinned(&host, &bpffs, Some(&config))?;
            removed.extend(programs.into_iter().flatten());
            // Last: a failure here does not leave a pod captured twice.
            if without_rules {
                removed.extend(host::remove()?);
            }
            Ok(removed)
        })
    }

    /// Runs `work` on a separate thread: another program may hold the lock of the host's tables.
    fn later(&self, work: impl FnOnce(&Self) + Send + 'static) {
        let rules = self.clone();
        let work = move || work(&rules);
        let _ = std::thread::Builder::new().name("host".into()).spawn(work);
    }
}

impl State {
    /// True if foreign rules before those of the host are to be looked for: in each round, and after a commit. Not because the
    /// addresses of a pod changed.
    fn is_search_due(&self, changed: Option<&[IpAddr]>, now: Instant) -> bool {
        match changed {
            None => true,
            Some([]) => self.search_after.is_none_or(|after| after <= now),
            Some(_) => false,
        }
    }

    /// Looks for foreign rules before those of the host, in the network namespace of this thread. Returns what was changed.
    fn look_ahead(&mut self, host: &Host, engine: Engine) -> weir_netlink::Result<Vec<String>> {
        let begun = Instant::now();
        let found = host::ahead(host, engine);
        self.search_after = Some(Instant::now() + begun.elapsed() * SEARCHES);
        let mut found = match found {
            Ok(found) => found,
            Err(e) => {
                self.ahead = Some(format!(
                    "the rules are in force, but whether a foreign rule takes packets before them is not known: {e}"
                ));
                return Ok(Vec::new());
            }
        };
        let (mut changes, now) = (Vec::new(), Instant::now());
        let is_due = !self.is_first || found.takes_in_table;
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
            // A failure of one removal does not stop the other.
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
