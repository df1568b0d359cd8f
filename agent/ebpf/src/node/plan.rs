//! What the node and its proxy should have, what they have, and the difference.

use super::exclude::{Exclusions, Side};
use super::maps::{Addresses, Contents, Excluded};
use super::programs::{NodeRole, NodeTraits, TPROXY_MARK};
use crate::hook::{Detached, Direction, Held, Hook};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use weir_cni::redirection::RTPROT_WEIR;
use weir_netlink::route::{
    AddressFamily, LOOPBACK_IFINDEX, PolicyRule, Route, RouteProtocol, Routing,
};
use weir_netlink::{Error, Result};

const WEIR: RouteProtocol = RouteProtocol::Other(RTPROT_WEIR);
/// Of the proxy's namespace: the table with the local route, and the priority of its rule.
const TABLE: u32 = 100;
const PRIORITY: u32 = 20_000;
/// Bits of marks that the rule compares.
const MASK: u32 = 0xfff;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Host ends of the links of enrolled pods, by address.
    pub pods: BTreeMap<IpAddr, String>,
    /// Every address of the node.
    pub addresses: BTreeSet<IpAddr>,
    /// The active proxy; without one TCP of enrolled pods is dropped.
    pub proxy: Option<Proxy>,
    /// Host ends of the links of other proxies of the node: those that were active before keep their connections.
    pub others: BTreeSet<String>,
    /// The kernel has IPv6.
    pub has_ipv6: bool,
    /// DNS over UDP of enrolled pods goes to port 15053 of the proxy.
    pub dns: bool,
    /// What is not captured.
    pub exclude: Exclusions,
}

impl Wanted {
    pub(super) fn traits(&self, events: bool) -> NodeTraits {
        NodeTraits {
            dual: self.has_ipv6,
            dns: self.dns,
            exclude: !self.exclude.is_empty(),
            events,
        }
    }
}

/// Where the proxy is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxy {
    /// Its namespace.
    pub netns: PathBuf,
    /// Its own end of the link.
    pub interface: String,
    /// The host's end.
    pub device: String,
    /// Where it is asked for names: at most one of each family.
    pub addresses: BTreeSet<IpAddr>,
}

/// One change of the node's or of the proxy's namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A sysctl below `net/` is set.
    Sysctl(String, u32),
    /// A route is added.
    AddRoute(Route),
    /// A policy rule is added.
    AddRule(PolicyRule),
    /// A route of weir is deleted.
    DeleteRoute(Route),
    /// A policy rule of weir is deleted.
    DeleteRule(PolicyRule),
    /// An address of an enrolled pod, with the host end of its link, or its index where that is gone.
    Pod(IpAddr, String, u32),
    /// An address that is no enrolled pod's any more.
    NoPod(IpAddr),
    /// An address of the node.
    Address(IpAddr),
    /// An address that the node does not have any more.
    NoAddress(IpAddr),
    /// The active proxy is behind this link.
    Proxy(String, u32),
    /// No proxy is ready.
    NoProxy,
    /// So many proxies that were active before keep their connections.
    Former(u32),
    /// Names are asked for at these addresses; with none, queries pass.
    Names(BTreeSet<IpAddr>),
    /// Peers or a port are excluded (1), or peers of a longer prefix captured (0).
    Exclude(Excluded, u32),
    /// They are not excluded any more.
    NoExclude(Excluded),
    /// A program is attached.
    Attach(Attachment),
    /// The program of a link is replaced, in one step.
    Replace(Attachment),
    /// A program of weir is detached: interface, and its name.
    Detach(String, Detached, String),
    /// What a version of weir with another layout of its pins left behind is removed.
    RemoveOtherLayout,
}

/// A program and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    pub(super) interface: String,
    pub(super) hook: Hook,
    pub(super) role: NodeRole,
    pub(super) program: String,
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (program, direction) = (&self.program, self.hook.1);
        let words = self.role.words();
        write!(
            f,
            "{program} at {direction} of {}: it {words}",
            self.interface
        )
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |table: u32| table.to_string();
        match self {
            Self::Sysctl(key, value) => write!(f, "set net.{}={value}", key.replace('/', ".")),
            Self::AddRoute(r) => write!(f, "add route {r}"),
            Self::AddRule(r) => write!(f, "add rule {} {}", r.family, r.words(number)),
            Self::DeleteRoute(r) => write!(f, "delete route {r}"),
            Self::DeleteRule(r) => write!(f, "delete rule {} {}", r.family, r.words(number)),
            Self::Pod(address, device, _) => write!(f, "enrol address {address} at {device}"),
            Self::NoPod(address) => write!(f, "release address {address}"),
            Self::Address(address) => write!(f, "except address {address} of the node"),
            Self::NoAddress(address) => {
                write!(
                    f,
                    "except address {address} no longer: the node does not have it"
                )
            }
            Self::Proxy(device, _) => write!(f, "send to the proxy at {device}"),
            Self::NoProxy => f.write_str("drop TCP of enrolled pods: no proxy is ready"),
            Self::Former(0) => f.write_str("send everything to the active proxy"),
            Self::Former(count) => {
                write!(
                    f,
                    "leave open connections to {count} proxies that were active before"
                )
            }
            Self::Names(addresses) if addresses.is_empty() => {
                f.write_str("let DNS of enrolled pods pass")
            }
            Self::Names(addresses) => {
                let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                write!(f, "send DNS of enrolled pods to {}", all.join(" and "))
            }
            Self::Exclude(what, 0) => write!(f, "capture {what} of a longer prefix"),
            Self::Exclude(what, _) => write!(f, "exclude {what}"),
            Self::NoExclude(what) => write!(f, "exclude {what} no longer"),
            Self::Attach(a) => write!(f, "attach {a}"),
            Self::Replace(a) => write!(f, "replace by {a}"),
            Self::Detach(interface, Detached((_, direction)), program) => {
                write!(f, "detach {program} at {direction} of {interface}")
            }
            Self::RemoveOtherLayout => f.write_str("remove pins of another version of weir"),
        }
    }
}

