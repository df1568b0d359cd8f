//! Maps: creation, and reads and writes of single entries. For batches see [`super::batch`].

use super::info::MapInfo;
use super::numbers::{
    BPF_ANY, BPF_BTF_LOAD, BPF_MAP_CREATE, BPF_MAP_DELETE_ELEM, BPF_MAP_GET_NEXT_KEY,
    BPF_MAP_LOOKUP_ELEM, BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_HASH, BPF_MAP_TYPE_LPM_TRIE,
    BPF_MAP_TYPE_LRU_HASH, BPF_MAP_TYPE_PERCPU_ARRAY, BPF_MAP_UPDATE_ELEM, BPF_NOEXIST,
};
use super::{call, call_for_fd, invalid, number, object_name, too_big};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// The prefix of `union bpf_attr` that `BPF_MAP_CREATE` reads.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
    map_ifindex: u32,
    btf_fd: u32,
    btf_key_type_id: u32,
    btf_value_type_id: u32,
}

/// The prefix that the commands for single entries read.
#[repr(C)]
#[derive(Default)]
struct Element {
    map_fd: u32,
    pad: u32,
    key: u64,
    /// `value`, and `next_key` of `BPF_MAP_GET_NEXT_KEY`
    value: u64,
    flags: u64,
}

/// The prefix that `BPF_BTF_LOAD` reads.
#[repr(C)]
#[derive(Default)]
struct BtfLoad {
    btf: u64,
    btf_log_buf: u64,
    btf_size: u32,
    btf_log_size: u32,
    btf_log_level: u32,
}

pub(super) const LAYOUT: &[(&str, i64)] = &[
    (
        "offsetof(union bpf_attr, map_flags)",
        offset_of!(MapCreate, map_flags) as i64,
    ),
    (
        "offsetof(union bpf_attr, map_name)",
        offset_of!(MapCreate, map_name) as i64,
    ),
    (
        "offsetof(union bpf_attr, btf_fd)",
        offset_of!(MapCreate, btf_fd) as i64,
    ),
    (
        "offsetof(union bpf_attr, btf_value_type_id)",
        offset_of!(MapCreate, btf_value_type_id) as i64,
    ),
    (
        "offsetof(union bpf_attr, key)",
        offset_of!(Element, key) as i64,
    ),
    (
        "offsetof(union bpf_attr, value)",
        offset_of!(Element, value) as i64,
    ),
    (
        "offsetof(union bpf_attr, next_key)",
        offset_of!(Element, value) as i64,
    ),
    (
        "offsetof(union bpf_attr, flags)",
        offset_of!(Element, flags) as i64,
    ),
    (
        "offsetof(union bpf_attr, btf_size)",
        offset_of!(BtfLoad, btf_size) as i64,
    ),
    (
        "offsetof(union bpf_attr, btf_log_level)",
        offset_of!(BtfLoad, btf_log_level) as i64,
    ),
];

/// Returns the type information (BTF) of an `int` of 4 bytes, in the format of `linux/btf.h`. It describes keys and values of maps
/// that cannot be created without BTF.
fn btf_of_int() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut put = |word: u32| bytes.extend_from_slice(&word.to_ne_bytes());
    // struct btf_header: magic 0xeb9f, version 1, flags 0, length 24; types at 0, 16 bytes; strings at 16, 5 bytes.
    put(u32::from_ne_bytes(if cfg!(target_endian = "little") {
        [0x9f, 0xeb, 1, 0]
    } else {
        [0xeb, 0x9f, 1, 0]
    }));
    for word in [24, 0, 16, 16, 5] {
        put(word);
    }
    // struct btf_type: name at 1, BTF_KIND_INT << 24, size 4; then BTF_INT_SIGNED << 24 | 32 bits.
    for word in [1, 1 << 24, 4, 1 << 24 | 32] {
        put(word);
    }
    bytes.extend_from_slice(b"\0int\0");
    bytes
}

/// Parameters of a new map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapSpec<'a> {
    /// `BPF_MAP_TYPE_*`
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Maximum number of entries; 0 for types without a limit.
    pub max_entries: u32,
    /// `BPF_F_*`
    pub flags: u32,
    /// At most 15 letters, digits, `_` and `.`; `bpftool map` shows it.
    pub name: &'a str,
    /// True to describe keys and values as integers of 4 bytes (`BPF_BTF_LOAD`), which socket storage needs.
    pub describe: bool,
}

/// A map. It exists as long as this descriptor, a pin, or a program that uses it.
#[derive(Debug)]
pub struct Map {
    pub(super) fd: OwnedFd,
    kind: u32,
    pub(super) key_size: usize,
    pub(super) value_size: usize,
}

