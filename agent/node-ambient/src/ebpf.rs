//! The same redirection by eBPF programs at the links of pods and of the proxy, without tunnels, rules and routes in the
//! node's namespace: see [`weir_ebpf::node`].
//!
//! Carrier, marks and routing of a [`Config`] are not used here.

use crate::before::{Before, Ends};
use crate::collide::Collision;
use crate::config::{Config, Numbers, Pod};
use crate::discover::{By, devices_of, devices_of_others, discover};
use crate::exclude::Exclude;
use crate::node::Node;
use crate::objects::{PROXY_PRIORITIES, TPROXY_MARK};
use crate::proxied::{self, Redirected};
use crate::remove::remove_locked;
use crate::services::services;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use weir_ebpf::node::{Changes, Exclusions, Node as Programs, Proxy, Wanted};
use weir_ebpf::{Bpffs, Lock, netns_if_there};
use weir_netlink::route::{Link, Routing};
use weir_netlink::{InForce, Netns, Result};

/// The steps of a change of the node, planned or done.
#[derive(Clone, Debug)]
pub struct Change {
    /// The node that the steps were computed from.
    pub node: Node,
    /// Changes of programs, maps and sysctls in both namespaces.
    pub steps: Changes,
    /// True if rules and routes capture now: [`apply`] removes them.
    pub replaces: bool,
    /// Foreign objects in the proxy's namespace that take redirected packets.
    pub collisions: Vec<Collision>,
}

impl Change {
    /// True if the node is in sync.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && !self.replaces
    }
}

/// Compares a node with the configuration. Changes nothing.
///
/// # Errors
/// An object was not found, cannot be read, or cannot be captured by programs.
pub fn compare(config: &Config, host: &Netns, bpffs: &Bpffs) -> Result<Change> {
    let (node, wanted) = host.run(|| desired(config, host, bpffs))??;
    let programs = Programs::of(host, bpffs);
    let steps = match node.is_capturing() {
        true => programs.compare(&wanted)?,
        false => {
            let (proxies, opened) = namespaces(Some(config));
            opened?;
            programs.plan_removal(&proxies)?
        }
    };
    let replaces = has_rules(host, config)?;
    let collisions = collisions(&node)?;
    Ok(Change {
        node,
        steps,
        replaces,
        collisions,
    })
}

/// Returns collisions in the proxy's namespace. The programs always use the default table and this mark.
fn collisions(node: &Node) -> Result<Vec<Collision>> {
    let redirected = Redirected {
        table: Numbers::default().inbound_table,
        marks: &[(TPROXY_MARK, PROXY_PRIORITIES[0])],
    };
    proxied::collisions(node, redirected)
}

/// Applies the configuration to the node. If rules and routing capture now, the programs are attached before the rules are
/// removed. Existing connections of the proxy continue.
///
/// # Errors
/// Another writer holds the lock; or the step that failed, and programs that this call attached are detached again, except after a
/// failure to remove rules that they replace ([`InForce::Unknown`]).
pub fn apply(config: &Config, host: &Netns, bpffs: &Bpffs) -> Result<Change> {
    let _lock = Lock::of_netns(host)?;
    let (node, wanted) = host.run(|| desired(config, host, bpffs))??;
    let programs = Programs::of(host, bpffs);
    let replaces = has_rules(host, config)?;
    if !node.is_capturing() {
        let host_steps = detach(host, bpffs, Some(config))?;
        remove_locked(host, Some(config))?;
        let steps = Changes {
            host: host_steps,
            ..Changes::default()
        };
        return Ok(Change {
            node,
            steps,
            replaces,
            collisions: Vec::new(),
        });
    }
    let steps = programs.apply(&wanted)?;
    if replaces {
        let removed = remove_locked(host, Some(config));
        // The removal also deleted addresses of tunnels, and a route and a policy rule in the proxy's namespace that the programs need.
        let again = || {
            let (_, wanted) = host.run(|| desired(config, host, bpffs))??;
            programs.apply(&wanted)
        };
        let again = again();
        let done = removed.and(again);
        done.map_err(|e| e.with_in_force(InForce::Unknown))?;
    }
    let collisions = collisions(&node)?;
    Ok(Change {
        node,
        steps,
        replaces,
        collisions,
    })
}

