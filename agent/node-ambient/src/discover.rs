//! Where the proxy and the pods are: devices, namespaces, and the node's address towards the proxy.

use crate::config::{CarrierChoice, Config, Pod, Proxy};
use crate::node::{Bridge, Carrier, Node, Place};
use crate::objects::{CARRIERS, SECOND_CARRIERS, VNIS, WEIR};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use weir_netlink::route::{Geneve, Link, LinkKind, RT_TABLE_MAIN, Routing};
use weir_netlink::{Error, Netns, Result};

/// `GENEVE_UDP_PORT` of the kernel's `include/net/geneve.h`.
const FIRST_PORT: u16 = 6081;
/// Where container runtimes mount network namespaces.
const NETNS_DIR: &str = "/run/netns";
/// Most files of it that are opened.
const MAX_NETNS: usize = 4096;

/// What captures, as far as the links that can be captured depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Rules and routes: packets have to arrive at an interface of the node.
    Rules,
    /// Programs at the links themselves.
    Programs,
}

/// Finds the node's side of everything in the network namespace of this thread.
///
/// # Errors
/// What was not found, by name, or is of a kind that cannot be captured.
pub fn discover(config: &Config, by: By) -> Result<Node> {
    let routing = Routing::open()?;
    let links = routing.links()?;
    let slots = slots(&routing, config)?;
    let mut bridges = BTreeMap::new();
    let mut place = None;
    if let Some(proxy) = config.active() {
        let found = find(&routing, &links, proxy)?;
        let object = format!("proxy {}", proxy.uid);
        bridges.extend(bridge_of(&links, &found.device, by, &object)?);
        place = Some(found);
    }
    // Of those that were active before, the newest that is still there.
    let mut others: Vec<&Proxy> = config.proxies.iter().collect();
    others.retain(|p| place.as_ref().is_none_or(|place| place.proxy != **p));
    others.sort_by_key(|p| std::cmp::Reverse((p.created, p.uid.as_str())));
    let known = place
        .as_ref()
        .and_then(|place| slot_of(&slots, &links, &bridges, place));
    let before = others.into_iter().find_map(|proxy| {
        let found = find(&routing, &links, proxy).ok()?;
        let bridge = bridge_of(&links, &found.device, by, &proxy.uid).ok()?;
        bridges.extend(bridge);
        let slot = slot_of(&slots, &links, &bridges, &found)?;
        (known != Some(slot)).then_some(Place { slot, ..found })
    });
    if let Some(place) = &mut place {
        let other = usize::from(before.as_ref().is_some_and(|before| before.slot == 0));
        place.slot = known.unwrap_or(other);
    }
    let (mut devices, mut left_out) = (BTreeMap::new(), BTreeMap::new());
    for pod in &config.pods {
        let known = config.devices.get(&pod.uid);
        let is_there = |name: &String| links.iter().any(|l| l.name == *name);
        let found = match known.filter(|names| !names.is_empty() && names.iter().all(is_there)) {
            Some(names) => Ok(names.clone()),
            None => devices_of(&routing, &links, pod),
        };
        let object = format!("pod {}", pod.uid);
        let found = found.and_then(|names| {
            let of = |name: &String| bridge_of(&links, name, by, &object).transpose();
            let of_bridges = names.iter().filter_map(of).collect::<Result<Vec<_>>>()?;
            Ok((names, of_bridges))
        });
        match found {
            Ok((names, of_bridges)) => {
                bridges.extend(of_bridges);
                devices.insert(pod.uid.clone(), names);
            }
            Err(e) if config.leave_out => _ = left_out.insert(pod.uid.clone(), e.to_string()),
            Err(e) => return Err(e),
        }
    }
    let mut config = config.clone();
    config.pods.retain(|pod| !left_out.contains_key(&pod.uid));
    let remote = place.as_ref().and_then(|p| {
        let addresses = &p.proxy.addresses;
        addresses
            .iter()
            .find(|a| a.is_ipv4())
            .or(addresses.first())
            .copied()
    });
    Ok(Node {
        carrier: carrier(&config, &links, remote)?,
        config,
        place,
        before,
        devices,
        bridges,
        left_out,
        has_ipv6: Path::new("/proc/sys/net/ipv6").exists(),
    })
}

