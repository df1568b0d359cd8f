//! Discovery of the proxy and the pods: devices, namespaces, and the node's address towards the proxy.

use crate::before::{Before, Ends};
use crate::carrier::carrier;
use crate::config::{Config, Pod, Proxy};
use crate::exclude::fit;
use crate::node::{Bridge, Carrier, LocatedProxy, Node};
use crate::objects::WEIR;
use crate::source::Sources;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, UdpSocket};
use weir_ebpf::netns_if_there;
use weir_netlink::route::{Link, LinkKind, RT_TABLE_MAIN, Routing};
use weir_netlink::{Error, ErrorKind, Netns, Result};

/// Where container runtimes mount network namespaces.
const NETNS_DIR: &str = "/run/netns";
/// Maximum number of its files that are opened.
const MAX_NETNS: usize = 4096;

/// The mechanism that captures, on which the kinds of links that can be captured depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Rules and routes: packets have to arrive at an interface of the node.
    Rules,
    /// The same with rules of legacy tables, which do not see frames of a bridge.
    LegacyRules,
    /// eBPF programs at the links themselves.
    Programs,
}

/// Finds the node's end of all links in the network namespace of this thread. `before` reads what captures now: if pods may be left
/// out, of a pod whose link is not found what is captured stays so. Also returns the links of the addresses of such pods.
///
/// # Errors
/// An object was not found, or is of a kind that cannot be captured; the error names it.
pub(crate) fn discover(
    config: &Config,
    by: By,
    before: &dyn Fn(&Routing, &[Link]) -> Result<Before>,
) -> Result<(Node, Ends)> {
    let routing = Routing::open()?;
    let links = routing.links()?;
    let sources = Sources::read(&routing)?;
    let slots = slots(&routing, config)?;
    let mut bridges = BTreeMap::new();
    let mut active = None;
    if let Some(proxy) = config.active() {
        let found = find(&routing, &links, &sources, proxy)?;
        let object = format!("proxy {}", proxy.uid);
        bridges.extend(bridge_of(&links, &found.device, by, &object)?);
        active = Some(found);
    }
    // The previously active proxies that still exist, the newest first. While none is active, each slot keeps its proxy.
    let mut others: Vec<&Proxy> = config.proxies.iter().collect();
    others.retain(|p| active.as_ref().is_none_or(|active| active.proxy != **p));
    others.sort_by_key(|p| std::cmp::Reverse((p.created, p.uid.as_str())));
    let known = active
        .as_ref()
        .and_then(|active| slot_of(&slots, &links, &bridges, active));
    let slots_left = slots.len() - usize::from(active.is_some());
    let mut former: Vec<LocatedProxy> = Vec::new();
    for proxy in others {
        if former.len() == slots_left {
            break;
        }
        let Some(found) = find_if_there(&routing, &links, &sources, proxy)? else {
            continue;
        };
        let Ok(bridge) = bridge_of(&links, &found.device, by, &proxy.uid) else {
            continue;
        };
        bridges.extend(bridge);
        let is_held = |slot| known == Some(slot) || former.iter().any(|f| f.slot == slot);
        let slot = slot_of(&slots, &links, &bridges, &found);
        if let Some(slot) = slot.filter(|slot| !is_held(*slot)) {
            former.push(LocatedProxy { slot, ..found });
        }
    }
    if let Some(active) = &mut active {
        let other = usize::from(former.iter().any(|former| former.slot == 0));
        active.slot = known.unwrap_or(other);
    }
    let (mut devices, mut left_out) = (BTreeMap::new(), BTreeMap::new());
    let mut unfound = Vec::new();
    for pod in &config.pods {
        let known = config.devices.get(&pod.uid);
        let is_there = |name: &String| links.iter().any(|l| l.name == *name);
        let object = format!("pod {}", pod.uid);
        let found = match known.filter(|names| !names.is_empty() && names.iter().all(is_there)) {
            Some(names) => Ok(names.clone()),
            None if pod.addresses.is_empty() && config.ipv4_only => {
                let reason = "it has no address of IPv4, and IPv6 is not captured; for both set AMBIENT_IPV6=true";
                Err(Error::refused("capture", &object, reason))
            }
            None => match devices_of(&routing, &links, pod) {
                Err(e) if config.leave_out => {
                    unfound.push((pod, e));
                    continue;
                }
                found => found,
            },
        };
        let found = found.and_then(|names| Ok((bridges_of(&links, &names, by, &object)?, names)));
        match found {
            Ok((of_bridges, names)) => {
                bridges.extend(of_bridges);
                devices.insert(pod.uid.clone(), names);
            }
            Err(e) if config.leave_out => _ = left_out.insert(pod.uid.clone(), e.to_string()),
            Err(e) => return Err(e),
        }
    }
    let mut config = config.clone();
    let mut ends = Ends::new();
    if !unfound.is_empty() {
        let before = before(&routing, &links)?;
        let of_proxies = active.iter().chain(&former).map(|located| &located.device);
        let taken: BTreeSet<String> = devices
            .values()
            .flatten()
            .chain(of_proxies)
            .cloned()
            .collect();
        for (pod, e) in unfound {
            let (kept, names) = before.kept((&routing, &links), (pod, by), &taken);
            let object = format!("pod {}", pod.uid);
            match bridges_of(&links, &names, by, &object) {
                Ok(of_bridges) if !kept.is_empty() => {
                    bridges.extend(of_bridges);
                    devices.insert(pod.uid.clone(), names);
                    let its = config.pods.iter_mut().filter(|other| other.uid == pod.uid);
                    its.for_each(|pod| pod.addresses.retain(|a| kept.contains_key(a)));
                    ends.extend(kept.into_iter().filter_map(|(a, link)| Some((a, link?))));
                }
                not_kept => {
                    let why = not_kept.err().unwrap_or(e);
                    left_out.insert(pod.uid.clone(), why.to_string());
                }
            }
        }
    }
    config.pods.retain(|pod| !left_out.contains_key(&pod.uid));
    fit(&mut config.pods);
    let remote = active.as_ref().and_then(|p| {
        let addresses = &p.proxy.addresses;
        addresses
            .iter()
            .find(|a| a.is_ipv4())
            .or(addresses.first())
            .copied()
    });
    let has_ipv6 = !config.ipv4_only && weir_cni::redirection::has_ipv6();
    let node = Node {
        carrier: match by {
            By::Rules | By::LegacyRules => carrier(&config, &links, remote)?,
            // Programs need no carrier.
            By::Programs => Carrier::Veth,
        },
        sources: sources.of_pods(&config.pods),
        config,
        active,
        before: former,
        devices,
        bridges,
        left_out,
        has_ipv6,
    };
    Ok((node, ends))
}

