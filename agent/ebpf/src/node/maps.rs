//! The maps of the node's programs, and what sysctls were before.

use super::exclude::{self, Side};
use super::owner;
use super::programs::NodeTraits;
use crate::inpod::{COUNTERS, QUERY_KEY, QUERY_VALUE};
use crate::maps::{COUNTS_MAP, create, open_or_create};
use crate::{events, failed};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use weir_bpf::{
    BPF_F_NO_PREALLOC, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LPM_TRIE,
    BPF_MAP_TYPE_LRU_HASH, Map, MapSpec, Pinned, open_pin,
};
use weir_netlink::{Error, Result};

/// Most addresses of enrolled pods: a node has at most thousands of pods, with two addresses each.
const MOST_PODS: u32 = 16_384;
/// Most addresses of the node itself; kube-proxy in IPVS mode has one for each service.
const MOST_ADDRESSES: u32 = 65_536;
/// The most DNS queries under way; beyond it, the answers to the oldest ones are not translated, and it is asked again.
const MOST_QUERIES: u32 = 16_384;
/// Most networks, and most ports of each direction, that are excluded.
const MOST_EXCLUDED: u32 = 1024;
/// Most connections to excluded ports, of the proxy to the node, and of which is known whose they are; beyond it, the one that was
/// idle for longest is reset, the last at a hand-over only.
const MOST_FLOWS: u32 = 65_536;
/// Most sysctls that are remembered.
const MOST_BEFORE: u32 = 64;

const PODS_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_HASH,
    key_size: 16,
    value_size: 4,
    max_entries: MOST_PODS,
    flags: BPF_F_NO_PREALLOC,
    name: "weir_pods",
    describe: false,
};
const NODE_MAP: MapSpec<'_> = MapSpec {
    max_entries: MOST_ADDRESSES,
    name: "weir_node",
    ..PODS_MAP
};
const PROXY_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_ARRAY,
    key_size: 4,
    max_entries: 1,
    flags: 0,
    name: "weir_proxy",
    ..PODS_MAP
};
/// The proxy's addresses for names: of IPv4 and of IPv6, in network order; zeros without one.
const NAMES_MAP: MapSpec<'_> = MapSpec {
    value_size: 16,
    max_entries: 2,
    name: "weir_names",
    ..PROXY_MAP
};
const ASKED_MAP: MapSpec<'_> = MapSpec {
    max_entries: MOST_FLOWS,
    name: "weir_asked",
    ..QUERIES_MAP
};
const OWNERS_MAP: MapSpec<'_> = MapSpec {
    key_size: owner::KEY_SIZE,
    value_size: 4,
    max_entries: MOST_FLOWS,
    name: "weir_owners",
    ..QUERIES_MAP
};
/// How many proxies that were active before have connections.
const FORMER_MAP: MapSpec<'_> = MapSpec {
    name: "weir_former",
    ..PROXY_MAP
};
const QUERIES_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_LRU_HASH,
    key_size: QUERY_KEY as u32,
    value_size: QUERY_VALUE as u32,
    max_entries: MOST_QUERIES,
    flags: 0,
    name: "weir_queries",
    describe: false,
};
const PEERS_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_LPM_TRIE,
    key_size: exclude::PEER_KEY,
    max_entries: MOST_EXCLUDED,
    name: "weir_peers",
    ..PODS_MAP
};
const PORTS_MAP: MapSpec<'_> = MapSpec {
    key_size: 4,
    max_entries: 2 * MOST_EXCLUDED,
    name: "weir_ports",
    ..PODS_MAP
};
const FLOWS_MAP: MapSpec<'_> = MapSpec {
    max_entries: MOST_FLOWS,
    name: "weir_flows",
    ..QUERIES_MAP
};
const BEFORE_MAP: MapSpec<'_> = MapSpec {
    key_size: 4,
    max_entries: MOST_BEFORE,
    name: "weir_sysctls",
    ..PODS_MAP
};
const NODE_COUNTS: MapSpec<'_> = MapSpec {
    max_entries: COUNTERS.len() as u32 + 1,
    name: "weir_node_count",
    ..COUNTS_MAP
};
/// The name of the counter that a pod's programs do not have.
const NO_PROXY: &str = "dropped: no proxy of the node is ready";

/// Addresses with a number each: the index of a link, or 1.
pub(super) type Addresses = BTreeMap<IpAddr, u32>;