/// The names of the programs.
pub(super) type Names = BTreeMap<NodeRole, String>;

/// What was read from one namespace and from its pins.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// Names by index.
    pub(super) links: BTreeMap<u32, String>,
    pub(super) held: BTreeMap<Hook, Held>,
    /// The ids of the node's pinned maps, which its programs and those of the proxy use.
    pub(super) maps: BTreeSet<u32>,
    pub(super) contents: Contents,
    /// Those of [`Wanted`] that are not as they should be, and of what was changed before.
    pub(super) sysctls: BTreeMap<String, u32>,
    pub(super) routes: Vec<Route>,
    pub(super) rules: Vec<PolicyRule>,
    pub(super) has_other_layout: bool,
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

    /// The change of each hook, in the order of the list, and the hooks that are not in it.
    fn hooks(&self, wanted: Vec<Attachment>) -> (Vec<Change>, Vec<Change>) {
        let is_wanted = |hook: &Hook| wanted.iter().any(|a| a.hook == *hook);
        let gone = self.held.iter().filter(|(hook, _)| !is_wanted(hook));
        let gone = gone.map(|(hook, held)| self.detach(*hook, held)).collect();
        let is_current = |held: &Held, a: &Attachment| {
            held.program == a.program && held.maps.iter().all(|id| self.maps.contains(id))
        };
        let change = |a: Attachment| match self.held.get(&a.hook) {
            Some(held) if held.is_attached && is_current(held, &a) => None,
            Some(held) if held.is_attached => Some(Change::Replace(a)),
            _ => Some(Change::Attach(a)),
        };
        (wanted.into_iter().filter_map(change).collect(), gone)
    }

    /// Last: until then both versions capture.
    fn other_layout(&self) -> Option<Change> {
        self.has_other_layout.then_some(Change::RemoveOtherLayout)
    }

    pub(super) fn detach(&self, hook: Hook, held: &Held) -> Change {
        Change::Detach(self.name(hook.0), Detached(hook), held.program.clone())
    }
}

/// `net.ipv4.conf.DEVICE.rp_filter`: with 1 the kernel drops what the proxy sends with addresses of pods.
pub(super) fn rp_filter(device: &str) -> String {
    format!("ipv4/conf/{device}/rp_filter")
}

/// What the kernel compares with instead of 0 and 1: the source has any route.
pub(super) const LOOSE: u32 = 2;

/// In the proxy's namespace nothing is forwarded: what is redirected is for ztunnel or dropped.
pub(super) fn forwarding(interface: &str) -> [String; 2] {
    [
        format!("ipv4/conf/{interface}/forwarding"),
        "ipv6/conf/all/forwarding".to_owned(),
    ]
}

/// The route and the policy rule of the proxy's namespace, by family.
pub(super) fn routing(has_ipv6: bool) -> Vec<(Route, PolicyRule)> {
    let families: &[AddressFamily] = match has_ipv6 {
        true => &[AddressFamily::V4, AddressFamily::V6],
        false => &[AddressFamily::V4],
    };
    let of = |family: &AddressFamily| {
        let route = Route::local_default(*family, LOOPBACK_IFINDEX, TABLE).by(WEIR);
        let rule = PolicyRule::mark(*family, TPROXY_MARK, TABLE);
        let rule = PolicyRule {
            fwmask: Some(MASK),
            ..rule.at(PRIORITY).by(WEIR)
        };
        (route, rule)
    };
    families.iter().map(of).collect()
}

/// The routes and rules of the table in the namespace of the socket.
pub(super) fn read_routing(routing: &Routing) -> Result<(Vec<Route>, Vec<PolicyRule>)> {
    Ok((routing.routes(TABLE)?, routing.rules()?))
}