impl Map {
    /// `bpf(BPF_MAP_CREATE)`. `map_type` is `BPF_MAP_TYPE_*`, sizes are bytes, `map_flags` is `BPF_F_*`.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the kernel does not know the type; `EPERM` without `CAP_BPF`.
    pub fn create(
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        map_flags: u32,
    ) -> io::Result<Self> {
        Self::new(&MapSpec {
            kind: map_type,
            key_size,
            value_size,
            max_entries,
            flags: map_flags,
            name: "",
            describe: false,
        })
    }

    /// `bpf(BPF_MAP_CREATE)` with a name.
    ///
    /// # Errors
    ///
    /// Those of [`Map::create`]; `EINVAL` also for a name that the kernel does not accept.
    pub fn new(spec: &MapSpec<'_>) -> io::Result<Self> {
        let btf = spec.describe.then(|| {
            let data = btf_of_int();
            let mut attr = BtfLoad {
                btf: data.as_ptr() as u64,
                btf_size: u32::try_from(data.len()).map_err(too_big)?,
                ..BtfLoad::default()
            };
            // SAFETY: `btf` points at `btf_size` bytes that live until the call returns, and the kernel only reads them;
            // no log is requested. `BPF_BTF_LOAD` returns a new descriptor.
            unsafe { call_for_fd(BPF_BTF_LOAD, &mut attr) }
        });
        let btf = btf.transpose()?;
        let (btf_fd, type_id) = match &btf {
            Some(btf) => (number(btf.as_fd())?, 1),
            None => (0, 0),
        };
        let mut attr = MapCreate {
            map_type: spec.kind,
            key_size: spec.key_size,
            value_size: spec.value_size,
            max_entries: spec.max_entries,
            map_flags: spec.flags,
            map_name: object_name(spec.name)?,
            btf_fd,
            btf_key_type_id: type_id,
            btf_value_type_id: type_id,
            ..MapCreate::default()
        };
        // SAFETY: the struct holds no pointer. `BPF_MAP_CREATE` returns a new descriptor.
        let fd = unsafe { call_for_fd(BPF_MAP_CREATE, &mut attr) }?;
        Ok(Self {
            fd,
            kind: spec.kind,
            key_size: usize::try_from(spec.key_size).map_err(too_big)?,
            value_size: usize::try_from(spec.value_size).map_err(too_big)?,
        })
    }

    /// Creates the value from a descriptor that is known to be a map. The sizes come from the kernel.
    pub(super) fn of(fd: OwnedFd) -> io::Result<Self> {
        let info = MapInfo::of(fd.as_fd())?;
        Ok(Self {
            fd,
            kind: info.kind,
            key_size: usize::try_from(info.key_size).map_err(too_big)?,
            value_size: usize::try_from(info.value_size).map_err(too_big)?,
        })
    }

    /// True for types where the kernel copies exactly `value_size` bytes per value: values of per-CPU maps are longer.
    pub(super) fn is_plain(&self) -> bool {
        matches!(
            self.kind,
            BPF_MAP_TYPE_HASH | BPF_MAP_TYPE_ARRAY | BPF_MAP_TYPE_LRU_HASH | BPF_MAP_TYPE_LPM_TRIE
        )
    }

    fn element(&self, key: Option<&[u8]>) -> io::Result<Element> {
        if !self.is_plain() || key.is_some_and(|key| key.len() != self.key_size) {
            return Err(invalid());
        }
        Ok(Element {
            map_fd: number(self.fd.as_fd())?,
            key: key.map_or(0, |key| key.as_ptr() as u64),
            ..Element::default()
        })
    }

