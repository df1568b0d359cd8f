//! The contents of pinned maps.

use super::exclude::{self, Side};
use super::maps::*;
use crate::events;
use crate::failed;
use crate::inpod::COUNTERS;
use crate::maps::{self, open, open_or_create};
use crate::pins;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use weir_bpf::{Entry, Map, MapSpec};
use weir_netlink::Result;

/// Addresses with a number each: the index of a link, or 1.
pub(super) type Addresses = BTreeMap<IpAddr, u32>;

/// The contents of all maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) pods: Addresses,
    pub(super) node: Addresses,
    /// Index of the active proxy's link; 0: none.
    pub(super) proxy: u32,
    /// Number of previously active proxies that have connections.
    pub(super) former: u32,
    /// Addresses of the proxy for DNS queries.
    pub(super) names: BTreeSet<IpAddr>,
    pub(super) peers: BTreeMap<IpNet, bool>,
    pub(super) ports: BTreeSet<(Side, u16)>,
    pub(super) of_pods: BTreeMap<(IpAddr, IpNet), bool>,
    pub(super) ports_of_pods: BTreeSet<(IpAddr, Side, u16)>,
}

/// Maps that only earlier versions pinned.
const OBSOLETE: [&str; 3] = ["weir_asked", "weir_node_count", "weir_flows"];

/// Returns the pins of such maps in a directory.
pub(super) fn obsolete(folder: &Path) -> Result<Vec<&'static str>> {
    let mut there = Vec::new();
    for name in OBSOLETE {
        there.extend(pins::find(&folder.join(name))?.map(|_| name));
    }
    Ok(there)
}

fn number(value: &[u8]) -> u32 {
    value.try_into().map_or(0, u32::from_ne_bytes)
}

/// Reads the pinned maps; empty without pins. Creates nothing.
pub(super) fn contents(folder: &Path) -> Result<Contents> {
    let read = |spec: &MapSpec<'_>| match maps::find(&folder.join(spec.name), spec)? {
        Some((map, _)) => entries(&map, spec),
        None => Ok(Vec::new()),
    };
    let addresses = |spec: &MapSpec<'_>| -> Result<Addresses> {
        let entry = |(key, value): Entry| {
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
        of_pods: read(&POD_PEERS_MAP)?
            .into_iter()
            .filter_map(|(key, value)| Some((exclude::pod_peer_of(&key)?, number(&value) != 0)))
            .collect(),
        ports_of_pods: read(&POD_PORTS_MAP)?
            .into_iter()
            .filter_map(|(key, _)| exclude::pod_port_of(&key))
            .collect(),
    })
}

/// Returns the number in an array with one element.
fn only(entries: Vec<Entry>) -> u32 {
    entries.first().map_or(0, |(_, value)| number(value))
}

/// Decodes an element of `weir_names`; `None`: it has no address.
fn name_server(place: u32, value: Vec<u8>) -> Option<IpAddr> {
    let octets: [u8; 16] = value.try_into().ok()?;
    let address = match (place, octets) {
        (0, [a, b, c, d, ..]) => IpAddr::from([a, b, c, d]),
        _ => IpAddr::from(octets),
    };
    (!address.is_unspecified()).then_some(address)
}

/// Returns the ids of the pinned maps that programs use.
pub(super) fn ids(folder: &Path) -> Result<BTreeSet<u32>> {
    let mut ids = BTreeSet::new();
    let all = [
        &PODS_MAP,
        &NODE_COUNTS,
        &NODE_MAP,
        &PROXY_MAP,
        &PROXIED_MAP,
        &OWNERS_MAP,
        &FORMER_MAP,
        &NAMES_MAP,
        &QUERIES_MAP,
        &PEERS_MAP,
        &PORTS_MAP,
        &FLOWS_MAP,
        &POD_PEERS_MAP,
        &POD_PORTS_MAP,
    ];
    let all = all.map(|spec| (folder.join(spec.name), *spec));
    for (path, spec) in all.into_iter().chain(events::wanted(folder)) {
        ids.extend(maps::find(&path, &spec)?.map(|(_, id)| id));
    }
    Ok(ids)
}

fn entries(map: &Map, spec: &MapSpec<'_>) -> Result<Vec<Entry>> {
    let most = usize::try_from(spec.max_entries).unwrap_or(usize::MAX);
    let entries = map.entries(most);
    entries.map_err(|e| failed("read", &format!("map {}", spec.name), &e))
}

/// Returns the counters of the node's pinned map, with their names.
pub(crate) fn counters(folder: &Path) -> Result<Option<Vec<(&'static str, u64)>>> {
    let names = COUNTERS.into_iter().chain(OWN_COUNTERS);
    maps::sums(folder, &NODE_COUNTS, names)
}

/// Maps with the previous values of sysctls. The second takes precedence: an earlier version wrote it.
const BEFORE: [&MapSpec<'_>; 2] = [&RP_FILTERS_MAP, &BEFORE_MAP];

/// Stores the previous value of a sysctl under a key chosen by the caller, unless the key exists.
pub(super) fn remember(folder: &Path, spec: &MapSpec<'_>, key: u32, value: u32) -> Result<()> {
    let map = open_or_create(folder, spec)?;
    let added = map.add(&key.to_ne_bytes(), &value.to_ne_bytes());
    added
        .map(drop)
        .map_err(|e| failed("write", &format!("map {}", spec.name), &e))
}

/// Deletes the stored values of these keys.
pub(super) fn forget(folder: &Path, which: impl Fn(u32) -> bool) -> Result<()> {
    for spec in BEFORE {
        let Some(map) = open(&folder.join(spec.name))? else {
            continue;
        };
        for (key, _) in entries(&map, spec)? {
            if which(number(&key)) {
                let deleted = map.delete(&key);
                deleted
                    .map_err(|e| failed("delete", &format!("a key of map {}", spec.name), &e))?;
            }
        }
    }
    Ok(())
}

/// Returns all stored values.
pub(super) fn before(folder: &Path) -> Result<BTreeMap<u32, u32>> {
    let mut all = BTreeMap::new();
    for spec in BEFORE {
        if let Some(map) = open(&folder.join(spec.name))? {
            let entries = entries(&map, spec)?.into_iter();
            all.extend(entries.map(|(key, value)| (number(&key), number(&value))));
        }
    }
    Ok(all)
}