/// True if the redirection by rules is present in the node's namespace, or its netfilter rules in that of a proxy. Routes and
/// policy rules in the proxy's namespace do not count: both mechanisms use them.
pub(crate) fn has_rules(host: &Netns, config: &Config) -> Result<bool> {
    if crate::apply::is_present(host)? {
        return Ok(true);
    }
    let (proxies, opened) = namespaces(Some(config));
    for netns in proxies {
        if netns.run(crate::rules::present)??.is_some() {
            return Ok(true);
        }
    }
    opened.map(|()| false)
}

/// Opens the namespaces of the configured proxies, without those that are gone with everything in them. Also returns the first error
/// of another kind: then it is unknown what is in that namespace.
fn namespaces(config: Option<&Config>) -> (Vec<Netns>, Result<()>) {
    let (mut all, mut opened) = (Vec::new(), Ok(()));
    for proxy in config.into_iter().flat_map(|config| &config.proxies) {
        match netns_if_there(&proxy.netns) {
            Ok(netns) => all.extend(netns),
            Err(e) => opened = opened.and(Err(e)),
        }
    }
    (all, opened)
}

/// Detaches the programs from the node and from the configured proxies.
///
/// # Errors
/// Another writer holds the lock, and nothing was attempted; or the first failure, and the rest was attempted.
pub fn remove(
    host: &Netns,
    bpffs: &Bpffs,
    config: Option<&Config>,
) -> Result<Vec<weir_ebpf::node::Change>> {
    let _lock = Lock::of_netns(host)?;
    detach(host, bpffs, config)
}

fn detach(
    host: &Netns,
    bpffs: &Bpffs,
    config: Option<&Config>,
) -> Result<Vec<weir_ebpf::node::Change>> {
    let (proxies, opened) = namespaces(config);
    let removed = Programs::of(host, bpffs).remove(&proxies)?;
    opened.map(|()| removed)
}

/// Like [`remove`], with the pins in this directory, and returns the changes as text; `None`: nothing is pinned for the node or a
/// configured proxy.
///
/// # Errors
/// Those of [`Bpffs::if_mounted`] and [`remove`].
pub fn remove_pinned(
    host: &Netns,
    root: &Path,
    config: Option<&Config>,
) -> Result<Option<Vec<String>>> {
    pinned(remove, host, root, config)
}

/// Like [`remove_pinned`], for a caller that holds the lock.
pub(crate) fn detach_pinned(
    host: &Netns,
    root: &Path,
    config: Option<&Config>,
) -> Result<Option<Vec<String>>> {
    pinned(detach, host, root, config)
}

/// Takes what is pinned in this directory away, by one of the two ways above; `None`: nothing is pinned.
fn pinned(
    by: fn(&Netns, &Bpffs, Option<&Config>) -> Result<Vec<weir_ebpf::node::Change>>,
    host: &Netns,
    root: &Path,
    config: Option<&Config>,
) -> Result<Option<Vec<String>>> {
    let proxies = config.into_iter().flat_map(|c| &c.proxies);
    let proxies = proxies.map(|proxy| proxy.netns.as_path());
    let Some(bpffs) = Bpffs::if_mounted(root)? else {
        return Ok(None);
    };
    if !Programs::of(host, &bpffs).is_present(proxies)? {
        return Ok(None);
    }
    let changes = by(host, &bpffs, config)?;
    Ok(Some(changes.iter().map(ToString::to_string).collect()))
}

/// True if programs are pinned in this directory for the node or a configured proxy: beside rules, they capture, too.
///
/// # Errors
/// The pins cannot be read, or a proxy's namespace cannot be opened.
pub fn is_pinned(host: &Netns, root: &Path, config: &Config) -> Result<bool> {
    let Some(bpffs) = Bpffs::if_mounted(root)? else {
        return Ok(false);
    };
    let (proxies, opened) = namespaces(Some(config));
    for netns in std::iter::once(host).chain(&proxies) {
        if Programs::of(netns, &bpffs).is_in_use()? {
            return Ok(true);
        }
    }
    opened.map(|()| false)
}

