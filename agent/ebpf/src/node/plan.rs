//! The observed state of the node and its proxy, and the difference from the desired state.

use super::change::{Attachment, Change};
use super::contents::{Addresses, Contents};
use super::desired::{LOOSE, Proxy, Wanted, routing, rp_filter, switched_off};
use super::exclusions;
use super::parts::{OF_NODE, OF_PROXY};
use super::programs::NodeRole;
use crate::hook::{Detached, Direction, Held, Hook};
use crate::load::Tag;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_netlink::route::{AddressFamily, PolicyRule, Route};
use weir_netlink::{Error, Result};

/// The names of the programs.
pub(super) type Names = BTreeMap<NodeRole, String>;

/// The observed state of one namespace and its pins.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Names by index.
    pub(super) links: BTreeMap<u32, String>,
    /// Links where [`LOOSE`] passes every packet: those with an IPv4 address, and ports of bridges, where no source is looked up.
    pub(super) may_be_loose: BTreeSet<u32>,
    pub(super) held: BTreeMap<Hook, Held>,
    /// The tags of weir's programs, for names that occur in `held`.
    pub(super) tags: BTreeMap<NodeRole, Tag>,
    /// The ids of the node's pinned maps, which its programs and those of the proxy use.
    pub(super) maps: BTreeSet<u32>,
    pub(super) contents: Contents,
    /// The current values of the sysctls that may have to change.
    pub(super) sysctls: BTreeMap<String, u32>,
    /// True if `lo` has IPv6, so that there may be routes over it.
    pub(super) has_ipv6_on_lo: bool,
    pub(super) routes: Vec<Route>,
    pub(super) rules: Vec<PolicyRule>,
    pub(super) has_other_layout: bool,
    /// Pinned maps that no program uses any longer.
    pub(super) obsolete: Vec<&'static str>,
}

impl Observed {
    fn index(&self, name: &str) -> Result<u32> {
        let mut all = self.links.iter();
        let found = all
            .find(|(_, there)| *there == name)
            .map(|(index, _)| *index);
        found.ok_or_else(|| {
            let object = format!("interface {name}");
            Error::refused("redirect by eBPF", object, "it is gone; try again")
        })
    }

    pub(super) fn name(&self, index: u32) -> String {
        let name = self.links.get(&index).cloned();
        name.unwrap_or_else(|| format!("interface {index}, which is gone"))
    }

    /// Returns the change of each hook, in the order of `wanted`, and the changes of hooks that are not in it.
    fn hooks(&self, wanted: Vec<Attachment>) -> (Vec<Change>, Vec<Change>) {
        let is_wanted = |hook: &Hook| wanted.iter().any(|a| a.hook == *hook);
        let gone = self.held.iter().filter(|(hook, _)| !is_wanted(hook));
        let gone = gone.map(|(hook, held)| self.detach(*hook, held)).collect();
        let is_current = |held: &Held, a: &Attachment| {
            held.program == a.program
                && self.tags.get(&a.role) == Some(&held.tag)
                && held.maps.iter().all(|id| self.maps.contains(id))
        };
        let change = |a: Attachment| match self.held.get(&a.hook) {
            Some(held) if held.is_attached && held.behind.is_some() => {
                held.behind.clone().map(|other| Change::MoveFirst(a, other))
            }
            Some(held) if held.is_attached && is_current(held, &a) => None,
            Some(held) if held.is_attached => Some(Change::Replace(a)),
            _ => Some(Change::Attach(a)),
        };
        (wanted.into_iter().filter_map(change).collect(), gone)
    }

    /// The last change: until then both versions capture.
    fn other_layout(&self) -> Option<Change> {
        self.has_other_layout.then_some(Change::RemoveOtherLayout)
    }

    pub(super) fn detach(&self, hook: Hook, held: &Held) -> Change {
        Change::Detach(self.name(hook.0), Detached(hook), held.program.clone())
    }
}

