//! Redirection at the node: traffic from and to enrolled pods goes to the node's single proxy, without tunnels, netfilter rules
//! and routes in the node's namespace.
//!
//! ```text
//! pod eth0 -- host end [ingress: FromPod] --redirect_peer--> proxy eth0 [ingress: Proxy] --sk_assign--> ztunnel 15001
//! pod eth0 <-- host end [egress: ToPod] <-- the node        --redirect--> host end of the proxy --> proxy eth0, 15006, 15008
//! pod eth0 <--redirect_peer-- host end of the proxy [ingress: FromProxy] <-- proxy eth0 <-- ztunnel
//! ```
//! Packets keep their addresses. Differences from the programs of Istio 1.20:
//!
//! - The direction is determined by the addresses, not by the control block of the packet, which GRO overwrites.
//! - IPv6, IP options and extension headers are supported, and every address of the node and of a pod.
//! - Connections that the node masquerades for other hosts are not the node's own, although they come from an address of the node:
//!   see `proxied.rs`.
//! - Without a socket of ztunnel a packet is dropped, and the proxy's namespace forwards nothing.
//! - Frames keep their hardware addresses: the receiver's program marks them as addressed to this host.
//! - Other protocols than TCP pass, except for DNS queries with DNS capture: their destination is set to the proxy, and the source of
//!   the answers to the server that was queried.
//! - Foreign programs at the same hooks continue to run.
//! - While one proxy takes over from another, open connections stay with their proxy: see `owner.rs`.

mod change;
mod contents;
mod desired;
mod exclude;
mod exclusions;
mod icmp;
mod maps;
mod owner;
mod parts;
mod plan;
mod programs;
mod proxied;
mod refusals;
mod space;
mod sysctls;
#[cfg(test)]
mod tests;

use change::Attachment;
pub use change::Change;
pub(crate) use contents::counters;
pub use desired::{Proxy, Wanted};
pub use exclude::{Exclusions, Side, canonical};
pub use maps::Excluded;
pub use programs::{NodeRole, NodeTraits, assemble};
pub use refusals::Refusals;

use crate::hook::{Held, Hook};
use crate::load::{Tag, mistake, name_of, tag};
use crate::pins::{self, Bpffs};
use crate::{cookie, events};
use maps::{Maps, Which};
use plan::Names;
use space::{Programs, Space};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use weir_netlink::{Error, InForce, Netns, Result};

/// The node's namespace, and the directory of its pins.
#[derive(Debug)]
pub struct Node<'a>(Space<'a>);

/// The attached programs and their hooks, for comparison with a later result of [`Node::attached`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached(Vec<BTreeMap<Hook, Held>>);

/// The difference from the desired state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Changes in the node's namespace.
    pub host: Vec<Change>,
    /// Changes in the proxy's namespace.
    pub proxy: Vec<Change>,
    /// Links of pods where no program could be attached, with the reason: those pods are not captured.
    pub left_out: BTreeMap<String, String>,
}

impl Changes {
    /// True if everything is in sync, except for links that are left out.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.host.is_empty() && self.proxy.is_empty()
    }
}

/// Creates maps for a trial of the programs.
pub(crate) fn trial_maps(events: bool) -> Result<Maps> {
    Maps::create(NodeTraits {
        events,
        dns: true,
        exclude: true,
        ..NodeTraits::default()
    })
}

fn names(traits: NodeTraits) -> Result<Names> {
    let named = |role: NodeRole| {
        let code = assemble(role, traits).map_err(|e| mistake(role, &e))?;
        Ok((role, name_of(role.letter(), &code)))
    };
    NodeRole::ALL.into_iter().map(named).collect()
}

/// Returns the tags that the kernel gives to those programs of weir whose names occur in `held`.
fn tags(
    traits: NodeTraits,
    names: &Names,
    held: &BTreeMap<Hook, Held>,
) -> Result<BTreeMap<NodeRole, Tag>> {
    let occurs = |name: &str| held.values().any(|held| held.program == name);
    let tag = |(role, _): (&NodeRole, _)| {
        let code = assemble(*role, traits).map_err(|e| mistake(role, &e))?;
        Ok((*role, tag(&code, || Maps::small(traits), Maps::list)?))
    };
    let there = names.iter().filter(|(_, name)| occurs(name));
    there.map(tag).collect()
}

/// The error of a change, with whether a part of it may be left.
fn undone(error: Error, undone: Result<()>) -> Error {
    match undone {
        Ok(()) => error,
        Err(_) => error.with_in_force(InForce::Unknown),
    }
}

fn keys_of_host(wanted: &Wanted) -> Vec<String> {
    let device = wanted.proxy.iter().map(|proxy| proxy.device.as_str());
    device.chain(["all"]).map(desired::rp_filter).collect()
}

