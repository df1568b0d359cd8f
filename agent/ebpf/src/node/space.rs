//! One namespace, the node's or a proxy's: reads its state, and writes and removes programs, maps, sysctls and routing.

use super::change::{Attachment, Change};
use super::maps::{Maps, Which};
use super::plan::Observed;
use super::programs::{NodeRole, NodeTraits, assemble};
use super::sysctls::{
    ALL, INTERFACE, forget_links_that_are_gone, read_number, remember, remember_number, sysctl_of,
    write_number,
};
use super::{contents, desired};
use crate::hook::{self, Detached, Held, Hook, Hooks, Occupants};
use crate::load::{load_code, mistake};
use crate::pins::{self, Bpffs};
use crate::{clsact, cookie};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use weir_bpf::Program;
use weir_cni::redirection::has_ipv6_on_lo;
use weir_netlink::route::Routing;
use weir_netlink::{Error, Netns, Result};

/// A namespace, and the directory of its pins.
#[derive(Debug)]
pub(super) struct Space<'a> {
    pub(super) netns: &'a Netns,
    pub(super) bpffs: &'a Bpffs,
    pub(super) folder: PathBuf,
}

impl<'a> Space<'a> {
    pub(super) fn of(netns: &'a Netns, bpffs: &'a Bpffs) -> Self {
        Self {
            folder: bpffs.folder(netns),
            netns,
            bpffs,
        }
    }