/// Returns the changes of the proxy's namespace, in the order in which they are applied. Pure.
pub(super) fn plan_proxy(
    proxy: &Proxy,
    has_ipv6: bool,
    names: &Names,
    observed: &Observed,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for key in switched_off(&proxy.interface) {
        if observed.sysctls.get(&key).is_some_and(|value| *value != 0) {
            changes.push(Change::Sysctl(key, 0));
        }
    }
    let wanted = routing(has_ipv6);
    // A proxy with an address of IPv6 needs the route, and this must fail if that is not possible.
    let has_ipv6 = observed.has_ipv6_on_lo || proxy.addresses.iter().any(IpAddr::is_ipv6);
    let is_possible = |route: &Route| route.family() == AddressFamily::V4 || has_ipv6;
    // Routes before rules, so that no packet is looked up in an empty table.
    for (route, _) in &wanted {
        if is_possible(route) && !observed.routes.iter().any(|r| r.same_effect(route)) {
            changes.push(Change::AddRoute(route.clone()));
        }
    }
    for (_, rule) in &wanted {
        if !observed.rules.iter().any(|r| r.same_effect(rule)) {
            changes.push(Change::AddRule(rule.clone()));
        }
    }
    let hooks = attachments(
        observed,
        names,
        [(
            proxy.interface.as_str(),
            Direction::Ingress,
            NodeRole::Proxy,
        )],
    )?;
    let (new, gone) = observed.hooks(hooks);
    changes.extend(new.into_iter().chain(gone));
    changes.extend(observed.other_layout());
    Ok(changes)
}

fn attachments<'a>(
    observed: &Observed,
    names: &Names,
    wanted: impl IntoIterator<Item = (&'a str, Direction, NodeRole)>,
) -> Result<Vec<Attachment>> {
    let attachment = |(interface, direction, role): (&str, Direction, NodeRole)| {
        Ok(Attachment {
            interface: interface.to_owned(),
            hook: (observed.index(interface)?, direction),
            role,
            program: names.get(&role).cloned().unwrap_or_default(),
        })
    };
    wanted.into_iter().map(attachment).collect()
}

/// Returns the changes of `rp_filter` that pass packets of the proxy with foreign source addresses. The kernel uses the larger value
/// of `all` and of the link.
fn unfiltered(observed: &Observed, device: &str) -> Result<Vec<Change>> {
    let of = |key: &str| observed.sysctls.get(key).copied().unwrap_or(0);
    let (key, all) = (rp_filter(device), rp_filter("all"));
    let of_all = of(&all);
    if observed.may_be_loose.contains(&observed.index(device)?) {
        let is_strict = of(&key).max(of_all) == 1;
        return Ok(is_strict
            .then_some(Change::Sysctl(key, LOOSE))
            .into_iter()
            .collect());
    }
    let mut changes = Vec::new();
    if of_all > 0 {
        // The other links come first, so that each stays as strict as before at any time.
        let names = observed.links.values().map(String::as_str);
        let others = names.chain(["default"]).filter(|name| *name != device);
        let weaker = others.map(rp_filter).filter(|key| of(key) < of_all);
        changes.extend(weaker.map(|key| Change::Sysctl(key, of_all)));
        changes.push(Change::Sysctl(all, 0));
    }
    if of(&key) > 0 {
        changes.push(Change::Sysctl(key, 0));
    }
    Ok(changes)
}

/// Returns the changes of the addresses of the node and of its proxies.
fn addresses(wanted: &Wanted, there: &Contents) -> Vec<Change> {
    let is_known =
        |address: &IpAddr| wanted.addresses.contains(address) || wanted.proxies.contains(address);
    let old = there.node.keys().filter(|address| !is_known(address));
    let is = |address: &IpAddr, of: u32| there.node.get(address) == Some(&of);
    let of_node = wanted.addresses.iter().filter(|a| !is(a, OF_NODE));
    let of_proxies = wanted.proxies.difference(&wanted.addresses);
    let of_proxies = of_proxies.filter(|a| !is(a, OF_PROXY));
    (old.copied().map(Change::NoAddress))
        .chain(of_node.copied().map(Change::Address))
        .chain(of_proxies.copied().map(Change::ProxyAddress))
        .collect()
}

/// Returns the links of former proxies. The link of a proxy that was never active has no program.
fn former<'a>(wanted: &'a Wanted, observed: &Observed) -> Vec<&'a str> {
    let was_active = |name: &str| {
        let index = observed.index(name);
        index.is_ok_and(|index| observed.held.contains_key(&(index, Direction::Ingress)))
    };
    let proxy = wanted.proxy.as_ref();
    let is_active = |name: &str| proxy.is_some_and(|proxy| proxy.device == name);
    let others = wanted.others.iter().map(String::as_str);
    others
        .filter(|name| !is_active(name) && was_active(name))
        .collect()
}