impl<'a> Node<'a> {
    /// Returns the node with this namespace.
    #[must_use]
    pub fn of(host: &'a Netns, bpffs: &'a Bpffs) -> Self {
        Self(Space::of(host, bpffs))
    }

    fn traits(&self, wanted: &Wanted) -> Result<NodeTraits> {
        Ok(wanted.traits(self.0.bpffs.has_events()?))
    }

    /// Compares the node with the desired state. Changes nothing.
    ///
    /// # Errors
    /// A namespace cannot be read, or a link is gone.
    pub fn compare(&self, wanted: &Wanted) -> Result<Changes> {
        let (wanted, left_out) = refusals::possible(&self.0, wanted, self.traits(wanted)?)?;
        Ok(Changes {
            left_out,
            ..self.differences(&wanted)?
        })
    }

    /// Like [`Self::compare`], without leaving out links.
    fn differences(&self, wanted: &Wanted) -> Result<Changes> {
        let traits = self.traits(wanted)?;
        let names = names(traits)?;
        let maps = &self.0.folder;
        let proxy = match &wanted.proxy {
            Some(proxy) => {
                let netns = Netns::open(&proxy.netns)?;
                let space = Space::of(&netns, self.0.bpffs);
                let mut observed = space.observe(maps, desired::switched_off(&proxy.interface))?;
                observed.tags = tags(traits, &names, &observed.held)?;
                plan::plan_proxy(proxy, wanted.has_ipv6, &names, &observed)?
            }
            None => Vec::new(),
        };
        let mut observed = self.0.observe(maps, keys_of_host(wanted))?;
        observed.tags = tags(traits, &names, &observed.held)?;
        let host = plan::plan_host(wanted, &names, &observed)?;
        Ok(Changes {
            host,
            proxy,
            ..Changes::default()
        })
    }

    /// Applies the desired state: the proxy's namespace first, then the maps, and the programs of pods last. Programs stay
    /// attached when this process exits. After an error, programs that this call attached for pods are detached again, and
    /// so are those of the proxy, unless it has already become the active one. A program that replaced one of another layout stays. A
    /// failed first change is undone completely. See [`Bpffs::leaving_out`] for a pod that cannot be captured.
    ///
    /// # Errors
    /// The kernel refuses a change, or the state that is read back differs from the desired one. [`Error::in_force`]: unknown if it
    /// could not be undone.
    pub fn apply(&self, wanted: &Wanted) -> Result<Changes> {
        let _lock = self.0.bpffs.lock()?;
        let netns = wanted.proxy.as_ref().map(|proxy| Netns::open(&proxy.netns));
        let netns = netns.transpose()?;
        let proxy = netns.as_ref().map(|n| Space::of(n, self.0.bpffs));
        for space in proxy.iter().chain([&self.0]) {
            space.forget_older()?;
        }
        let traits = self.traits(wanted)?;
        let (wanted, left_out) = refusals::possible(&self.0, wanted, traits)?;
        let mut changes = self.differences(&wanted)?;
        changes.left_out = left_out;
        if changes.is_empty() {
            return Ok(changes);
        }
        let is_first = !self.is_in_use()?;
        let older = self.0.interfaces_of_other_layouts()?;
        let older_at_proxy = proxy.as_ref().map(Space::interfaces_of_other_layouts);
        let older_at_proxy = older_at_proxy.transpose()?.unwrap_or_default();
        let maps = self.0.prepare();
        let maps = maps.and_then(|()| Maps::pinned(&self.0.folder, traits));
        // By the directory of pins, programs would count as in use.
        let undo_first = || -> Result<()> {
            let undone = self.0.remove(false).map(drop);
            let proxy = proxy.as_ref();
            let proxy = proxy.map_or(Ok(()), |proxy| proxy.undo_all(&changes.proxy));
            undone.and(proxy)?;
            events::forget(self.0.bpffs)
        };
        let maps = maps.map_err(|e| match is_first {
            true => undone(e, undo_first()),
            false => e,
        })?;
        let mut programs = Programs::new(maps, traits);
        let (mut at_proxy, mut at_host) = (Vec::new(), Vec::new());
        let written = self.write(
            &changes,
            &wanted,
            &mut programs,
            &mut at_host,
            (proxy.as_ref(), &mut at_proxy),
        );
        if let Err(e) = written {
            at_host.retain(|a| !older.contains(&a.hook.0));
            at_proxy.retain(|a| !older_at_proxy.contains(&a.hook.0));
            let back = self.undo(
                &changes,
                (&programs.maps, older),
                &at_host,
                (proxy.as_ref(), &at_proxy),
            );
            return Err(undone(e, if is_first { undo_first() } else { back }));
        }
        self.report_refused(programs, traits, &wanted, &mut changes);
        Ok(changes)
    }