    /// Returns the attached programs of all writers at these interfaces, without interfaces that do not exist.
    pub(super) fn occupants(&self, of: &BTreeSet<u32>) -> Result<BTreeMap<u32, Occupants>> {
        self.netns.run(|| {
            let routing = Routing::open()?;
            let hooks = self.hooks(&self.folder, &routing);
            let mut found = BTreeMap::new();
            for index in of {
                match hooks.occupants(*index) {
                    Ok(occupants) => _ = found.insert(*index, occupants),
                    Err(e) if e.is_not_found() => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(found)
        })?
    }

    fn hooks<'b>(&self, folder: &'b Path, routing: &'b Routing) -> Hooks<'b> {
        Hooks::of(self.bpffs, folder, routing)
    }

    /// Returns the programs of weir in this namespace.
    pub(super) fn held(&self) -> Result<BTreeMap<Hook, Held>> {
        self.netns.run(|| {
            let routing = Routing::open()?;
            let links: BTreeSet<u32> = routing.links()?.iter().map(|link| link.index).collect();
            let hooks = self.hooks(&self.folder, &routing);
            hooks.held(|index| links.contains(&index))
        })?
    }

    /// Returns the interfaces where programs of versions with another layout are attached.
    pub(super) fn interfaces_of_other_layouts(&self) -> Result<BTreeSet<u32>> {
        let folders = self.bpffs.other_layouts(self.netns)?.into_iter();
        let each: Result<Vec<_>> = folders.map(|f| hook::interfaces(&f)).collect();
        Ok(each?.into_iter().flatten().collect())
    }

    /// Reads the state of the namespace, with these sysctls. The programs use the maps that are pinned in `maps`.
    pub(super) fn observe(
        &self,
        maps: &Path,
        keys: impl IntoIterator<Item = String> + Send,
    ) -> Result<Observed> {
        self.netns.run(|| {
            let routing = Routing::open()?;
            let links = routing.links()?;
            // Packets that arrive at a port are received by its bridge.
            let ports = links.iter().filter(|link| link.master.is_some());
            let mut may_be_loose: BTreeSet<u32> = ports.map(|link| link.index).collect();
            let links = links.into_iter().map(|link| (link.index, link.name));
            let links: BTreeMap<u32, String> = links.collect();
            let addresses = routing.addresses()?;
            let has_ipv6_on_lo = has_ipv6_on_lo(&addresses);
            let addresses = addresses.into_iter();
            let own = addresses.filter(|a| a.net.addr().is_ipv4());
            may_be_loose.extend(own.map(|a| a.index));
            let mut sysctls = BTreeMap::new();
            for key in keys {
                if let Some(value) = read_number(&key)? {
                    sysctls.insert(key, value);
                }
            }
            // Other links must stay as strict if `all` is set to 0.
            if sysctls
                .get(&desired::rp_filter("all"))
                .is_some_and(|value| *value > 0)
            {
                for name in links.values().map(String::as_str).chain(["default"]) {
                    let key = desired::rp_filter(name);
                    if let Some(value) = read_number(&key)? {
                        sysctls.insert(key, value);
                    }
                }
            }
            let (routes, rules) = desired::read_routing(&routing)?;
            let hooks = self.hooks(&self.folder, &routing);
            Ok(Observed {
                held: hooks.held(|index| links.contains_key(&index))?,
                links,
                may_be_loose,
                tags: BTreeMap::new(),
                maps: contents::ids(maps)?,
                contents: contents::contents(&self.folder)?,
                sysctls,
                has_ipv6_on_lo,
                routes,
                rules,
                obsolete: contents::obsolete(&self.folder)?,
                has_other_layout: !self.bpffs.other_layouts(self.netns)?.is_empty(),
            })
        })?
    }

    /// Deletes the pins of a former namespace with the same inode, which the kernel reuses.
    pub(super) fn forget_older(&self) -> Result<()> {
        if let Some(is_of_another) = cookie::is_of_another(&self.folder, self.netns)? {
            return match is_of_another {
                true => pins::delete(&self.folder),
                false => Ok(()),
            };
        }
        let held = self.held()?;
        if held.is_empty() || held.values().any(|held| held.is_attached) {
            return Ok(());
        }
        self.netns
            .run(|| self.hooks(&self.folder, &Routing::open()?).delete())?
    }

    /// Checks, before anything is changed, that the kernel can attach programs; then creates the directory, and takes over the records
    /// of other layouts.
    pub(super) fn prepare(&self) -> Result<()> {
        self.netns
            .run(|| self.hooks(&self.folder, &Routing::open()?).way())??;
        cookie::make_folder(self.bpffs, self.netns)?;
        let folders = self.bpffs.folders(self.netns)?;
        for older in folders.iter().filter(|folder| **folder != self.folder) {
            clsact::take_over(older, &self.folder)?;
            for (key, value) in contents::before(older)? {
                remember_number(&self.folder, key, value)?;
            }
        }
        Ok(())
    }

    /// Writes changes. Attached programs are appended to `attached`, also if an error follows.
    pub(super) fn write(
        &self,
        changes: &[Change],
        programs: &mut Programs,
        attached: &mut Vec<Attachment>,
    ) -> Result<()> {
        self.netns.run(|| {
            let routing = Routing::open()?;
            let hooks = self.hooks(&self.folder, &routing);
            if changes
                .iter()
                .any(|change| matches!(change, Change::Sysctl(..)))
            {
                forget_links_that_are_gone(&self.folder, &routing)?;
            }
            let map = |change: &Change| change.written().map(|(which, ..)| which);
            for run in changes.chunk_by(|a, b| map(a).is_some() && map(a) == map(b)) {
                let [change, ..] = run else { continue };
                if let Some(which) = map(change) {
                    let written = run.iter().filter_map(Change::written);
                    let written: Vec<_> = written.map(|(_, a, value)| (a, value)).collect();
                    programs.maps.put(which, &written)?;
                    continue;
                }
                match change {
                    Change::Sysctl(key, value) => {
                        remember(&self.folder, &routing, key)?;
                        write_number(key, *value)?;
                    }
                    Change::AddRoute(route) => drop(routing.add_route(route)?),
                    Change::AddRule(rule) => drop(routing.add_rule(rule)?),
                    Change::DeleteRoute(route) => drop(routing.del_route(route)?),
                    Change::DeleteRule(rule) => drop(routing.del_rule(rule)?),
                    // Written above, in one batch per map.
                    Change::Pod(..) | Change::Address(_) | Change::ProxyAddress(_) => {}
                    Change::NoPod(address) => programs.maps.delete(Which::Pods, *address)?,
                    Change::NoAddress(address) => programs.maps.delete(Which::Node, *address)?,
                    Change::Proxy(_, index) => programs.maps.set_proxy(*index)?,
                    Change::NoProxy => programs.maps.set_proxy(0)?,
                    Change::Former(count) => programs.maps.set_former(*count)?,
                    Change::Exclude(what, value) => programs.maps.exclude(*what, Some(*value))?,
                    Change::NoExclude(what) => programs.maps.exclude(*what, None)?,
                    Change::Names(addresses) => programs.maps.set_names(addresses)?,
                    Change::Attach(a) if programs.refused.contains_key(&a.interface) => {}
                    Change::Attach(a) | Change::Replace(a) | Change::MoveFirst(a, _) => {
                        // Read once per link, before this change has attached anything there.
                        if self.bpffs.refusals.is_some()
                            && a.role.is_of_pod()
                            && !programs.occupants.contains_key(&a.hook.0)
                            && let Ok(found) = hooks.occupants(a.hook.0)
                        {
                            programs.occupants.insert(a.hook.0, found);
                        }
                        let program = programs.load(a.role, &a.program)?;
                        let object = a.to_string();
                        if matches!(change, Change::Replace(_)) {
                            hooks.replace(&object, a.hook, program)?;
                            continue;
                        }
                        match hooks.attach(&object, a.hook, program) {
                            Ok(()) if matches!(change, Change::MoveFirst(..)) => {}
                            Ok(()) => attached.push(a.clone()),
                            // A program that is only not the first still captures, so a failed move is no reason to leave out the pod.
                            Err(e)
                                if self.bpffs.refusals.is_some()
                                    && a.role.is_of_pod()
                                    && !matches!(change, Change::MoveFirst(..)) =>
                            {
                                programs.refused.insert(a.interface.clone(), (a.hook.0, e));
                            }
                            Err(e) => return Err(e),
                        }
                    }
                    Change::Detach(_, Detached(hook), _) => hooks.detach(*hook)?,
                    Change::Unpin(name) => pins::unpin(&self.folder.join(name))?,
                    Change::RemoveOtherLayout => self.remove_other_layouts(&routing)?,
                }
            }
            Ok(())
        })?
    }

    fn remove_other_layouts(&self, routing: &Routing) -> Result<()> {
        let mut others = self.bpffs.other_layouts(self.netns)?.into_iter();
        others.try_for_each(|folder| self.hooks(&folder, routing).delete())?;
        // Qdiscs of interfaces that have no program in this layout.
        self.hooks(&self.folder, routing).delete_empty_qdiscs()
    }

    /// Detaches the attached programs, after an error.
    pub(super) fn detach<'b>(
        &self,
        attached: impl DoubleEndedIterator<Item = &'b Attachment> + Send,
    ) -> Result<()> {
        self.netns.run(|| {
            let routing = Routing::open()?;
            let hooks = self.hooks(&self.folder, &routing);
            // In reverse order, so that no packet is redirected to a link without a program.
            let mut attached = attached.rev();
            attached.try_for_each(|a| hooks.detach(a.hook))
        })?
    }

    /// Returns the stored values of sysctls. A value stored by an older version takes precedence.
    fn before(&self) -> Result<BTreeMap<u32, u32>> {
        let mut before = BTreeMap::new();
        for folder in self.bpffs.folders(self.netns)?.iter().rev() {
            for (key, value) in contents::before(folder)? {
                before.entry(key).or_insert(value);
            }
        }
        Ok(before)
    }

    /// Returns the stored values by sysctl, for existing links.
    pub(super) fn sysctls_before(&self) -> Result<BTreeMap<String, u32>> {
        let before = self.before()?;
        if before.is_empty() {
            return Ok(BTreeMap::new());
        }
        let links = self.netns.run(|| Routing::open()?.links())??.into_iter();
        let links = links.map(|link| (link.index, link.name)).collect();
        let named = |(key, value)| Some((sysctl_of(key, &links, None)?.0, value));
        Ok(before.into_iter().filter_map(named).collect())
    }

    /// Undoes a failed first change of the proxy's namespace. Routing that existed before is kept, because rules may use it.
    pub(super) fn undo_all(&self, changes: &[Change]) -> Result<()> {
        let removed = self.remove(false);
        let routed = self.netns.run(|| {
            let routing = Routing::open()?;
            // Rules first, so that no packet is looked up in an empty table.
            changes.iter().rev().try_for_each(|change| match change {
                Change::AddRule(rule) => routing.del_rule(rule).map(drop),
                Change::AddRoute(route) => routing.del_route(route).map(drop),
                _ => Ok(()),
            })
        });
        removed.and(routed?)
    }

    /// Returns the changes of [`Self::remove`].
    pub(super) fn removal(&self, is_proxy: bool) -> Result<Vec<Change>> {
        let observed = self.observe(&self.folder, [])?;
        let mut changes = Vec::new();
        if observed.has_other_layout {
            changes.push(Change::RemoveOtherLayout);
        }
        let folders = self.bpffs.folders(self.netns)?;
        if folders.is_empty() {
            return Ok(changes);
        }
        let held = observed.held.iter();
        let first = changes.len();
        changes.extend(held.map(|(hook, held)| observed.detach(*hook, held)));
        // Programs of pods first, so that no packet is redirected to a link without a program.
        let detached = changes.get_mut(first..).unwrap_or_default();
        detached.sort_by_key(|change| !change.detaches_of_pod());
        let before = self.before()?;
        let mut there: Vec<u32> = before.get(&INTERFACE).copied().into_iter().collect();
        // Earlier versions did not store the interface.
        for folder in &folders {
            there.extend(hook::interfaces(folder)?);
        }
        let mut there = there.iter().filter_map(|index| observed.links.get(index));
        // After a failed attempt there is no pin either. The kubelet gives this name to the interface of every pod.
        let usual = || observed.links.values().find(|name| *name == "eth0");
        let interface = there.next().or_else(usual).map(String::as_str);
        let of_all = before.get(&ALL).copied();
        for (key, value) in before {
            let Some((name, mut ours)) = sysctl_of(key, &observed.links, interface) else {
                continue;
            };
            // Other links were set to the previous value of `all`.
            ours.extend(of_all.filter(|_| name.ends_with("rp_filter")));
            // A value that another writer set since is kept.
            let now = self.netns.run(|| read_number(&name))??;
            if now.is_some_and(|now| now != value && ours.contains(&now)) {
                changes.push(Change::Sysctl(name, value));
            }
        }
        if is_proxy {
            let (routes, rules) = desired::owned(&observed.routes, &observed.rules);
            changes.extend(rules.into_iter().map(Change::DeleteRule));
            changes.extend(routes.into_iter().map(Change::DeleteRoute));
        }
        Ok(changes)
    }

    /// Removes everything that weir has written to this namespace; with `is_proxy` also the routing.
    pub(super) fn remove(&self, is_proxy: bool) -> Result<Vec<Change>> {
        if cookie::is_of_another(&self.folder, self.netns)? == Some(true) {
            pins::delete(&self.folder)?;
        }
        let changes = self.removal(is_proxy)?;
        self.netns.run(|| {
            let routing = Routing::open()?;
            let hooks = self.hooks(&self.folder, &routing);
            let (mut detached, mut restored) = (Ok(()), Ok(()));
            for change in &changes {
                let is_needed = || !change.detaches_of_pod();
                match change {
                    Change::Sysctl(key, value) => {
                        restored = restored.and(write_number(key, *value));
                    }
                    // A program of a pod that stays needs the programs of the proxy and the routing.
                    _ if detached.is_err() && is_needed() => {}
                    Change::Detach(_, Detached(hook), _) => {
                        detached = detached.and(hooks.detach(*hook));
                    }
                    Change::DeleteRule(rule) => detached = routing.del_rule(rule).map(drop),
                    Change::DeleteRoute(route) => detached = routing.del_route(route).map(drop),
                    Change::RemoveOtherLayout => detached = self.remove_other_layouts(&routing),
                    _ => {}
                }
            }
            // The pins are deleted last, and only after success: they have the previous values of sysctls.
            let detached = detached.and_then(|()| hooks.detach_all());
            detached
                .and(restored)
                .and_then(|()| pins::delete(&self.folder))
        })??;
        Ok(changes)
    }
}

/// Programs with their maps; each is loaded once.
pub(super) struct Programs {
    pub(super) maps: Maps,
    traits: NodeTraits,
    loaded: BTreeMap<NodeRole, Program>,
    /// Links of pods where no program could be attached, with their index and the error.
    pub(super) refused: BTreeMap<String, (u32, Error)>,
    /// The programs at links of pods before the change.
    pub(super) occupants: BTreeMap<u32, Occupants>,
}

impl Programs {
    pub(super) fn new(maps: Maps, traits: NodeTraits) -> Self {
        Self {
            maps,
            traits,
            loaded: BTreeMap::new(),
            refused: BTreeMap::new(),
            occupants: BTreeMap::new(),
        }
    }

    fn load(&mut self, role: NodeRole, name: &str) -> Result<&Program> {
        use std::collections::btree_map::Entry;
        Ok(match self.loaded.entry(role) {
            Entry::Occupied(loaded) => loaded.into_mut(),
            Entry::Vacant(place) => {
                let code = assemble(role, self.traits).map_err(|e| mistake(role, &e))?;
                place.insert(load_code(&code, name, &self.maps.list())?)
            }
        })
    }
}
