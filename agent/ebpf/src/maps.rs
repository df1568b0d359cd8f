//! The maps of a pod's programs.

use crate::inpod::{COUNTERS, NODE_NONE, QUERY_KEY, QUERY_VALUE};
use crate::{events, failed, pins};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use weir_bpf::{
    BPF_F_NO_PREALLOC, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LPM_TRIE,
    BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_PERCPU_ARRAY, BPF_MAP_TYPE_SK_STORAGE, Map, MapInfo,
    MapSpec, Pinned, pin,
};
use weir_netlink::Result;

/// Maximum number of pending DNS queries; with more, the answers to the oldest ones are not translated, and the client retries.
const QUERIES: u32 = 4096;
/// Size of the stored previous values: see [`crate::switches`].
const BEFORE: u32 = 8;

const SOCKETS_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_SK_STORAGE,
    key_size: 4,
    value_size: 4,
    max_entries: 0,
    flags: BPF_F_NO_PREALLOC,
    name: "weir_sockets",
    describe: true,
};
/// Per CPU, to avoid contention.
pub(crate) const COUNTS_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_PERCPU_ARRAY,
    key_size: 4,
    value_size: 8,
    max_entries: COUNTERS.len() as u32,
    flags: 0,
    name: "weir_counts",
    describe: false,
};
const BEFORE_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_ARRAY,
    value_size: BEFORE,
    max_entries: 1,
    name: "weir_before",
    ..COUNTS_MAP
};
/// The network namespace of the node.
const NODE_MAP: MapSpec<'_> = MapSpec {
    value_size: 4,
    name: "weir_node_netns",
    ..BEFORE_MAP
};
const QUERIES_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_LRU_HASH,
    key_size: QUERY_KEY as u32,
    value_size: QUERY_VALUE as u32,
    max_entries: QUERIES,
    flags: 0,
    name: "weir_queries",
    describe: false,
};

const NODE_KEY: [u8; 4] = [0; 4];

/// The maps of one pod. They exist as long as this value, a program that uses them, or a pin.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) sockets: Map,
    pub(crate) counts: Map,
    pub(crate) before: Map,
    node: Map,
    /// Only with DNS capture.
    pub(crate) queries: Option<Map>,
    /// Only with events.
    pub(crate) events: Option<events::Maps>,
}

pub(crate) fn create(spec: &MapSpec<'_>) -> Result<Map> {
    crate::allow_locked_memory();
    Map::new(spec).map_err(|e| failed("create", &format!("map {}", spec.name), &e))
}

/// Creates the map for a program that is loaded, but never runs: as small as its kind allows.
pub(crate) fn create_small(spec: &MapSpec<'_>) -> Result<Map> {
    let max_entries = match spec.kind {
        BPF_MAP_TYPE_HASH | BPF_MAP_TYPE_LRU_HASH | BPF_MAP_TYPE_LPM_TRIE => 1,
        _ => spec.max_entries,
    };
    create(&MapSpec {
        max_entries,
        ..*spec
    })
}

/// True if a map has the type, sizes and flags that this version uses.
fn has_form(is: &MapInfo, spec: &MapSpec<'_>) -> bool {
    let is = (
        is.kind,
        is.key_size,
        is.value_size,
        is.max_entries,
        is.flags,
    );
    let wanted = (
        spec.kind,
        spec.key_size,
        spec.value_size,
        spec.max_entries,
        spec.flags,
    );
    is == wanted
}

/// Opens a pinned map of this form, and returns its id. `None`: there is none, or something else is pinned there.
pub(crate) fn find(path: &Path, spec: &MapSpec<'_>) -> Result<Option<(Map, u32)>> {
    let Some(map) = open(path)? else {
        return Ok(None);
    };
    let info = map.info();
    let info = info.map_err(|e| failed("read", &path.display().to_string(), &e))?;
    Ok(has_form(&info, spec).then_some((map, info.id)))
}

/// Opens a pinned map, or creates and pins it. Whatever else is pinned there is replaced, such as a map of another form: programs
/// that use it are replaced, too, because their maps are not the pinned ones.
pub(crate) fn open_or_create(folder: &Path, spec: &MapSpec<'_>) -> Result<Map> {
    let path = folder.join(spec.name);
    if let Some((map, _)) = find(&path, spec)? {
        return Ok(map);
    }
    pins::unpin(&path)?;
    let map = create(spec)?;
    pin(map.as_fd(), &path).map_err(|e| failed("pin", &path.display().to_string(), &e))?;
    Ok(map)
}

impl Maps {
    /// Creates the maps without pins, for trials.
    pub(crate) fn create(dns: bool, reports: bool) -> Result<Self> {
        Ok(Self {
            sockets: create(&SOCKETS_MAP)?,
            counts: create(&COUNTS_MAP)?,
            before: create(&BEFORE_MAP)?,
            node: create(&NODE_MAP)?,
            queries: dns.then(|| create(&QUERIES_MAP)).transpose()?,
            events: reports.then(events::Maps::create).transpose()?,
        })
    }

