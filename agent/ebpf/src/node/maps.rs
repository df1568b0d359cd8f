//! The maps of the node's programs, and writes to them.

use super::exclude::{self, Side};
use super::owner;
use super::programs::NodeTraits;
use crate::inpod::{COUNTERS, QUERY_KEY, QUERY_VALUE};
use crate::maps::{COUNTS_MAP, create, create_small, open_or_create};
use crate::{events, failed};
use ipnet::IpNet;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use weir_bpf::{
    BPF_F_NO_PREALLOC, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LPM_TRIE,
    BPF_MAP_TYPE_LRU_HASH, Entry, Map, MapSpec,
};
use weir_netlink::{Error, Result};

/// Maximum number of addresses of enrolled pods: a node has at most thousands of pods, with two addresses each.
const MOST_PODS: u32 = 16_384;
/// Maximum number of addresses of the node itself; kube-proxy in IPVS mode has one per service.
const MOST_ADDRESSES: u32 = 65_536;
/// Maximum number of pending DNS queries; with more, the answers to the oldest ones are not translated, and the client retries.
const MOST_QUERIES: u32 = 16_384;
/// Maximum number of excluded networks, and of excluded ports per direction.
const MOST_EXCLUDED: u32 = 1024;
/// Maximum number of networks, and of ports, excluded for single pods.
const MOST_OF_PODS: u32 = 65_536;
/// Maximum number of connections in each of `weir_excluded`, `weir_proxied` and `weir_owners`; with more, the connection that was
/// idle for longest is reset, in `weir_owners` only at a hand-over.
const MOST_FLOWS: u32 = 65_536;
/// Maximum number of sysctls with a stored value.
const MOST_BEFORE: u32 = 64;
/// Maximum number of links with a stored `rp_filter`.
const MOST_RP_FILTERS: u32 = 8192;

pub(super) const PODS_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_HASH,
    key_size: 16,
    value_size: 4,
    max_entries: MOST_PODS,
    flags: BPF_F_NO_PREALLOC,
    name: "weir_pods",
    describe: false,
};
pub(super) const NODE_MAP: MapSpec<'_> = MapSpec {
    max_entries: MOST_ADDRESSES,
    name: "weir_node",
    ..PODS_MAP
};
pub(super) const PROXY_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_ARRAY,
    key_size: 4,
    max_entries: 1,
    flags: 0,
    name: "weir_proxy",
    ..PODS_MAP
};
/// The proxy's IPv4 and IPv6 address for DNS, in network order; zeros without one.
pub(super) const NAMES_MAP: MapSpec<'_> = MapSpec {
    value_size: 16,
    max_entries: 2,
    name: "weir_names",
    ..PROXY_MAP
};
pub(super) const PROXIED_MAP: MapSpec<'_> = MapSpec {
    key_size: owner::KEY_SIZE,
    value_size: 4,
    max_entries: MOST_FLOWS,
    name: "weir_proxied",
    ..QUERIES_MAP
};
pub(super) const OWNERS_MAP: MapSpec<'_> = MapSpec {
    key_size: owner::KEY_SIZE,
    value_size: 4,
    max_entries: MOST_FLOWS,
    name: "weir_owners",
    ..QUERIES_MAP
};
/// The number of previously active proxies that have connections.
pub(super) const FORMER_MAP: MapSpec<'_> = MapSpec {
    name: "weir_former",
    ..PROXY_MAP
};
pub(super) const QUERIES_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_LRU_HASH,
    key_size: QUERY_KEY as u32,
    value_size: QUERY_VALUE as u32,
    max_entries: MOST_QUERIES,
    flags: 0,
    name: "weir_queries",
    describe: false,
};
pub(super) const PEERS_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_LPM_TRIE,
    key_size: exclude::PEER_KEY,
    max_entries: MOST_EXCLUDED,
    name: "weir_peers",
    ..PODS_MAP
};
pub(super) const PORTS_MAP: MapSpec<'_> = MapSpec {
    key_size: 4,
    max_entries: 2 * MOST_EXCLUDED,
    name: "weir_ports",
    ..PODS_MAP
};
pub(super) const POD_PEERS_MAP: MapSpec<'_> = MapSpec {
    key_size: exclude::POD_PEER_KEY,
    max_entries: MOST_OF_PODS,
    name: "weir_pod_peers",
    ..PEERS_MAP
};
pub(super) const POD_PORTS_MAP: MapSpec<'_> = MapSpec {
    key_size: exclude::POD_PORT_KEY,
    max_entries: MOST_OF_PODS,
    name: "weir_pod_ports",
    ..PODS_MAP
};
/// Connections of pods to excluded ports.
pub(super) const FLOWS_MAP: MapSpec<'_> = MapSpec {
    name: "weir_excluded",
    ..OWNERS_MAP
};
pub(super) const BEFORE_MAP: MapSpec<'_> = MapSpec {
    key_size: 4,
    max_entries: MOST_BEFORE,
    name: "weir_sysctls",
    ..PODS_MAP
};
/// Previous values of `rp_filter`. Earlier versions store them in [`BEFORE_MAP`].
pub(super) const RP_FILTERS_MAP: MapSpec<'_> = MapSpec {
    max_entries: MOST_RP_FILTERS,
    name: "weir_rp_filters",
    ..BEFORE_MAP
};
pub(super) const NODE_COUNTS: MapSpec<'_> = MapSpec {
    max_entries: (COUNTERS.len() + OWN_COUNTERS.len()) as u32,
    name: "weir_counters",
    ..COUNTS_MAP
};
/// Names of the counters that a pod's programs do not have.
pub(super) const OWN_COUNTERS: [&str; 2] = [
    "dropped: no proxy of the node is ready",
    "dropped: the pod's address is none of those that it is enrolled with",
];