/// Host ends of the links of proxies that are not the active one, as far as they are there.
pub(crate) fn devices_of_others(
    routing: &Routing,
    links: &[Link],
    config: &Config,
) -> BTreeSet<String> {
    let active = config.active();
    let others = config.proxies.iter().filter(|p| active != Some(*p));
    let found = others.filter_map(|proxy| find(routing, links, proxy).ok());
    found.map(|place| place.device).collect()
}

/// Where a proxy is, but for its slot.
fn find(routing: &Routing, links: &[Link], proxy: &Proxy) -> Result<Place> {
    let netns = Netns::open(&proxy.netns)?;
    let Some(address) = proxy.addresses.first() else {
        let reason = "it has no address; give its addresses";
        let object = format!("proxy {}", proxy.uid);
        return Err(Error::refused("find", object, reason));
    };
    let object = format!("proxy {} with address {address}", proxy.uid);
    let (device, interface) = by_peer(routing, links, &netns, *address, &object)?;
    let v4 = proxy.addresses.iter().find(|a| a.is_ipv4());
    Ok(Place {
        proxy: proxy.clone(),
        device,
        interface,
        host: source_towards(*v4.unwrap_or(address))?,
        slot: 0,
    })
}

/// By slot: the interfaces by which replies are routed to proxies now, each with the proxy's address.
type Slots = [Vec<(u32, IpAddr)>; 2];

fn slots(routing: &Routing, config: &Config) -> Result<Slots> {
    let routes = routing.routes_by(WEIR)?;
    Ok(config.routing.proxy_tables().map(|table| {
        let all = routes.iter().filter(|r| r.table == table && r.onlink);
        all.filter_map(|r| Some((r.oif?, r.gateway?))).collect()
    }))
}

/// Where a proxy is now. By a bridge more than one can be reached: there its address tells.
fn slot_of(
    slots: &Slots,
    links: &[Link],
    bridges: &BTreeMap<String, Bridge>,
    place: &Place,
) -> Option<usize> {
    let bridge = bridges.get(&place.device);
    let name = bridge.map_or(&place.device, |bridge| &bridge.name);
    let index = links.iter().find(|l| l.name == *name)?.index;
    let is_its = |(of, gateway): &(u32, IpAddr)| {
        *of == index && (bridge.is_none() || place.proxy.addresses.contains(gateway))
    };
    slots.iter().position(|slot| slot.iter().any(is_its))
}