/// Maps of the node. They live as long as this value, a program that uses them, or a pin.
#[derive(Debug)]
pub(crate) struct Maps {
    pods: Map,
    counts: Map,
    node: Map,
    proxy: Map,
    asked: Map,
    owners: Map,
    former: Map,
    /// With the capture of DNS: where names are asked for, and what was asked.
    names: Option<[Map; 2]>,
    /// With exclusions: networks of peers, ports, and the connections to excluded ports.
    exclude: Option<[Map; 3]>,
    /// With events of packets.
    events: Option<events::Maps>,
}

/// Which map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Pods,
    Node,
}

/// What maps hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) pods: Addresses,
    pub(super) node: Addresses,
    /// 0: none.
    pub(super) proxy: u32,
    /// How many have connections that were active before.
    pub(super) former: u32,
    /// Where it is asked for names.
    pub(super) names: BTreeSet<IpAddr>,
    pub(super) peers: BTreeMap<IpNet, bool>,
    pub(super) ports: BTreeSet<(Side, u16)>,
}

/// One exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excluded {
    /// Peers.
    Peer(IpNet),
    /// A port.
    Port(Side, u16),
}

impl std::fmt::Display for Excluded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Peer(net) => write!(f, "peers in {net}"),
            Self::Port(side, port) => write!(f, "{side} port {port}"),
        }
    }
}

fn key(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn number(value: &[u8]) -> u32 {
    value.try_into().map_or(0, u32::from_ne_bytes)
}

impl Maps {
    /// Without pins, for trials.
    pub(super) fn create(traits: NodeTraits) -> Result<Self> {
        Self::by(create, events::Maps::create, traits)
    }

    /// Opens the pinned maps of a folder, and creates those that are absent.
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
        let exclude = || Ok::<_, Error>([make(&PEERS_MAP)?, make(&PORTS_MAP)?, make(&FLOWS_MAP)?]);
        Ok(Self {
            pods: make(&PODS_MAP)?,
            counts: make(&NODE_COUNTS)?,
            node: make(&NODE_MAP)?,
            proxy: make(&PROXY_MAP)?,
            asked: make(&ASKED_MAP)?,
            owners: make(&OWNERS_MAP)?,
            former: make(&FORMER_MAP)?,
            names: traits.dns.then(names).transpose()?,
            exclude: traits.exclude.then(exclude).transpose()?,
            events: traits.events.then(of_events).transpose()?,
        })
    }

    /// In the order of `MapRef`.
    pub(crate) fn list(&self) -> Vec<&Map> {
        let always = [
            &self.pods,
            &self.counts,
            &self.node,
            &self.proxy,
            &self.asked,
            &self.owners,
            &self.former,
        ];
        let some = self.names.iter().flatten();
        let some = some.chain(self.exclude.iter().flatten());
        let events = self.events.iter().flat_map(events::Maps::list);
        always.into_iter().chain(some).chain(events).collect()
    }

    /// Writes or, without a value, deletes what is excluded. Without exclusions there is nothing to write.
    pub(super) fn exclude(&self, what: Excluded, value: Option<u32>) -> Result<()> {
        let Some([peers, ports, _]) = &self.exclude else {
            return Ok(());
        };
        let (map, key) = match what {
            Excluded::Peer(net) => (peers, exclude::peer_key(net).to_vec()),
            Excluded::Port(side, port) => (ports, exclude::port_key((side, port)).to_vec()),
        };
        let done = match value {
            Some(value) => map.set(&key, &value.to_ne_bytes()),
            None => map.delete(&key).map(drop),
        };
        done.map_err(|e| failed("write", &format!("{what} in the map of exclusions"), &e))
    }

    pub(super) fn put(&self, which: Which, address: IpAddr, value: u32) -> Result<()> {
        let (map, spec) = self.of(which);
        map.set(&key(address), &value.to_ne_bytes()).map_err(|e| {
            let object = format!("{address} in map {}", spec.name);
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
        let deleted = map.delete(&key(address));
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

    /// At most one address of each family. Without the capture of DNS there is nothing to write.
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

/// What pinned maps hold; empty without pins. Nothing is created.
pub(super) fn contents(folder: &Path) -> Result<Contents> {
    let read = |spec: &MapSpec<'_>| match open(&folder.join(spec.name))? {
        Some(map) => entries(&map, spec),
        None => Ok(Vec::new()),
    };
    let addresses = |spec: &MapSpec<'_>| -> Result<Addresses> {
        let entry = |(key, value): (Vec<u8>, Vec<u8>)| {
            let octets: [u8; 16] = key.try_into().ok()?;
            Some((Ipv6Addr::from(octets).to_canonical(), number(&value)))
        };
        Ok(read(spec)?.into_iter().filter_map(entry).collect())
    };
    Ok(Contents {
        pods: addresses(&PODS_MAP)?,
        node: addresses(&NODE_MAP)?,
        proxy: only(read(&PROXY_MAP)?),
        former: only(read(&FORMER_MAP)?),
        names: read(&NAMES_MAP)?
            .into_iter()
            .filter_map(|(place, value)| name_server(number(&place), value))
            .collect(),
        peers: read(&PEERS_MAP)?
            .into_iter()
            .filter_map(|(key, value)| Some((exclude::peer_of(&key)?, number(&value) != 0)))
            .collect(),
        ports: read(&PORTS_MAP)?
            .into_iter()
            .filter_map(|(key, _)| exclude::port_of(&key))
            .collect(),
    })
}

/// The number of an array of one.
fn only(entries: Vec<(Vec<u8>, Vec<u8>)>) -> u32 {
    entries.first().map_or(0, |(_, value)| number(value))
}

/// An element of `weir_names`; `None`: there is no address.
fn name_server(place: u32, value: Vec<u8>) -> Option<IpAddr> {
    let octets: [u8; 16] = value.try_into().ok()?;
    let address = match (place, octets) {
        (0, [a, b, c, d, ..]) => IpAddr::from([a, b, c, d]),
        _ => IpAddr::from(octets),
    };
    (!address.is_unspecified()).then_some(address)
}

fn open(path: &Path) -> Result<Option<Map>> {
    match open_pin(path) {
        Ok(Pinned::Map(map)) => Ok(Some(map)),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("open", &path.display().to_string(), &e)),
    }
}

/// The ids of the pinned maps that programs use.
pub(super) fn ids(folder: &Path) -> Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    let all = [
        &PODS_MAP,
        &NODE_COUNTS,
        &NODE_MAP,
        &PROXY_MAP,
        &ASKED_MAP,
        &OWNERS_MAP,
        &FORMER_MAP,
        &NAMES_MAP,
        &QUERIES_MAP,
        &PEERS_MAP,
        &PORTS_MAP,
        &FLOWS_MAP,
    ];
    let all = all.map(|spec| folder.join(spec.name));
    for path in all.into_iter().chain(events::pins(folder)) {
        if let Some(map) = open(&path)? {
            let info = map.info();
            let info = info.map_err(|e| failed("read", &path.display().to_string(), &e))?;
            ids.insert(info.id);
        }
    }
    Ok(ids)
}