    /// Writes the changes, and reads them back. Adds what it attached to `at_host` and `at_proxy`.
    fn write(
        &self,
        changes: &Changes,
        wanted: &Wanted,
        programs: &mut Programs,
        at_host: &mut Vec<Attachment>,
        (proxy, at_proxy): (Option<&Space<'_>>, &mut Vec<Attachment>),
    ) -> Result<()> {
        // Packets from older programs at pods need the proxy's older program until the maps are filled.
        let is_last = |change: &Change| *change == Change::RemoveOtherLayout;
        let at = changes.proxy.iter().position(is_last);
        let (first, last) = changes.proxy.split_at(at.unwrap_or(changes.proxy.len()));
        if let Some(proxy) = proxy {
            proxy.prepare()?;
            proxy.write(first, programs, at_proxy)?;
        }
        self.0.write(&changes.host, programs, at_host)?;
        let mut wanted = wanted.clone();
        let refused = &programs.refused;
        wanted
            .pods
            .retain(|_, device| !refused.contains_key(device));
        if !refused.is_empty() {
            // Remove the entries of refused pods.
            let rest = self.differences(&wanted)?.host;
            self.0.write(&rest, programs, at_host)?;
        }
        if let Some(proxy) = proxy {
            proxy.write(last, programs, at_proxy)?;
        }
        let left = self.differences(&wanted)?;
        match left.proxy.first().or(left.host.first()) {
            None => Ok(()),
            Some(first) => {
                let reason = format!("after it was applied, weir would still {first}");
                Err(Error::refused("verify", "the redirection by eBPF", reason))
            }
        }
    }

    /// Moves the links where no program could be attached from the changes to those that are left out.
    fn report_refused(
        &self,
        mut programs: Programs,
        traits: NodeTraits,
        wanted: &Wanted,
        changes: &mut Changes,
    ) {
        for (device, (index, why)) in programs.refused {
            changes.host.retain(|change| !change.is_at(&device, wanted));
            changes.left_out.insert(device.clone(), why.to_string());
            let found = programs.occupants.remove(&index);
            if let (Some(refusals), Some(found)) = (&self.0.bpffs.refusals, found) {
                refusals.remember(device, (index, found, traits), &why);
            }
        }
    }

    /// Undoes a change after an error, except what previously captured pods need now: the new proxy, if their packets already go to
    /// it. At the interfaces `older`, pods were captured by programs of another layout.
    fn undo(
        &self,
        changes: &Changes,
        (maps, older): (&Maps, BTreeSet<u32>),
        attached: &[Attachment],
        (proxy, at_proxy): (Option<&Space<'_>>, &[Attachment]),
    ) -> Result<()> {
        let is_of_proxy = |a: &&Attachment| !a.role.is_of_pod();
        // Programs of pods first, so that no packet is redirected to a link without a program.
        let detached = self.0.detach(attached.iter().filter(|a| !is_of_proxy(a)));
        let left = self.0.held()?;
        let is_of_pod = |(hook, held): (&Hook, &Held)| {
            let role = NodeRole::of_name(&held.program);
            (held.is_attached && role == Some(NodeRole::FromPod)).then_some(hook.0)
        };
        let mut captured: BTreeSet<u32> = left.iter().filter_map(is_of_pod).collect();
        captured.extend(older);
        let there = contents::contents(&self.0.folder)?;
        // These addresses would count as those of captured pods, and use up space in the map.
        let pods = there.pods.iter();
        let mut forgotten = pods.filter(|(_, index)| !captured.contains(index));
        let forgotten = forgotten.try_for_each(|(address, _)| maps.delete(Which::Pods, *address));
        let is_new = |change: &Change| matches!(change, Change::Proxy(_, index) if captured.is_empty() || there.proxy != *index);
        let proxy = match changes.host.iter().any(is_new) {
            true => {
                if captured.is_empty() {
                    maps.set_proxy(0)?;
                }
                let of_host = self.0.detach(attached.iter().filter(is_of_proxy));
                of_host.and(proxy.map_or(Ok(()), |proxy| proxy.detach(at_proxy.iter())))
            }
            false => Ok(()),
        };
        detached.and(forgotten).and(proxy)
    }

    /// Returns the changes of [`Node::remove`].
    ///
    /// # Errors
    /// A namespace cannot be read.
    pub fn plan_removal(&self, proxies: &[Netns]) -> Result<Changes> {
        let mut changes = Changes {
            host: self.0.removal(false)?,
            ..Changes::default()
        };
        for netns in proxies {
            let of_proxy = Space::of(netns, self.0.bpffs).removal(true)?;
            changes.proxy.extend(of_proxy);
        }
        Ok(changes)
    }

    /// Detaches the programs of weir from the node and from these namespaces of proxies, deletes the routing there, and restores
    /// sysctls. Missing objects are not an error.
    ///
    /// # Errors
    /// The first failure. The rest was attempted, but while a program of a pod is attached, everything that it needs stays.
    pub fn remove(&self, proxies: &[Netns]) -> Result<Vec<Change>> {
        let _lock = self.0.bpffs.lock()?;
        let known = self.known();
        let done = self.0.remove(false);
        if done.is_err() && self.captures_pods() {
            return done;
        }
        // After the detachment: a program at the link of a pod without an entry drops the pod's packets.
        let forgotten = known.and_then(|(maps, pods)| {
            let mut pods = pods.into_iter();
            pods.try_for_each(|address| {
                maps.iter().try_for_each(|m| m.delete(Which::Pods, address))
            })
        });
        let mut done = forgotten.and(done);
        for netns in proxies {
            let removed = Space::of(netns, self.0.bpffs).remove(true);
            done = match (done, removed) {
                (Ok(mut all), Ok(more)) => {
                    all.extend(more);
                    Ok(all)
                }
                (Ok(_), Err(e)) => Err(e),
                (failed, _) => failed,
            };
        }
        let changes = done?;
        events::forget(self.0.bpffs)?;
        Ok(changes)
    }

    /// True if a program of a pod is attached, or if that is unknown.
    fn captures_pods(&self) -> bool {
        let is_of_pod = |held: &Held| {
            held.is_attached && NodeRole::of_name(&held.program).is_some_and(NodeRole::is_of_pod)
        };
        self.0
            .held()
            .map_or(true, |held| held.values().any(is_of_pod))
    }

    /// Returns the maps and the pods in them, which the caller deletes: without entries, a program in the namespace of a proxy that is
    /// not configured here passes everything.
    fn known(&self) -> Result<(Option<Maps>, Vec<IpAddr>)> {
        let folder = &self.0.folder;
        if !pins::is_folder(folder)? {
            return Ok((None, Vec::new()));
        }
        let maps = Maps::pinned(folder, NodeTraits::default())?;
        let pods = contents::contents(folder)?.pods;
        Ok((Some(maps), pods.into_keys().collect()))
    }

    /// Returns the programs that are attached now, in the node's namespace and in those of these proxies. While the result is unchanged,
    /// no program was detached or replaced; this costs less than [`Node::compare`].
    ///
    /// # Errors
    /// The programs cannot be read.
    pub fn attached(&self, proxies: &[Netns]) -> Result<Attached> {
        let spaces = proxies.iter().map(|netns| Space::of(netns, self.0.bpffs));
        let of_proxies: Result<Vec<_>> = spaces.map(|space| space.held()).collect();
        let mut all = of_proxies?;
        all.push(self.0.held()?);
        Ok(Attached(all))
    }

    /// True if there are pins for this node, or for one of these namespaces of proxies.
    ///
    /// # Errors
    /// The directories cannot be read, or whether a namespace exists is unknown.
    pub fn is_present<'p>(&self, proxies: impl IntoIterator<Item = &'p Path>) -> Result<bool> {
        let bpffs = self.0.bpffs;
        if bpffs.has_folder(self.0.netns)? {
            return Ok(true);
        }
        for proxy in proxies {
            // If the namespace is gone, so is everything in it.
            if let Some(netns) = crate::netns_if_there(proxy)?
                && bpffs.has_folder(&netns)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True if there are pins of exactly this node, in any layout.
    ///
    /// # Errors
    /// The directories cannot be read.
    pub fn is_in_use(&self) -> Result<bool> {
        Ok(!self.0.bpffs.folders(self.0.netns)?.is_empty())
    }

    /// Returns the values of the node's sysctls from before weir changed them, by their keys below `net/`.
    ///
    /// # Errors
    /// The stored values cannot be read.
    pub fn sysctls_before(&self) -> Result<BTreeMap<String, u32>> {
        self.0.sysctls_before()
    }

    /// Returns the addresses of pods that the node's programs capture, each with the index of the host end of its link; none if there
    /// are no pins for this node.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn links(&self) -> Result<BTreeMap<IpAddr, u32>> {
        let folder = &self.0.folder;
        if !pins::is_folder(folder)? || cookie::is_of_another(folder, self.0.netns)? == Some(true) {
            return Ok(BTreeMap::new());
        }
        Ok(contents::contents(folder)?.pods)
    }

    /// Returns the counters of the node's programs; `None` without programs, or if they cannot be read.
    #[must_use]
    pub fn counters(&self) -> Option<Vec<(&'static str, u64)>> {
        let folder = &self.0.folder;
        let is_own = cookie::may_be_own(folder, self.0.netns);
        is_own.then(|| contents::counters(folder).ok())?.flatten()
    }
}