/// Returns the programs in the node's namespace: at the links of proxies, then at those of pods.
fn of_host(
    wanted: &Wanted,
    former: &[&str],
    names: &Names,
    observed: &Observed,
) -> Result<Vec<Attachment>> {
    let active = wanted.proxy.iter().map(|proxy| proxy.device.as_str());
    let proxies = active.chain(former.iter().copied());
    let of_proxies = proxies.map(|name| (name, Direction::Ingress, NodeRole::FromProxy));
    let devices: BTreeSet<&str> = wanted.pods.values().map(String::as_str).collect();
    let of_pods = devices.into_iter().flat_map(|device| {
        [
            (device, Direction::Egress, NodeRole::ToPod),
            (device, Direction::Ingress, NodeRole::FromPod),
        ]
    });
    attachments(observed, names, of_proxies.chain(of_pods))
}

/// Returns the change of the proxy that new connections go to.
fn active(wanted: &Wanted, observed: &Observed) -> Result<Option<Change>> {
    let there = observed.contents.proxy;
    let Some(proxy) = &wanted.proxy else {
        return Ok((there != 0).then_some(Change::NoProxy));
    };
    let index = observed.index(&proxy.device)?;
    Ok((there != index).then(|| Change::Proxy(proxy.device.clone(), index)))
}

/// Returns the changes of the node's namespace, in the order in which they are applied. Pure.
///
/// # Errors
/// A link is gone.
pub(super) fn plan_host(
    wanted: &Wanted,
    names: &Names,
    observed: &Observed,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    let there = &observed.contents;
    let proxy = wanted.proxy.as_ref();
    if let Some(proxy) = proxy {
        changes.extend(unfiltered(observed, &proxy.device)?);
    }
    changes.extend(addresses(wanted, there));
    let mut pods = Addresses::new();
    for (address, device) in &wanted.pods {
        pods.insert(*address, observed.index(device)?);
    }
    let former = former(wanted, observed);
    let (new, gone) = observed.hooks(of_host(wanted, &former, names, observed)?);
    // Old pods come first, so that a full map has space for new ones. Their hooks come before that: a program drops packets of a pod
    // without an entry.
    let old = there.pods.iter();
    let old = old.filter(|(address, _)| !pods.contains_key(address));
    let left: BTreeSet<u32> = old.clone().map(|(_, index)| *index).collect();
    let is_left = |change: &Change| matches!(change, Change::Detach(_, Detached((index, _)), _) if left.contains(index));
    let (of_left, gone): (Vec<_>, Vec<_>) = gone.into_iter().partition(is_left);
    changes.extend(of_left);
    changes.extend(old.map(|(address, _)| Change::NoPod(*address)));
    for (address, device) in &wanted.pods {
        let index = pods.get(address).copied().unwrap_or(0);
        if there.pods.get(address) != Some(&index) {
            changes.push(Change::Pod(*address, device.clone(), index));
        }
    }
    let count = u32::try_from(former.len()).unwrap_or(u32::MAX);
    // Before new connections go to another proxy.
    if count > there.former {
        changes.push(Change::Former(count));
    }
    let is_of_proxy = |change: &Change| matches!(change, Change::Attach(a) | Change::Replace(a) | Change::MoveFirst(a, _) if a.role == NodeRole::FromProxy);
    let (of_proxy, of_pods): (Vec<_>, Vec<_>) = new.into_iter().partition(is_of_proxy);
    changes.extend(of_proxy);
    changes.extend(active(wanted, observed)?);
    let names = proxy.map(|proxy| proxy.addresses.clone());
    let names = names.unwrap_or_default();
    // Programs without DNS capture do not read this map.
    if wanted.dns && there.names != names {
        changes.push(Change::Names(names));
    }
    if count < there.former {
        changes.push(Change::Former(count));
    }
    changes.extend(exclusions::plan(wanted, there));
    changes.extend(of_pods);
    changes.extend(gone);
    // At this point no program uses these maps.
    changes.extend(observed.obsolete.iter().map(|name| Change::Unpin(name)));
    changes.extend(observed.other_layout());
    Ok(changes)
}