/// Returns the host ends of the links of inactive proxies, without those that are gone.
///
/// # Errors
/// Whether one is gone is unknown.
pub(crate) fn devices_of_others(
    routing: &Routing,
    links: &[Link],
    config: &Config,
) -> Result<BTreeSet<String>> {
    let active = config.active();
    let others = config.proxies.iter().filter(|p| active != Some(*p));
    let sources = Sources::read(routing)?;
    let found = others.map(|proxy| find_if_there(routing, links, &sources, proxy));
    let found = found.filter_map(Result::transpose);
    found.map(|located| Ok(located?.device)).collect()
}

/// Finds the links and addresses of an inactive proxy. `None`: its namespace, its link or the route to it is gone, and its connections with it.
///
/// # Errors
/// Whether it is gone is unknown: its connections would be lost if it were not.
fn find_if_there(
    routing: &Routing,
    links: &[Link],
    sources: &Sources,
    proxy: &Proxy,
) -> Result<Option<LocatedProxy>> {
    let Some(netns) = netns_if_there(&proxy.netns)? else {
        return Ok(None);
    };
    match find_in(routing, links, sources, proxy, &netns) {
        Err(e) if is_gone(&e) => Ok(None),
        found => found.map(Some),
    }
}

/// True if the kernel has told that a link, an address or a route is not there.
fn is_gone(error: &Error) -> bool {
    let errno = error.errno().map(std::io::Error::from_raw_os_error);
    let is_unreachable = errno.is_some_and(|e| {
        use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable};
        [NetworkUnreachable, HostUnreachable].contains(&e.kind())
    });
    matches!(error.kind, ErrorKind::Refused(_)) || error.is_not_found() || is_unreachable
}

/// Finds the links and addresses of a proxy, without its slot.
fn find(
    routing: &Routing,
    links: &[Link],
    sources: &Sources,
    proxy: &Proxy,
) -> Result<LocatedProxy> {
    find_in(routing, links, sources, proxy, &Netns::open(&proxy.netns)?)
}

