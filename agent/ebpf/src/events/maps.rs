//! The maps of events: the ring and the watch map, which all namespaces share, and the pace map of each namespace.

use crate::failed;
use crate::inpod::layout::{PACE_COUNT, WATCH_LOST};
use crate::maps::{create, open_or_create};
use crate::pins::{self, Bpffs, LAYOUT};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use weir_bpf::{BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_RINGBUF, Map, MapSpec};
use weir_netlink::Result;

/// Size of the ring in bytes: about 680 events. A power of two, and a multiple of the page size on every architecture.
const ROOM: u32 = 64 << 10;
pub(super) const RING_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_RINGBUF,
    key_size: 0,
    value_size: 0,
    max_entries: ROOM,
    flags: 0,
    name: "weir_events",
    describe: false,
};
pub(super) const WATCH_MAP: MapSpec<'_> = MapSpec {
    kind: BPF_MAP_TYPE_ARRAY,
    key_size: 4,
    value_size: WATCH_LOST as u32 + 8,
    max_entries: 1,
    flags: 0,
    name: "weir_watch",
    describe: false,
};
const PACE_MAP: MapSpec<'_> = MapSpec {
    value_size: PACE_COUNT as u32 + 8,
    name: "weir_pace",
    ..WATCH_MAP
};
pub(super) const KEY_0: [u8; 4] = [0; 4];

/// The maps of events of one namespace. They exist as long as this value, a program that uses them, or a pin.
#[derive(Debug)]
pub(crate) struct Maps([Map; 3]);

impl Maps {
    /// Creates the maps without pins, for trials.
    pub(crate) fn create() -> Result<Self> {
        Ok(Self([
            create(&RING_MAP)?,
            create(&WATCH_MAP)?,
            create(&PACE_MAP)?,
        ]))
    }

    /// Opens the map in the directory of a namespace and the shared maps, and creates missing ones.
    pub(crate) fn pinned(folder: &Path) -> Result<Self> {
        let shared = shared(folder);
        let ring = open_or_create(shared, &RING_MAP)?;
        let watch = open_or_create(shared, &WATCH_MAP)?;
        let pace = open_or_create(folder, &PACE_MAP)?;
        let inode = folder.file_name().and_then(|name| name.to_str());
        let inode: u64 = inode.and_then(|name| name.parse().ok()).unwrap_or(0);
        let mut value = vec![0; usize::try_from(PACE_MAP.value_size).unwrap_or(0)];
        if let Some(place) = value.first_chunk_mut() {
            *place = inode.to_ne_bytes();
        }
        let written = pace.set(&KEY_0, &value);
        written.map_err(|e| failed("write", "map weir_pace", &e))?;
        Ok(Self([ring, watch, pace]))
    }

    /// Returns the maps in the order of the programs' references.
    pub(crate) fn list(&self) -> impl Iterator<Item = &Map> {
        self.0.iter()
    }
}

/// Returns the directory of the shared pins, which is the parent of the layout's directory.
fn shared(folder: &Path) -> &Path {
    folder.ancestors().nth(2).unwrap_or(folder)
}

/// Returns the pins of the maps that programs of this directory use for events, in the order of the programs' references.
pub(crate) fn wanted(folder: &Path) -> [(PathBuf, MapSpec<'static>); 3] {
    let shared = shared(folder);
    [
        (shared.join(RING_MAP.name), RING_MAP),
        (shared.join(WATCH_MAP.name), WATCH_MAP),
        (folder.join(PACE_MAP.name), PACE_MAP),
    ]
}

/// Tests whether this kernel supports ring buffers by creating one.
///
/// # Errors
/// bpf(2) is not permitted, or there is no memory, so the answer is unknown.
pub(crate) fn is_supported() -> Result<bool> {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(*known);
    }
    let answer = match create(&RING_MAP) {
        Ok(_) => true,
        Err(e) if e.errno() == Some(crate::libc_errno::EINVAL) => false,
        Err(e) => return Err(e),
    };
    Ok(*KNOWN.get_or_init(|| answer))
}

const SHARED: [&str; 2] = [RING_MAP.name, WATCH_MAP.name];

/// Unpins the shared maps once no namespace is left. The caller holds the lock.
pub(crate) fn forget(bpffs: &Bpffs) -> Result<()> {
    match is_left(bpffs)? {
        true => SHARED
            .iter()
            .try_for_each(|name| pins::unpin(&bpffs.weir().join(name))),
        false => Ok(()),
    }
}

/// True if shared maps are pinned, and no namespace is left that uses them.
pub(crate) fn is_left(bpffs: &Bpffs) -> Result<bool> {
    let weir = bpffs.weir();
    let is_shared = |path: PathBuf| SHARED.iter().any(|name| path.ends_with(name));
    let has_shared = pins::entries(&weir)?.into_iter().any(is_shared);
    Ok(has_shared && pins::entries(&weir.join(LAYOUT))?.is_empty())
}
