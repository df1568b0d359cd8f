//! A pod's namespace: plan, apply, compare, remove.

use crate::asm::MapRef;
use crate::change::Change;
use crate::hook::{Detached, Held, Hook, Hooks, Links, Way};
use crate::inpod::layout::Count;
use crate::inpod::{Role, assemble};
use crate::load::{load, mistake, program_name, tag};
use crate::maps::{self, Maps};
use crate::pins::{self, Bpffs};
use crate::plan::{Desired, Genuine, Interface, Observed, detach, plan};
use crate::switches::{self, Routes, Switch};
use crate::{cookie, events};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use weir_ambient::Redirect;
use weir_bpf::{Map, Program};
use weir_cni::redirection::{Sandbox, has_ipv6, has_ipv6_on_lo, refuse_host};
use weir_netlink::route::Routing;
use weir_netlink::{Error, InForce, Netns, Result};

/// The namespace of a pod, and the directory of its pins.
#[derive(Debug)]
pub struct Pod<'a> {
    netns: &'a Netns,
    bpffs: &'a Bpffs,
    folder: PathBuf,
    node: Option<&'a Netns>,
}

/// Runs `work` if the pod has pins at `root`, or if shared maps are left there that no namespace uses.
///
/// # Errors
/// The pins cannot be read.
pub fn if_pinned<T>(
    sandbox: &Sandbox,
    root: &Path,
    work: impl FnOnce(&Pod<'_>) -> T,
) -> Result<Option<T>> {
    let Some(bpffs) = Bpffs::if_mounted(root)? else {
        return Ok(None);
    };
    let pod = Pod::in_sandbox(sandbox, &bpffs);
    Ok(pod.has_left()?.then(|| work(&pod)))
}

impl<'a> Pod<'a> {
    /// Checks that the namespace may be a pod's.
    ///
    /// # Errors
    /// It is the host's namespace, or that of this thread.
    pub fn of(netns: &'a Netns, bpffs: &'a Bpffs) -> Result<Self> {
        refuse_host(netns)?;
        Ok(Self::at(netns, bpffs))
    }

    /// Like [`Pod::of`], for a namespace that is known to be a pod's; also for a thread that has entered it.
    #[must_use]
    pub fn in_sandbox(sandbox: &'a Sandbox, bpffs: &'a Bpffs) -> Self {
        Self::at(sandbox.netns(), bpffs)
    }

    fn at(netns: &'a Netns, bpffs: &'a Bpffs) -> Self {
        Self {
            netns,
            bpffs,
            folder: bpffs.folder(netns),
            node: None,
        }
    }

    /// Exempts connections of processes in this namespace, the node's, from which the kubelet sends its probes.
    /// Without it they are captured like those of other hosts.
    #[must_use]
    pub fn beside(self, node: &'a Netns) -> Self {
        let is_other = node.id() != self.netns.id();
        Self {
            node: Some(node).filter(|_| is_other),
            ..self
        }
    }

    fn desired(&self, redirect: &Redirect) -> Result<Desired> {
        let (events, node) = (self.bpffs.has_events()?, self.node.is_some());
        Desired::of(redirect, (events, node), program_name)
    }

    /// Returns the changes of [`Pod::apply`]. Changes nothing.
    ///
    /// # Errors
    /// The namespace cannot be read, or the reason why it cannot be redirected by eBPF.
    pub fn plan(&self, redirect: &Redirect) -> Result<Vec<Change>> {
        let desired = self.desired(redirect)?;
        self.netns
            .run(|| plan(&desired, &self.observe_for(&desired)?))?
    }

    /// Returns the difference from the desired state: empty if the namespace is in sync.
    ///
    /// # Errors
    /// Those of [`Pod::plan`].
    pub fn verify(&self, redirect: &Redirect) -> Result<Vec<Change>> {
        self.plan(redirect)
    }

    /// Applies the desired state, and reads it back. Programs stay attached when this process exits. After an error all changes
    /// are undone, except for programs that replaced older ones.
    ///
    /// # Errors
    /// The kernel refuses a change, or the state that is read back differs from the desired one. [`Error::in_force`]: unknown if not all
    /// changes could be undone.
    pub fn apply(&self, redirect: &Redirect) -> Result<Vec<Change>> {
        let desired = self.desired(redirect)?;
        let _lock = self.bpffs.lock()?;
        self.netns.run(|| {
            if let Some(node) = self.node.filter(|_| desired.lets_node_pass()) {
                switches::name_node(node)?;
            }
            let mut observed = self.observe_for(&desired)?;
            if self.is_of_another(&observed)? {
                pins::delete(&self.folder)?;
                observed = self.observe_for(&desired)?;
            }
            let changes = plan(&desired, &observed)?;
            if changes.is_empty() {
                return Ok(changes);
            }
            let is_new = !pins::is_folder(&self.folder)? && !observed.has_other_layout;
            let mut begun = 0;
            let written = self.write(&desired, &changes, &mut begun);
            let is_written = written.is_ok();
            if let Err(e) = written.and_then(|()| self.compare(&desired)) {
                // Repairs of an older redirection are kept, whatever else has changed in the meantime.
                if is_written && !is_new {
                    return Err(e.with_in_force(InForce::Unknown));
                }
                return Err(
                    match self.undo(changes.get(..begun).unwrap_or(&changes), is_new) {
                        Ok(()) => e,
                        Err(_) => e.with_in_force(InForce::Unknown),
                    },
                );
            }
            Ok(changes)
        })?
    }

    /// Returns the changes of [`Pod::remove`].
    ///
    /// # Errors
    /// The namespace cannot be read.
    pub fn plan_removal(&self) -> Result<Vec<Change>> {
        self.netns.run(|| self.removal(&self.observe()?))?
    }

    /// Detaches the programs of weir, deletes its routing, and restores the sysctls of `lo`. Missing objects are not an error.
    ///
    /// # Errors
    /// The first failure; the rest was attempted.
    pub fn remove(&self) -> Result<Vec<Change>> {
        self.remove_except(|_| false)
    }

    /// Like [`Pod::remove`], but keeps the routing: netfilter rules, which need it too, capture instead.
    ///
    /// # Errors
    /// Those of [`Pod::remove`].
    pub fn hand_over(&self) -> Result<Vec<Change>> {
        self.remove_except(|change| {
            matches!(change, Change::DeleteRoute(_) | Change::DeleteRule(_))
        })
    }

    fn remove_except(&self, stays: impl Fn(&Change) -> bool + Sync) -> Result<Vec<Change>> {
        let _lock = self.bpffs.lock()?;
        self.netns.run(|| {
            if cookie::is_of_another(&self.folder, self.netns)? == Some(true) {
                pins::delete(&self.folder)?;
            }
            let mut changes = self.removal(&self.observe()?)?;
            changes.retain(|change| !stays(change));
            let routing = Routing::open()?;
            let mut failure = Ok(());
            for change in &changes {
                failure = failure.and(match change {
                    Change::DeleteRoute(route) => routing.del_route(route).map(drop),
                    Change::DeleteRule(rule) => routing.del_rule(rule).map(drop),
                    Change::Switch(name, on) => switches::set(name, *on),
                    _ => Ok(()),
                });
            }
            // The pins are deleted last: they have the previous values of the sysctls.
            for folder in self.bpffs.other_layouts(self.netns)? {
                failure = failure.and(self.hooks(&folder, &routing).delete());
            }
            let hooks = self.hooks(&self.folder, &routing);
            // Keep the map with the values that could not be restored.
            if let Err(e) = failure.and_then(|()| hooks.delete()) {
                let _ = hooks.detach_all();
                return Err(e);
            }
            events::forget(self.bpffs)?;
            Ok(changes)
        })?
    }

    /// True if there are pins for this namespace.
    ///
    /// # Errors
    /// The directories cannot be read.
    pub fn is_present(&self) -> Result<bool> {
        self.bpffs.has_folder(self.netns)
    }

    /// Like [`Pod::is_present`], without the pins of a former namespace with the same inode.
    ///
    /// # Errors
    /// The directories cannot be read.
    pub fn has_pins(&self) -> Result<bool> {
        Ok(!self.bpffs.folders(self.netns)?.is_empty())
    }

    fn has_left(&self) -> Result<bool> {
        Ok(self.is_present()? || events::is_left(self.bpffs)?)
    }

    /// Returns a snapshot of the links of the pod's programs, for a check that costs less than [`Pod::verify`].
    ///
    /// # Errors
    /// The links cannot be read.
    pub fn links(&self) -> Result<Links> {
        Links::of(&self.folder)
    }

    /// Returns the number of the pod's outbound connections, or of its DNS packets, that were captured; `None`: it cannot be read.
    #[must_use]
    pub fn captured(&self, dns: bool) -> Option<u64> {
        self.counted(if dns { Count::Dns } else { Count::Outbound })
    }

    /// Returns the number of connections to the pod that were captured; `None`: it cannot be read.
    #[must_use]
    pub fn captured_inbound(&self) -> Option<u64> {
        self.counted(Count::Inbound)
    }

    fn counted(&self, of: Count) -> Option<u64> {
        let counters = self.counters()?;
        counters.get(of as usize).map(|(_, count)| *count)
    }

    /// True if the programs let connections of processes in this namespace pass: it is the node's.
    ///
    /// # Errors
    /// The namespace of the pod or the pinned map cannot be read.
    pub fn lets_pass(&self, caller: &Netns) -> Result<bool> {
        let passes = maps::node(&self.folder)?;
        let id = self.netns.run(|| Routing::open()?.nsid(caller))??;
        Ok(passes.is_some() && passes == id)
    }

    /// Returns the counters of the pod's programs; `None` without programs, or if they cannot be read.
    #[must_use]
    pub fn counters(&self) -> Option<Vec<(&'static str, u64)>> {
        let is_own = cookie::may_be_own(&self.folder, self.netns);
        is_own.then(|| maps::counters(&self.folder).ok())?.flatten()
    }

    /// True if the pins belong to a namespace that is gone. Without a cookie, they do if all programs are detached.
    fn is_of_another(&self, observed: &Observed) -> Result<bool> {
        let held = &observed.held;
        let is_detached = || !held.is_empty() && held.values().all(|held| !held.is_attached);
        Ok(cookie::is_of_another(&self.folder, self.netns)?.unwrap_or_else(is_detached))
    }

    fn removal(&self, observed: &Observed) -> Result<Vec<Change>> {
        let detach = |(hook, held): (&Hook, &Held)| detach(observed, *hook, held);
        let mut changes: Vec<Change> = observed.held.iter().map(detach).collect();
        // Without pins the routing and the sysctls do not belong to this engine.
        let before = match maps::before(&self.folder)? {
            None => self.before_of_older()?,
            own => own,
        };
        // Attached programs are weir's, even if the map of previous values is lost.
        if before.is_some() || !observed.held.is_empty() {
            let (routes, rules) = observed.routes.owned();
            changes.extend(routes.into_iter().map(Change::DeleteRoute));
            changes.extend(rules.into_iter().map(Change::DeleteRule));
            for (switch, is_on) in &observed.switches {
                if *is_on && !switches::was_on(before.as_ref(), *switch)? {
                    changes.push(Change::Switch(switch.name(), false));
                }
            }
        }
        if observed.has_other_layout {
            changes.push(Change::RemoveOtherLayout);
        }
        Ok(changes)
    }

    /// Returns the previous values stored by a version with another layout.
    fn before_of_older(&self) -> Result<Option<Map>> {
        let older = self.bpffs.other_layouts(self.netns)?;
        let older: Result<Vec<_>> = older.iter().map(|folder| maps::before(folder)).collect();
        Ok(older?.into_iter().flatten().next())
    }

    /// Must run in the pod's namespace.
    fn hooks<'b>(&self, folder: &'b Path, routing: &'b Routing) -> Hooks<'b> {
        Hooks::of(self.bpffs, folder, routing)
    }

    /// Must run in the pod's namespace.
    fn observe(&self) -> Result<Observed> {
        let routing = Routing::open()?;
        let interfaces = routing.links()?.into_iter().map(|link| Interface {
            is_ethernet: link.mac.is_some(),
            index: link.index,
            name: link.name,
            is_up: link.up,
        });
        let interfaces: Vec<Interface> = interfaces.collect();
        let node_id = self.node.map(|node| routing.nsid(node)).transpose()?;
        let switches = Switch::ALL.map(|switch| switch.is_on().map(|on| (switch, on)));
        Ok(Observed {
            held: self
                .hooks(&self.folder, &routing)
                .held(|index| interfaces.iter().any(|i| i.index == index))?,
            interfaces,
            routes: Routes::read(&routing)?,
            has_ipv6: has_ipv6(),
            has_ipv6_on_lo: has_ipv6_on_lo(&routing.addresses()?),
            switches: switches.into_iter().collect::<Result<_>>()?,
            node_id: node_id.flatten(),
            passes: maps::node(&self.folder)?,
            has_before: match maps::before(&self.folder)? {
                Some(before) => switches::stored(&before)?.is_some(),
                None => false,
            },
            genuine: BTreeMap::new(),
            has_other_layout: !self.bpffs.other_layouts(self.netns)?.is_empty(),
        })
    }

    /// Like [`Pod::observe`], with what distinguishes the programs from others of the same names.
    fn observe_for(&self, desired: &Desired) -> Result<Observed> {
        let mut observed = self.observe()?;
        let traits = &desired.traits;
        let ids = maps::ids(&self.folder, traits.dns, traits.events)?;
        for (role, name) in &desired.names {
            if observed.held.values().any(|held| held.program == *name) {
                let code = assemble(*role, traits).map_err(|e| mistake(role, &e))?;
                let id = |map: MapRef| ids.get(map.0).copied().flatten();
                let genuine = Genuine {
                    tag: tag(
                        &code,
                        || Maps::create(traits.dns, traits.events),
                        Maps::list,
                    )?,
                    maps: code.used_maps().into_iter().map(id).collect(),
                };
                observed.genuine.insert(*role, genuine);
            }
        }
        Ok(observed)
    }

    /// Writes the changes; `begun` counts those that were started.
    fn write(&self, desired: &Desired, changes: &[Change], begun: &mut usize) -> Result<()> {
        let routing = Routing::open()?;
        let hooks = self.hooks(&self.folder, &routing);
        if hooks.way()? == Way::Clsact {
            let reason = "the kernel has no tcx links (6.6), and without them it does not give packets to listeners with \
                          SO_REUSEPORT either, as those of ztunnel in a pod are; use netfilter (--engine auto)";
            return Err(Error::unsupported(
                "attach",
                "the programs of a pod",
                reason,
            ));
        }
        cookie::make_folder(self.bpffs, self.netns)?;
        let traits = &desired.traits;
        let maps = Maps::pinned(&self.folder, traits.dns, traits.events)?;
        let is_forgotten = changes.contains(&Change::Forgotten);
        switches::remember(&maps.before, self.before_of_older()?.as_ref(), is_forgotten)?;
        let mut programs: BTreeMap<Role, Program> = BTreeMap::new();
        for change in changes {
            *begun += 1;
            match change {
                Change::Switch(name, on) => switches::set(name, *on)?,
                Change::Node(passes) => {
                    let id = self.node.filter(|_| *passes);
                    let id = id.map(|node| routing.nsid(node)).transpose()?;
                    maps.set_node(id.flatten())?;
                }
                Change::AddRoute(route) => drop(routing.add_route(route)?),
                Change::AddRule(rule) => drop(routing.add_rule(rule)?),
                Change::Attach(a) | Change::Replace(a) | Change::MoveFirst(a, _) => {
                    let program = match programs.entry(a.role) {
                        Entry::Occupied(loaded) => loaded.into_mut(),
                        Entry::Vacant(place) => place.insert(load(a, desired, &maps)?),
                    };
                    let object = a.to_string();
                    match change {
                        Change::Replace(_) => hooks.replace(&object, a.hook, program)?,
                        _ => hooks.attach(&object, a.hook, program)?,
                    }
                }
                Change::Detach(_, Detached(hook), _) => hooks.detach(*hook)?,
                Change::RemoveOtherLayout => {
                    for folder in self.bpffs.other_layouts(self.netns)? {
                        self.hooks(&folder, &routing).delete()?;
                    }
                }
                // Stored above.
                Change::Forgotten => {}
                Change::DeleteRoute(route) => drop(routing.del_route(route)?),
                Change::DeleteRule(rule) => drop(routing.del_rule(rule)?),
            }
        }
        Ok(())
    }

    /// Undoes the started changes in reverse order; continues after a failure, and returns the first one.
    fn undo(&self, begun: &[Change], is_new: bool) -> Result<()> {
        let routing = Routing::open()?;
        let hooks = self.hooks(&self.folder, &routing);
        // The programs of the older layout are gone: without the new ones the pod would not be captured.
        if begun.contains(&Change::RemoveOtherLayout) {
            let reason = "programs of another version of weir were removed";
            return Err(Error::refused("undo", "the redirection by eBPF", reason));
        }
        let mut undone = Ok(());
        for change in begun.iter().rev() {
            undone = undone.and(match change {
                Change::Attach(a) => hooks.detach(a.hook),
                Change::AddRule(rule) => routing.del_rule(rule).map(drop),
                Change::AddRoute(route) => routing.del_route(route).map(drop),
                Change::Switch(name, on) => switches::set(name, !on),
                // The older program is gone.
                Change::Replace(_)
                | Change::MoveFirst(..)
                | Change::Detach(..)
                | Change::RemoveOtherLayout => Err(Error::refused(
                    "undo",
                    change.to_string(),
                    "the older one is gone",
                )),
                Change::DeleteRoute(route) => routing.add_route(route).map(drop),
                Change::DeleteRule(rule) => routing.add_rule(rule).map(drop),
                Change::Forgotten | Change::Node(_) => Ok(()),
            });
        }
        if is_new {
            undone = undone.and_then(|()| hooks.delete());
            undone = undone.and_then(|()| events::forget(self.bpffs));
        }
        undone
    }

    fn compare(&self, desired: &Desired) -> Result<()> {
        let left = plan(desired, &self.observe_for(desired)?)?;
        match left.first() {
            None => Ok(()),
            Some(first) => Err(Error::refused(
                "verify",
                "the redirection by eBPF",
                format!(
                    "after it was applied, {} changes are left, the first: {first}",
                    left.len()
                ),
            )),
        }
    }
}