/// The maps of the node. They exist as long as this value, a program that uses them, or a pin.
#[derive(Debug)]
pub(crate) struct Maps {
    pods: Map,
    counts: Map,
    node: Map,
    proxy: Map,
    proxied: Map,
    owners: Map,
    former: Map,
    /// Only with DNS capture: the proxy's addresses for DNS, and the pending queries.
    names: Option<[Map; 2]>,
    /// Only with exclusions: networks of peers, ports, the connections to excluded ports, and networks and ports of single pods.
    exclude: Option<[Map; 5]>,
    /// Only with events.
    events: Option<events::Maps>,
}

/// The map to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Pods,
    Node,
}

/// One exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Excluded {
    /// Peers.
    Peer(IpNet),
    /// A port.
    Port(Side, u16),
    /// Peers of the pod with this address.
    PodPeer(IpAddr, IpNet),
    /// A port, for the pod with this address.
    PodPort(IpAddr, Side, u16),
}

impl std::fmt::Display for Excluded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Peer(net) => write!(f, "peers in {net}"),
            Self::Port(side, port) => write!(f, "{side} port {port}"),
            Self::PodPeer(pod, net) => write!(f, "peers of {pod} in {net}"),
            Self::PodPort(pod, side, port) => write!(f, "{side} port {port} of {pod}"),
        }
    }
}

impl Maps {
    /// Creates the maps without pins, for trials.
    pub(super) fn create(traits: NodeTraits) -> Result<Self> {
        Self::by(create, events::Maps::create, traits)
    }

    /// Creates small maps without pins, for [`crate::load::tag`].
    pub(super) fn small(traits: NodeTraits) -> Result<Self> {
        Self::by(create_small, events::Maps::create, traits)
    }

    /// Opens the pinned maps of a directory, and creates missing ones.
    pub(super) fn pinned(folder: &Path, traits: NodeTraits) -> Result<Self> {
        let of_events = || events::Maps::pinned(folder);
        Self::by(|spec| open_or_create(folder, spec), of_events, traits)
    }