/// The bridge of which a link is a port. Rules do not see what Open vSwitch forwards.
fn bridge_of(
    links: &[Link],
    device: &str,
    by: By,
    object: &str,
) -> Result<Option<(String, Bridge)>> {
    let link = links.iter().find(|l| l.name == device);
    let master = link.and_then(|link| links.iter().find(|l| Some(l.index) == link.master));
    let Some(master) = master.filter(|_| by == By::Rules) else {
        return Ok(None);
    };
    let name = master.name.clone();
    match (master.kind.as_ref().map(LinkKind::word), master.mac) {
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

/// The host ends of a pod's links; a pod may have an address on each of several.
pub(crate) fn devices_of(routing: &Routing, links: &[Link], pod: &Pod) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for address in &pod.addresses {
        let object = format!("pod {} with address {address}", pod.uid);
        let name = match &pod.netns {
            Some(path) => by_peer(routing, links, &Netns::open(path)?, *address, &object)?.0,
            None => device(routing, links, *address, &object)?,
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The host's end and the pod's end of the pair that has an address in a namespace.
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

/// ipvlan and macvlan packets reach the node's hardware without passing a hook of its namespace.
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

/// By a host route of the main table, else by looking at the other ends of all pairs: bridges have one route for all pods.
fn device(routing: &Routing, links: &[Link], address: IpAddr, object: &str) -> Result<String> {
    let routes = routing.routes(RT_TABLE_MAIN)?;
    let own = routes.iter().find(|r| r.dst == address.into());
    if let Some(link) = own.and_then(|r| links.iter().find(|l| Some(l.index) == r.oif)) {
        check_kind(link, object)?;
        return Ok(link.name.clone());
    }
    let files = std::fs::read_dir(NETNS_DIR).into_iter().flatten().flatten();
    for file in files.take(MAX_NETNS) {
        // A namespace may end at any time: it is not that of a running pod then.
        let Ok(netns) = Netns::open(&file.path()) else {
            continue;
        };
        let Ok(inside) = Routing::open_in(&netns) else {
            continue;
        };
        let addresses = inside.addresses()?;
        if addresses.iter().any(|a| a.net.addr() == address) {
            return Ok(by_peer(routing, links, &netns, address, object)?.0);
        }
    }
    let reason = format!(
        "no route to it alone is in the main table, and no namespace in {NETNS_DIR} has its address; give its netns"
    );
    Err(Error::refused("find the device of", object, reason))
}

/// The source address that the kernel chooses towards the proxy. Nothing is sent.
fn source_towards(address: IpAddr) -> Result<IpAddr> {
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
        Ok(local) => Ok(local.ip()),
        Err(e) => Err(Error::io(
            "find the source address towards",
            address.to_string(),
            &e,
        )),
    }
}

/// A tunnel that is there keeps its kind and port, unless the configuration says otherwise.
fn carrier(config: &Config, links: &[Link], remote: Option<IpAddr>) -> Result<Carrier> {
    let ours = [CARRIERS, SECOND_CARRIERS].concat();
    let there = links.iter().find(|l| ours.contains(&l.name.as_str()));
    let there = there.and_then(|l| l.kind.as_ref());
    let there = match there {
        Some(LinkKind::Geneve(g)) => g.port.map(Carrier::Geneve),
        Some(LinkKind::Vxlan(v)) => v.port.map(Carrier::Vxlan),
        Some(LinkKind::Veth(_)) => Some(Carrier::Veth),
        _ => None,
    };
    let choice = match (config.carrier, there) {
        (CarrierChoice::Auto, Some(Carrier::Geneve(_))) => CarrierChoice::Geneve,
        (CarrierChoice::Auto, Some(Carrier::Vxlan(_))) => CarrierChoice::Vxlan,
        (CarrierChoice::Auto, Some(Carrier::Veth)) => CarrierChoice::Veth,
        (CarrierChoice::Auto, None) if has_geneve()? => CarrierChoice::Geneve,
        (CarrierChoice::Auto, None) => CarrierChoice::Vxlan,
        (choice, _) => choice,
    };
    let kept = match there {
        Some(Carrier::Geneve(port) | Carrier::Vxlan(port)) => Some(port),
        _ => None,
    };
    let port = || {
        config
            .tunnel_port
            .or(kept)
            .map_or_else(|| free_port(links, remote), Ok)
    };
    Ok(match choice {
        CarrierChoice::Geneve => Carrier::Geneve(port()?),
        CarrierChoice::Vxlan => Carrier::Vxlan(port()?),
        CarrierChoice::Veth | CarrierChoice::Auto => Carrier::Veth,
    })
}

/// Tried in a namespace of its own, so that nothing changes here.
fn has_geneve() -> Result<bool> {
    let probe = Geneve {
        id: Some(1),
        remote: Some(std::net::Ipv4Addr::LOCALHOST.into()),
        ..Geneve::default()
    };
    let link = Link::new("probe", LinkKind::Geneve(probe));
    match Routing::open_in(&Netns::create()?)?.add_link(&link, None) {
        Ok(()) => Ok(true),
        Err(e) if e.is_unsupported() || e.errno() == Some(95) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The first port from 6081 that no GENEVE link with per-packet tunnels, and none to the same peer with one of our network
/// identifiers, has.
fn free_port(links: &[Link], remote: Option<IpAddr>) -> Result<u16> {
    let taken = |port: u16| {
        links
            .iter()
            .filter(|l| {
                !CARRIERS.contains(&l.name.as_str()) && !SECOND_CARRIERS.contains(&l.name.as_str())
            })
            .any(|l| match &l.kind {
                Some(LinkKind::Geneve(g)) => {
                    let external = g.collect_metadata.is_some();
                    let same = remote.is_some()
                        && g.remote.or(g.remote6) == remote
                        && g.id.is_some_and(|id| VNIS.contains(&id));
                    g.port == Some(port) && (external || same)
                }
                _ => false,
            })
    };
    (FIRST_PORT..=u16::MAX)
        .find(|port| !taken(*port))
        .ok_or_else(|| {
            let reason = "every port from 6081 is taken by GENEVE links; give tunnel_port";
            Error::refused("choose", "a UDP port for tunnels", reason)
        })
}