/// The difference of the proxy's namespace, in the order in which it is applied. Pure.
pub(super) fn plan_proxy(
    proxy: &Proxy,
    has_ipv6: bool,
    names: &Names,
    observed: &Observed,
) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for key in forwarding(&proxy.interface) {
        if observed.sysctls.get(&key).is_some_and(|value| *value != 0) {
            changes.push(Change::Sysctl(key, 0));
        }
    }
    let wanted = routing(has_ipv6);
    // Routes before rules, so that no packet is looked up in an empty table.
    for (route, _) in &wanted {
        if !observed.routes.iter().any(|r| r.same_effect(route)) {
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

/// The difference of the node's namespace, in the order in which it is applied. Pure.
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
        let key = rp_filter(&proxy.device);
        let of = |key: &str| observed.sysctls.get(key).copied().unwrap_or(0);
        // The kernel uses the larger one.
        if of(&key).max(of(&rp_filter("all"))) == 1 {
            changes.push(Change::Sysctl(key, LOOSE));
        }
    }
    let is_old = |address: &&IpAddr| !wanted.addresses.contains(*address);
    let new = wanted.addresses.iter();
    let new = new.filter(|address| !there.node.contains_key(address));
    changes.extend(new.copied().map(Change::Address));
    let mut pods = Addresses::new();
    for (address, device) in &wanted.pods {
        let index = observed.index(device)?;
        pods.insert(*address, index);
        if there.pods.get(address) != Some(&index) {
            changes.push(Change::Pod(*address, device.clone(), index));
        }
    }
    let hooks = proxy.map(|proxy| {
        (
            proxy.device.as_str(),
            Direction::Ingress,
            NodeRole::FromProxy,
        )
    });
    // What was never active has no program there.
    let was_active = |name: &&String| {
        let index = observed.index(name);
        index.is_ok_and(|index| observed.held.contains_key(&(index, Direction::Ingress)))
    };
    let is_active = |name: &&String| proxy.is_some_and(|proxy| proxy.device == **name);
    let former = wanted.others.iter().filter(|name| !is_active(name));
    let former: Vec<&String> = former.filter(was_active).collect();
    let of_former = former
        .iter()
        .map(|name| (name.as_str(), Direction::Ingress, NodeRole::FromProxy));
    let devices: BTreeSet<&str> = wanted.pods.values().map(String::as_str).collect();
    let of_pods = devices.into_iter().flat_map(|device| {
        [
            (device, Direction::Egress, NodeRole::ToPod),
            (device, Direction::Ingress, NodeRole::FromPod),
        ]
    });
    let count = u32::try_from(former.len()).unwrap_or(u32::MAX);
    // Before new connections go to another one.
    if count > there.former {
        changes.push(Change::Former(count));
    }
    let hooks = hooks.into_iter().chain(of_former).chain(of_pods);
    let hooks = attachments(observed, names, hooks)?;
    let (new, gone) = observed.hooks(hooks);
    let is_of_proxy = |change: &Change| matches!(change, Change::Attach(a) | Change::Replace(a) if a.role == NodeRole::FromProxy);
    let (of_proxy, of_pods): (Vec<_>, Vec<_>) = new.into_iter().partition(is_of_proxy);
    changes.extend(of_proxy);
    match proxy {
        Some(proxy) => {
            let index = observed.index(&proxy.device)?;
            if there.proxy != index {
                changes.push(Change::Proxy(proxy.device.clone(), index));
            }
        }
        None if there.proxy != 0 => changes.push(Change::NoProxy),
        None => {}
    }
    let names = proxy.filter(|_| wanted.dns).map(|p| p.addresses.clone());
    let names = names.unwrap_or_default();
    if there.names != names {
        changes.push(Change::Names(names));
    }
    if count < there.former {
        changes.push(Change::Former(count));
    }
    changes.extend(exclusions(&wanted.exclude, there));
    changes.extend(of_pods);
    changes.extend(gone);
    let old = there
        .pods
        .keys()
        .filter(|address| !pods.contains_key(address));
    changes.extend(old.copied().map(Change::NoPod));
    let old = there.node.keys().filter(is_old);
    changes.extend(old.copied().map(Change::NoAddress));
    changes.extend(observed.other_layout());
    Ok(changes)
}

/// Programs without exclusions do not read these maps.
fn exclusions(wanted: &Exclusions, there: &Contents) -> Vec<Change> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let (peers, ports) = (wanted.networks(), wanted.ports());
    let new = peers.iter();
    let new = new.filter(|(net, is)| there.peers.get(*net) != Some(*is));
    let mut changes: Vec<Change> = new
        .map(|(net, is)| Change::Exclude(Excluded::Peer(*net), u32::from(*is)))
        .collect();
    let port = |(side, port): &(Side, u16)| Excluded::Port(*side, *port);
    let new = ports.difference(&there.ports).map(port);
    changes.extend(new.map(|what| Change::Exclude(what, 1)));
    let old = there.peers.keys().filter(|net| !peers.contains_key(*net));
    let old = old.map(|net| Excluded::Peer(*net));
    let old = old.chain(there.ports.difference(&ports).map(port));
    changes.extend(old.map(Change::NoExclude));
    changes
}