    /// `bpf(BPF_MAP_LOOKUP_ELEM)`. `None`: there is no such entry.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the key has another length, or single entries of this type of map cannot be read here.
    pub fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0; self.value_size];
        let mut attr = self.element(Some(key))?;
        attr.value = value.as_mut_ptr() as u64;
        // SAFETY: `key` is borrowed and, as was checked, as long as a key of the map; `value` is owned by this function and
        // as long as a value, and the type of the map is one of those whose values are copied unchanged.
        found(unsafe { call(BPF_MAP_LOOKUP_ELEM, &mut attr) })
            .map(|is_there| is_there.then_some(value))
    }

    /// `bpf(BPF_MAP_LOOKUP_ELEM)` of an array with a counter of 8 bytes per CPU: returns the sum of all CPUs. `None`: there is no
    /// such entry.
    ///
    /// # Errors
    ///
    /// `EINVAL`: another type of map, or the key has another length; or the number of possible CPUs is unknown
    /// (`/sys/devices/system/cpu/possible`).
    pub fn sum(&self, key: &[u8]) -> io::Result<Option<u64>> {
        const COUNTER: usize = size_of::<u64>();
        let is_counter = self.kind == BPF_MAP_TYPE_PERCPU_ARRAY && self.value_size == COUNTER;
        if !is_counter || key.len() != self.key_size {
            return Err(invalid());
        }
        let mut values = vec![0_u64; possible_cpus()?];
        let mut attr = Element {
            map_fd: number(self.fd.as_fd())?,
            key: key.as_ptr() as u64,
            value: values.as_mut_ptr() as u64,
            ..Element::default()
        };
        // SAFETY: `key` is borrowed and as long as a key of the map. For this type, `bpf_percpu_array_copy()` writes one value
        // of 8 bytes for each possible CPU, and `values`, owned by this function, has space for that many.
        let is_there = found(unsafe { call(BPF_MAP_LOOKUP_ELEM, &mut attr) })?;
        Ok(is_there.then(|| {
            values
                .iter()
                .fold(0_u64, |sum, value| sum.wrapping_add(*value))
        }))
    }

    /// `bpf(BPF_MAP_UPDATE_ELEM)`: adds the entry or replaces it.
    ///
    /// # Errors
    ///
    /// `E2BIG`: the map is full; `EINVAL`: the key or the value has another length.
    pub fn set(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.write(key, value, BPF_ANY)
    }

    /// `bpf(BPF_MAP_UPDATE_ELEM)` with `BPF_NOEXIST`: adds the entry. Returns false if it exists.
    ///
    /// # Errors
    ///
    /// Those of [`Map::set`].
    pub fn add(&self, key: &[u8], value: &[u8]) -> io::Result<bool> {
        match self.write(key, value, BPF_NOEXIST) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            done => done.map(|()| true),
        }
    }

    fn write(&self, key: &[u8], value: &[u8], flags: u64) -> io::Result<()> {
        if value.len() != self.value_size {
            return Err(invalid());
        }
        let mut attr = self.element(Some(key))?;
        attr.value = value.as_ptr() as u64;
        attr.flags = flags;
        // SAFETY: `key` and `value` are borrowed and, as was checked, as long as those of the map; the kernel only reads
        // them, and the type of the map is one of those whose values are copied unchanged.
        unsafe { call(BPF_MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// `bpf(BPF_MAP_DELETE_ELEM)`. Returns false if there is no such entry.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the key has another length, or entries of this type of map cannot be deleted.
    pub fn delete(&self, key: &[u8]) -> io::Result<bool> {
        let mut attr = self.element(Some(key))?;
        // SAFETY: `key` is borrowed and, as was checked, as long as a key of the map; the kernel only reads it.
        found(unsafe { call(BPF_MAP_DELETE_ELEM, &mut attr) })
    }

    /// `bpf(BPF_MAP_GET_NEXT_KEY)`: returns the key after this one, or the first if `key` is `None`. `None`: `key` was the last.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the key has another length.
    pub fn next_key(&self, key: Option<&[u8]>) -> io::Result<Option<Vec<u8>>> {
        let mut next = vec![0; self.key_size];
        let mut attr = self.element(key)?;
        attr.value = next.as_mut_ptr() as u64;
        // SAFETY: `key` is null or borrowed and, as was checked, as long as a key of the map; `next` is owned by this
        // function and as long as a key.
        found(unsafe { call(BPF_MAP_GET_NEXT_KEY, &mut attr) })
            .map(|is_there| is_there.then_some(next))
    }

    /// Returns the kernel's information about the map.
    ///
    /// # Errors
    ///
    /// `EPERM`.
    pub fn info(&self) -> io::Result<MapInfo> {
        MapInfo::of(self.fd.as_fd())
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn found(answer: io::Result<libc::c_long>) -> io::Result<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Upper limit of CPU numbers, far above that of any kernel.
const MOST_CPUS: usize = 1 << 16;

/// Returns an upper bound of the number of possible CPUs: the last number of a list like `0-3,8-11`, plus one.
fn possible_cpus() -> io::Result<usize> {
    static KNOWN: OnceLock<usize> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(*known);
    }
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let count = last_cpu(&list).ok_or_else(|| {
        let reason = format!("/sys/devices/system/cpu/possible is not a list of CPUs: {list:?}");
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })?;
    Ok(*KNOWN.get_or_init(|| count))
}

pub(super) fn last_cpu(list: &str) -> Option<usize> {
    let last = list
        .trim()
        .rsplit(['-', ','])
        .next()?
        .parse::<usize>()
        .ok()?;
    (last < MOST_CPUS).then_some(last + 1)
}