    fn by(
        make: impl Fn(&MapSpec<'_>) -> Result<Map>,
        of_events: impl FnOnce() -> Result<events::Maps>,
        traits: NodeTraits,
    ) -> Result<Self> {
        let names = || Ok::<_, Error>([make(&NAMES_MAP)?, make(&QUERIES_MAP)?]);
        let exclude = || {
            Ok::<_, Error>([
                make(&PEERS_MAP)?,
                make(&PORTS_MAP)?,
                make(&FLOWS_MAP)?,
                make(&POD_PEERS_MAP)?,
                make(&POD_PORTS_MAP)?,
            ])
        };
        Ok(Self {
            pods: make(&PODS_MAP)?,
            counts: make(&NODE_COUNTS)?,
            node: make(&NODE_MAP)?,
            proxy: make(&PROXY_MAP)?,
            proxied: make(&PROXIED_MAP)?,
            owners: make(&OWNERS_MAP)?,
            former: make(&FORMER_MAP)?,
            names: traits.dns.then(names).transpose()?,
            exclude: traits.exclude.then(exclude).transpose()?,
            events: traits.events.then(of_events).transpose()?,
        })
    }

    /// Returns the maps in the order of `MapRef`.
    pub(crate) fn list(&self) -> Vec<&Map> {
        let always = [
            &self.pods,
            &self.counts,
            &self.node,
            &self.proxy,
            &self.proxied,
            &self.owners,
            &self.former,
        ];
        let some = self.names.iter().flatten();
        let some = some.chain(self.exclude.iter().flatten());
        let events = self.events.iter().flat_map(events::Maps::list);
        always.into_iter().chain(some).chain(events).collect()
    }

    /// Writes or, without a value, deletes an exclusion. Does nothing if the maps of exclusions do not exist.
    pub(super) fn exclude(&self, what: Excluded, value: Option<u32>) -> Result<()> {
        let Some([peers, ports, _, of_pods, ports_of_pods]) = &self.exclude else {
            return Ok(());
        };
        let (map, key) = match what {
            Excluded::Peer(net) => (peers, exclude::peer_key(net).to_vec()),
            Excluded::Port(side, port) => (ports, exclude::port_key((side, port)).to_vec()),
            Excluded::PodPeer(pod, net) => (of_pods, exclude::pod_peer_key(pod, net)),
            Excluded::PodPort(pod, side, port) => {
                (ports_of_pods, exclude::pod_port_key(pod, (side, port)))
            }
        };
        let done = match value {
            // `set_all` waits for memory, which such a map allocates per entry.
            Some(value) => map
                .set_all(&[(key, value.to_ne_bytes().to_vec())])
                .map_err(|(_, e)| e),
            None => map.delete(&key).map(drop),
        };
        done.map_err(|e| failed("write", &format!("{what} in the map of exclusions"), &e))
    }

    /// Writes addresses with their values, in batches if the kernel supports them.
    pub(super) fn put(&self, which: Which, addresses: &[(IpAddr, u32)]) -> Result<()> {
        let (map, spec) = self.of(which);
        let entry = |(a, value): &(IpAddr, u32)| {
            (exclude::octets(*a).to_vec(), value.to_ne_bytes().to_vec())
        };
        let entries: Vec<Entry> = addresses.iter().map(entry).collect();
        map.set_all(&entries).map_err(|(done, e)| {
            let address = addresses.get(done).map(|(address, _)| address.to_string());
            let object = format!("{} in map {}", address.unwrap_or_default(), spec.name);
            match e.raw_os_error() {
                Some(number) if number == nix::errno::Errno::E2BIG as i32 => Error::exhausted(
                    "write",
                    object,
                    format!(
                        "the map is full: it has room for {} addresses",
                        spec.max_entries
                    ),
                ),
                _ => failed("write", &object, &e),
            }
        })
    }

    pub(super) fn delete(&self, which: Which, address: IpAddr) -> Result<()> {
        let (map, spec) = self.of(which);
        let deleted = map.delete(&exclude::octets(address));
        deleted.map(drop).map_err(|e| {
            let object = format!("{address} in map {}", spec.name);
            failed("delete", &object, &e)
        })
    }

    fn of(&self, which: Which) -> (&Map, &MapSpec<'static>) {
        match which {
            Which::Pods => (&self.pods, &PODS_MAP),
            Which::Node => (&self.node, &NODE_MAP),
        }
    }

    pub(super) fn set_proxy(&self, index: u32) -> Result<()> {
        let written = self.proxy.set(&[0; 4], &index.to_ne_bytes());
        written.map_err(|e| failed("write", "map weir_proxy", &e))
    }

    pub(super) fn set_former(&self, count: u32) -> Result<()> {
        let written = self.former.set(&[0; 4], &count.to_ne_bytes());
        written.map_err(|e| failed("write", "map weir_former", &e))
    }

    /// Writes the proxy's addresses for DNS, at most one per family. Does nothing without DNS capture.
    pub(super) fn set_names(&self, addresses: &BTreeSet<IpAddr>) -> Result<()> {
        let Some([names, _]) = &self.names else {
            return Ok(());
        };
        for (place, ipv6) in [(0_u32, false), (1, true)] {
            let address = addresses.iter().find(|a| a.is_ipv6() == ipv6);
            let mut value = [0; 16];
            match address {
                Some(IpAddr::V4(v4)) => value[..4].copy_from_slice(&v4.octets()),
                Some(IpAddr::V6(v6)) => value = v6.octets(),
                None => {}
            }
            let written = names.set(&place.to_ne_bytes(), &value);
            written.map_err(|e| failed("write", "map weir_names", &e))?;
        }
        Ok(())
    }
}