fn find_in(
    routing: &Routing,
    links: &[Link],
    sources: &Sources,
    proxy: &Proxy,
    netns: &Netns,
) -> Result<LocatedProxy> {
    let Some(address) = proxy.addresses.first() else {
        let reason = "it has no address that is captured; give its addresses, and for IPv6 AMBIENT_IPV6=true";
        let object = format!("proxy {}", proxy.uid);
        return Err(Error::refused("find", object, reason));
    };
    let object = format!("proxy {} with address {address}", proxy.uid);
    let (device, interface) = by_peer(routing, links, netns, *address, &object)?;
    let v4 = proxy.addresses.iter().find(|a| a.is_ipv4());
    Ok(LocatedProxy {
        proxy: proxy.clone(),
        device,
        interface,
        host: source_towards(sources, *v4.unwrap_or(address))?,
        slot: 0,
    })
}

/// The interfaces by which replies are routed to proxies now, each with the proxy's address, by slot.
type Slots = [Vec<(u32, IpAddr)>; 2];

fn slots(routing: &Routing, config: &Config) -> Result<Slots> {
    let routes = routing.routes_by(WEIR)?;
    Ok(config.routing.proxy_tables().map(|table| {
        let all = routes.iter().filter(|r| r.table == table && r.onlink);
        all.filter_map(|r| Some((r.oif?, r.gateway?))).collect()
    }))
}

/// Returns the current slot of a proxy. A bridge can lead to more than one proxy: there the address decides.
fn slot_of(
    slots: &Slots,
    links: &[Link],
    bridges: &BTreeMap<String, Bridge>,
    located: &LocatedProxy,
) -> Option<usize> {
    let bridge = bridges.get(&located.device);
    let name = bridge.map_or(&located.device, |bridge| &bridge.name);
    let index = links.iter().find(|l| l.name == *name)?.index;
    let is_its = |(of, gateway): &(u32, IpAddr)| {
        *of == index && (bridge.is_none() || located.proxy.addresses.contains(gateway))
    };
    slots.iter().position(|slot| slot.iter().any(is_its))
}

/// Returns the bridge that has the link as a port. Rules do not see packets that Open vSwitch forwards.
fn bridge_of(
    links: &[Link],
    device: &str,
    by: By,
    object: &str,
) -> Result<Option<(String, Bridge)>> {
    let link = links.iter().find(|l| l.name == device);
    let master = link.and_then(|link| links.iter().find(|l| Some(l.index) == link.master));
    let Some(master) = master.filter(|_| by != By::Programs) else {
        return Ok(None);
    };
    let name = master.name.clone();
    match (master.kind.as_ref().map(LinkKind::word), master.mac) {
        (Some("bridge"), _) if by == By::LegacyRules => {
            let reason = format!(
                "its link {device} is a port of bridge {name}, whose frames legacy tables do not see; use a kernel with nf_tables for bridges (CONFIG_NF_TABLES_BRIDGE), or capture by eBPF or inside the pods"
            );
            Err(Error::refused("capture", object, reason))
        }
        (Some("bridge"), Some(mac)) => Ok(Some((device.to_owned(), Bridge { name, mac }))),
        (Some("openvswitch"), _) => {
            let reason = format!(
                "its link {device} is a port of Open vSwitch ({name}), whose packets do not pass the node's netfilter; capture by eBPF or inside the pods"
            );
            Err(Error::refused("capture", object, reason))
        }
        _ => Ok(None),
    }
}

/// Returns the bridges of those of these links that are ports of one.
fn bridges_of(
    links: &[Link],
    names: &[String],
    by: By,
    object: &str,
) -> Result<Vec<(String, Bridge)>> {
    let of = |name: &String| bridge_of(links, name, by, object).transpose();
    names.iter().filter_map(of).collect()
}