    /// Opens the pinned maps of a directory, and creates missing ones.
    pub(crate) fn pinned(folder: &Path, dns: bool, reports: bool) -> Result<Self> {
        let of_events = || events::Maps::pinned(folder);
        Ok(Self {
            sockets: open_or_create(folder, &SOCKETS_MAP)?,
            counts: open_or_create(folder, &COUNTS_MAP)?,
            before: open_or_create(folder, &BEFORE_MAP)?,
            node: open_or_create(folder, &NODE_MAP)?,
            queries: dns
                .then(|| open_or_create(folder, &QUERIES_MAP))
                .transpose()?,
            events: reports.then(of_events).transpose()?,
        })
    }

    /// Sets the namespace whose connections pass, by its id in the pod's namespace.
    pub(crate) fn set_node(&self, id: Option<i32>) -> Result<()> {
        let number = id.map_or(NODE_NONE, |id| id.wrapping_add(1));
        let written = self.node.set(&NODE_KEY, &number.to_ne_bytes());
        written.map_err(|e| failed("write", &format!("map {}", NODE_MAP.name), &e))
    }

    /// Returns the maps in the order of `MapRef`.
    pub(crate) fn list(&self) -> Vec<&Map> {
        [&self.sockets, &self.counts, &self.node]
            .into_iter()
            .chain(&self.queries)
            .chain(self.events.iter().flat_map(events::Maps::list))
            .collect()
    }
}

/// Returns the pins of the maps that a pod's programs use, in the order of `MapRef`.
fn wanted(folder: &Path, dns: bool, reports: bool) -> Vec<(PathBuf, MapSpec<'static>)> {
    let queries = dns.then_some(QUERIES_MAP);
    let own = [SOCKETS_MAP, COUNTS_MAP, NODE_MAP]
        .into_iter()
        .chain(queries);
    let own = own.map(|spec| (folder.join(spec.name), spec));
    let events = reports.then(|| events::wanted(folder));
    own.chain(events.into_iter().flatten()).collect()
}

/// Returns the ids of these pinned maps; `None` for one that is missing or has another form.
pub(crate) fn ids(folder: &Path, dns: bool, reports: bool) -> Result<Vec<Option<u32>>> {
    let id = |(path, spec): &(PathBuf, MapSpec<'_>)| Ok(find(path, spec)?.map(|(_, id)| id));
    wanted(folder, dns, reports).iter().map(id).collect()
}

/// Returns the counters of a pod's pinned map, with their names.
pub(crate) fn counters(folder: &Path) -> Result<Option<Vec<(&'static str, u64)>>> {
    sums(folder, &COUNTS_MAP, COUNTERS)
}

/// Returns the sums over all CPUs of a pinned map, with their names; `None` without the map, if it has another form, or if it
/// lacks one of them.
pub(crate) fn sums(
    folder: &Path,
    spec: &MapSpec<'_>,
    names: impl IntoIterator<Item = &'static str>,
) -> Result<Option<Vec<(&'static str, u64)>>> {
    let pin = folder.join(spec.name);
    let Some(map) = open(&pin)? else {
        return Ok(None);
    };
    let is = map.info();
    let is = is.map_err(|e| failed("read", &pin.display().to_string(), &e))?;
    let is_form = |is: (u32, u32, u32)| is == (spec.kind, spec.key_size, spec.value_size);
    if !is_form((is.kind, is.key_size, is.value_size)) {
        return Ok(None);
    }
    let mut sums = Vec::new();
    for (key, name) in (0_u32..).zip(names) {
        let sum = map.sum(&key.to_ne_bytes());
        let sum = sum.map_err(|e| failed("read", &pin.display().to_string(), &e))?;
        sums.push(sum.map(|sum| (name, sum)));
    }
    Ok(sums.into_iter().collect())
}

/// Opens the map of previous values in a directory, without creating it.
pub(crate) fn before(folder: &Path) -> Result<Option<Map>> {
    Ok(find(&folder.join(BEFORE_MAP.name), &BEFORE_MAP)?.map(|(map, _)| map))
}

/// Opens a pinned map; `None`: nothing is pinned there, or not a map.
pub(crate) fn open(path: &Path) -> Result<Option<Map>> {
    Ok(match pins::find(path)? {
        Some(Pinned::Map(map)) => Some(map),
        _ => None,
    })
}

/// Reads the id of the node's namespace in the pod's, without creating the map. `None`: no namespace is exempt.
pub(crate) fn node(folder: &Path) -> Result<Option<i32>> {
    let Some((map, _)) = find(&folder.join(NODE_MAP.name), &NODE_MAP)? else {
        return Ok(None);
    };
    let read = |e: &std::io::Error| failed("read", &format!("map {}", NODE_MAP.name), e);
    let value = map.get(&NODE_KEY).map_err(|e| read(&e))?;
    let number = value.and_then(|value| Some(i32::from_ne_bytes(value.try_into().ok()?)));
    let exempt = number.filter(|number| *number != NODE_NONE);
    Ok(exempt.map(|number| number.wrapping_sub(1)))
}