/// Bounded by what the map has room for: another writer may add while it is read.
fn entries(map: &Map, spec: &MapSpec<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let failed = |e: &std::io::Error| failed("read", &format!("map {}", spec.name), e);
    let (mut list, mut last) = (Vec::new(), None::<Vec<u8>>);
    for _ in 0..spec.max_entries {
        let next = map.next_key(last.as_deref()).map_err(|e| failed(&e))?;
        let Some(next) = next else { break };
        if let Some(value) = map.get(&next).map_err(|e| failed(&e))? {
            list.push((next.clone(), value));
        }
        last = Some(next);
    }
    Ok(list)
}

/// The counters of the node's pinned map, with their names.
pub(crate) fn counters(folder: &Path) -> Option<Vec<(&'static str, u64)>> {
    let map = open(&folder.join(NODE_COUNTS.name)).ok()??;
    let read = |(number, name): (usize, &'static str)| {
        let key = u32::try_from(number).ok()?.to_ne_bytes();
        let value = map.get(&key).ok().flatten()?;
        Some((name, u64::from_ne_bytes(value.try_into().ok()?)))
    };
    let names = COUNTERS.into_iter().chain([NO_PROXY]);
    names.enumerate().map(read).collect()
}

/// Numbers of sysctls before weir changed them, by a key of the caller; the first one that is written down stays.
pub(super) fn remember(folder: &Path, key: u32, value: u32) -> Result<()> {
    let map = open_or_create(folder, &BEFORE_MAP)?;
    let added = map.add(&key.to_ne_bytes(), &value.to_ne_bytes());
    added
        .map(drop)
        .map_err(|e| failed("write", "map weir_sysctls", &e))
}

/// All that was written down.
pub(super) fn before(folder: &Path) -> Result<BTreeMap<u32, u32>> {
    match open(&folder.join(BEFORE_MAP.name))? {
        Some(map) => Ok(entries(&map, &BEFORE_MAP)?
            .into_iter()
            .map(|(key, value)| (number(&key), number(&value)))
            .collect()),
        None => Ok(BTreeMap::new()),
    }
}