/// Returns the host ends of a pod's links; a pod may have several links with an address each.
pub(crate) fn devices_of(routing: &Routing, links: &[Link], pod: &Pod) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for address in &pod.addresses {
        let found = device_of(routing, links, pod, *address);
        let name = found.map_err(|unfound| unfound.error)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Why the link of an address is not found.
pub(crate) struct Unfound {
    pub(crate) error: Error,
    /// There may be one that can be captured.
    pub(crate) is_unknown: bool,
}

/// Returns the host end of the link with an address of the pod.
pub(crate) fn device_of(
    routing: &Routing,
    links: &[Link],
    pod: &Pod,
    address: IpAddr,
) -> std::result::Result<String, Box<Unfound>> {
    let object = format!("pod {} with address {address}", pod.uid);
    let found = match &pod.netns {
        Some(path) => Netns::open(path)
            .and_then(|netns| by_peer(routing, links, &netns, address, &object))
            .map(|(host, _)| Some(host)),
        None => device(routing, links, address, &object),
    };
    match found {
        Ok(Some(name)) => Ok(name),
        Ok(None) => {
            let reason = format!(
                "no route to it alone is in the main table, and no namespace in {NETNS_DIR} has its address; give its netns"
            );
            Err(Box::new(Unfound {
                error: Error::refused("find the device of", object, reason),
                is_unknown: true,
            }))
        }
        Err(error) => Err(Box::new(Unfound {
            is_unknown: !is_gone(&error),
            error,
        })),
    }
}

/// Returns the host's end and the pod's end of the pair whose end in `netns` has the address.
fn by_peer(
    routing: &Routing,
    links: &[Link],
    netns: &Netns,
    address: IpAddr,
    object: &str,
) -> Result<(String, String)> {
    let inside = Routing::open_in(netns)?;
    let addresses = inside.addresses()?;
    let Some(found) = addresses.iter().find(|a| a.net.addr() == address) else {
        let reason = format!("{} does not have this address", netns.origin().display());
        return Err(Error::refused("find", object, reason));
    };
    let link = inside.link_by_index(found.index)?;
    check_kind(&link, object)?;
    let nsid = routing.nsid(netns)?;
    let is_other_end = |l: &&Link| {
        Some(l.index) == link.lower
            && l.lower == Some(link.index)
            && l.lower_nsid.is_some()
            && l.lower_nsid == nsid
    };
    match links.iter().find(is_other_end) {
        Some(host) => Ok((host.name.clone(), link.name)),
        None => {
            let reason = format!(
                "the other end of its interface {} is not in this namespace; pods need a veth pair to the node",
                link.name
            );
            Err(Error::refused("find", object, reason))
        }
    }
}

/// Accepts only veth and netkit: packets of ipvlan and macvlan reach the node's hardware without passing a hook of its namespace.
fn check_kind(link: &Link, object: &str) -> Result<()> {
    match &link.kind {
        Some(LinkKind::Veth(_) | LinkKind::Netkit(_)) => Ok(()),
        kind => {
            let kind = kind.as_ref().map_or("none", LinkKind::word);
            let reason = format!(
                "its interface {} is of kind {kind}, whose packets do not pass the node's namespace; use a network plugin with veth pairs",
                link.name
            );
            Err(Error::refused("capture", object, reason))
        }
    }
}

/// Finds the device by a host route in the main table, else by the other ends of all pairs: a bridge has one route for all pods. `None`:
/// there is neither.
fn device(
    routing: &Routing,
    links: &[Link],
    address: IpAddr,
    object: &str,
) -> Result<Option<String>> {
    let routes = routing.routes(RT_TABLE_MAIN)?;
    let own = routes.iter().find(|r| r.dst == address.into());
    if let Some(link) = own.and_then(|r| links.iter().find(|l| Some(l.index) == r.oif)) {
        check_kind(link, object)?;
        return Ok(Some(link.name.clone()));
    }
    // The first namespace that cannot be read: it may be that of the pod.
    let mut unread = None;
    let files = match std::fs::read_dir(NETNS_DIR) {
        Ok(files) => Some(files),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(Error::io("list", NETNS_DIR, &e)),
    };
    for file in files.into_iter().flatten().take(MAX_NETNS) {
        let file = file.map_err(|e| Error::io("list", NETNS_DIR, &e))?;
        let opened = Netns::open(&file.path());
        let read = opened.and_then(|netns| Ok((Routing::open_in(&netns)?.addresses()?, netns)));
        match read {
            Ok((addresses, netns)) if addresses.iter().any(|a| a.net.addr() == address) => {
                return Ok(Some(by_peer(routing, links, &netns, address, object)?.0));
            }
            Ok(_) => {}
            // A namespace may disappear at any time; then it is not that of a running pod.
            Err(e) if is_gone(&e) => {}
            Err(e) => unread = unread.or(Some(e)),
        }
    }
    unread.map_or(Ok(None), Err)
}

/// Returns the source address that the kernel chooses towards the proxy, or another one if that is a carrier's or the node does not have
/// it any more. Sends nothing.
pub(crate) fn source_towards(sources: &Sources, address: IpAddr) -> Result<IpAddr> {
    let any = if address.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any).and_then(|socket| {
        socket.connect((address, 80))?;
        socket.local_addr()
    });
    match socket {
        Ok(local) if sources.has(local.ip()) => Ok(local.ip()),
        Ok(local) => Ok(sources.towards(address).unwrap_or(local.ip())),
        Err(e) => {
            let what = "find the source address towards";
            // The lookup may find the route of an earlier change, which states an address that the node has lost since.
            let other = sources.route(address).and(sources.towards(address));
            other.ok_or_else(|| Error::io(what, address.to_string(), &e))
        }
    }
}