/// Returns the values of the node's sysctls from before the programs pinned in this directory changed them, for
/// [`Config::sysctls`]: rules that replace the programs find the changed values.
///
/// # Errors
/// The stored values cannot be read.
pub fn sysctls_before(host: &Netns, root: &Path) -> Result<BTreeMap<String, String>> {
    let Some(bpffs) = Bpffs::if_mounted(root)? else {
        return Ok(BTreeMap::new());
    };
    let before = Programs::of(host, &bpffs).sysctls_before()?.into_iter();
    Ok(before
        .map(|(key, value)| (key, value.to_string()))
        .collect())
}

/// Computes the desired state. Runs in the node's namespace.
fn desired(config: &Config, host: &Netns, bpffs: &Bpffs) -> Result<(Node, Wanted)> {
    let before =
        |routing: &Routing, links: &[Link]| Before::by_programs((host, bpffs), routing, links);
    let (mut node, ends) = discover(config, By::Programs, &before)?;
    let routing = Routing::open()?;
    // Addresses are read before links, so that the link of every address is known.
    let held = routing.addresses()?;
    let links = routing.links()?;
    let (mut pods, mut left_out) = (BTreeMap::new(), BTreeMap::new());
    for pod in &node.config.pods {
        match devices_by_address(&node, &routing, &links, (pod, &ends)) {
            Ok(found) => pods.extend(found),
            Err(e) if config.leave_out => _ = left_out.insert(pod.uid.clone(), e.to_string()),
            Err(e) => return Err(e),
        }
    }
    node.config
        .pods
        .retain(|pod| !left_out.contains_key(&pod.uid));
    node.left_out.extend(left_out);
    // Packets to the address of a service go to the proxy, as without IPVS.
    let services = services(&links, &held);
    let is_service = |a: &IpAddr| services.iter().any(|s| s.addresses.contains(a));
    let own = held.into_iter().map(|a| a.net.addr());
    let own = own.filter(|a| !is_service(a) && (a.is_ipv4() || node.has_ipv6));
    let proxy = node.active.as_ref().map(|active| Proxy {
        netns: active.proxy.netns.clone(),
        interface: active.interface.clone(),
        device: active.device.clone(),
        addresses: [false, true]
            .into_iter()
            .filter_map(|v6| active.proxy.addresses.iter().find(|a| a.is_ipv6() == v6))
            .copied()
            .collect(),
    });
    let of_proxies = config.proxies.iter().flat_map(|proxy| &proxy.addresses);
    let of_proxies = of_proxies.filter(|a| a.is_ipv4() || node.has_ipv6).copied();
    let wanted = Wanted {
        pods,
        addresses: own.chain(config.host_addresses.iter().copied()).collect(),
        proxies: of_proxies.collect(),
        proxy,
        others: devices_of_others(&routing, &links, &node.config)?,
        has_ipv6: node.has_ipv6,
        dns: config.dns_capture,
        exclude: exclusions(&config.exclude),
        exclude_of: of_pods(&node).collect(),
    };
    Ok((node, wanted))
}

fn exclusions(exclude: &Exclude) -> Exclusions {
    Exclusions {
        peers: exclude.networks(),
        outbound_ports: exclude.outbound_ports.clone(),
        inbound_ports: exclude.inbound_ports.clone(),
    }
}

/// Returns the exclusions of single pods, by their addresses.
fn of_pods(node: &Node) -> impl Iterator<Item = (IpAddr, Exclusions)> {
    let all = node
        .config
        .pods
        .iter()
        .filter(|pod| !pod.exclude.is_empty());
    all.flat_map(|pod| pod.addresses.iter().map(|a| (*a, exclusions(&pod.exclude))))
}

/// Returns each address of a pod with the host end of the link that has it.
fn devices_by_address(
    node: &Node,
    routing: &Routing,
    links: &[Link],
    (pod, ends): (&Pod, &Ends),
) -> Result<Vec<(IpAddr, String)>> {
    if let Some([device]) = node.devices.get(&pod.uid).map(Vec::as_slice) {
        let all = pod.addresses.iter();
        return Ok(all.map(|address| (*address, device.clone())).collect());
    }
    let mut found = Vec::new();
    for address in &pod.addresses {
        if let Some(device) = ends.get(address) {
            found.push((*address, device.clone()));
            continue;
        }
        let alone = Pod {
            addresses: vec![*address],
            ..pod.clone()
        };
        let devices = devices_of(routing, links, &alone)?;
        found.extend(devices.into_iter().next().map(|device| (*address, device)));
    }
    Ok(found)
}
