//! Information about objects.

use super::numbers::{
    BPF_LINK_GET_FD_BY_ID, BPF_LINK_TYPE_CGROUP, BPF_LINK_TYPE_NETKIT, BPF_LINK_TYPE_NETNS,
    BPF_LINK_TYPE_TCX, BPF_LINK_TYPE_XDP, BPF_MAP_GET_FD_BY_ID, BPF_MAP_GET_NEXT_ID,
    BPF_OBJ_GET_INFO_BY_FD, BPF_PROG_GET_FD_BY_ID, BPF_PROG_GET_NEXT_ID, BPF_XDP,
};
use super::{Link, Map, Program, call, call_for_fd, name_of, number, too_big};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};

/// Maximum number of maps of one program: `MAX_USED_MAPS` of the verifier.
const MOST_MAPS: usize = 64;
/// The prefix of `union bpf_attr` that `BPF_*_GET_NEXT_ID` and `BPF_*_GET_FD_BY_ID` read.
#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    next_id: u32,
    open_flags: u32,
}

/// The prefix that `BPF_OBJ_GET_INFO_BY_FD` reads.
#[repr(C)]
#[derive(Default)]
struct InfoByFd {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// A prefix of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
struct RawProgram {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_prog_len: u32,
    xlated_prog_len: u32,
    jited_prog_insns: u64,
    xlated_prog_insns: u64,
    load_time: u64,
    created_by_uid: u32,
    nr_map_ids: u32,
    map_ids: u64,
    name: [u8; 16],
}

/// A prefix of `struct bpf_map_info`.
#[repr(C)]
#[derive(Default)]
struct RawMap {
    kind: u32,
    id: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    name: [u8; 16],
}

/// A prefix of `struct bpf_link_info`. The first two words of the union are those of tcx, netkit, cgroup and netns links.
#[repr(C)]
#[derive(Default)]
struct RawLink {
    kind: u32,
    id: u32,
    prog_id: u32,
    pad: u32,
    words: [u32; 4],
}

pub(super) const LAYOUT: &[(&str, i64)] = &[
    (
        "offsetof(union bpf_attr, next_id)",
        offset_of!(ById, next_id) as i64,
    ),
    (
        "offsetof(union bpf_attr, open_flags)",
        offset_of!(ById, open_flags) as i64,
    ),
    (
        "offsetof(union bpf_attr, info.info_len)",
        offset_of!(InfoByFd, info_len) as i64,
    ),
    (
        "offsetof(union bpf_attr, info.info)",
        offset_of!(InfoByFd, info) as i64,
    ),
    (
        "offsetof(struct bpf_prog_info, tag)",
        offset_of!(RawProgram, tag) as i64,
    ),
    (
        "offsetof(struct bpf_prog_info, load_time)",
        offset_of!(RawProgram, load_time) as i64,
    ),
    (
        "offsetof(struct bpf_prog_info, nr_map_ids)",
        offset_of!(RawProgram, nr_map_ids) as i64,
    ),
    (
        "offsetof(struct bpf_prog_info, map_ids)",
        offset_of!(RawProgram, map_ids) as i64,
    ),
    (
        "offsetof(struct bpf_prog_info, name)",
        offset_of!(RawProgram, name) as i64,
    ),
    (
        "offsetof(struct bpf_map_info, key_size)",
        offset_of!(RawMap, key_size) as i64,
    ),
    (
        "offsetof(struct bpf_map_info, map_flags)",
        offset_of!(RawMap, map_flags) as i64,
    ),
    (
        "offsetof(struct bpf_map_info, name)",
        offset_of!(RawMap, name) as i64,
    ),
    (
        "offsetof(struct bpf_link_info, prog_id)",
        offset_of!(RawLink, prog_id) as i64,
    ),
    (
        "offsetof(struct bpf_link_info, netns.netns_ino)",
        offset_of!(RawLink, words) as i64,
    ),
    (
        "offsetof(struct bpf_link_info, cgroup.attach_type)",
        offset_of!(RawLink, words) as i64 + 8,
    ),
    (
        "offsetof(struct bpf_link_info, tcx.ifindex)",
        offset_of!(RawLink, words) as i64,
    ),
    (
        "offsetof(struct bpf_link_info, tcx.attach_type)",
        offset_of!(RawLink, words) as i64 + 4,
    ),
    (
        "offsetof(struct bpf_link_info, netkit.ifindex)",
        offset_of!(RawLink, words) as i64,
    ),
];

/// `struct bpf_prog_info`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramInfo {
    /// `BPF_PROG_TYPE_*`
    pub kind: u32,
    /// Unique on this machine while the program is loaded.
    pub id: u32,
    /// A digest of the instructions.
    pub tag: [u8; 8],
    /// The name it was loaded with.
    pub name: String,
    /// Bytes of instructions after the verifier.
    pub length: u32,
    /// Ids of its maps.
    pub maps: Vec<u32>,
}

/// `struct bpf_map_info`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapInfo {
    /// `BPF_MAP_TYPE_*`
    pub kind: u32,
    /// Unique on this machine while the map exists.
    pub id: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Maximum number of entries.
    pub max_entries: u32,
    /// `BPF_F_*`
    pub flags: u32,
    /// The name it was created with.
    pub name: String,
}

/// The object that a link is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkTarget {
    /// A tcx, netkit or XDP link: index of the interface, 0 if it was deleted, and `BPF_*` of `enum bpf_attach_type`.
    Interface(u32, u32),
    /// A cgroup: its id, and the attach type.
    Cgroup(u64, u32),
    /// A network namespace: its inode, and the attach type.
    Netns(u32, u32),
    /// Another kind.
    Other,
}

/// `struct bpf_link_info`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// `BPF_LINK_TYPE_*`
    pub kind: u32,
    /// Unique on this machine while the link exists.
    pub id: u32,
    /// The id of the program.
    pub program: u32,
    /// The object that it is attached to.
    pub target: LinkTarget,
}

/// Reads the kernel's struct about an object.
///
/// # Safety
///
/// `R` is a prefix of the struct that the kernel writes for this kind of object, any bytes are a valid `R`, and a pointer in it is
/// valid for the kernel's writes.
unsafe fn read<R>(object: BorrowedFd<'_>, raw: &mut R) -> io::Result<()> {
    let mut attr = InfoByFd {
        bpf_fd: number(object)?,
        info_len: u32::try_from(size_of::<R>()).map_err(too_big)?,
        info: std::ptr::from_mut(raw) as u64,
    };
    // SAFETY: `info` is borrowed mutably and `info_len` bytes long; the kernel writes no more than that. The object is
    // open during the call, the caller guarantees the rest. The command does not return a descriptor.
    unsafe { call(BPF_OBJ_GET_INFO_BY_FD, &mut attr) }.map(drop)
}

impl Program {
    /// Returns the kernel's information about the program.
    ///
    /// # Errors
    ///
    /// `EPERM`.
    pub fn info(&self) -> io::Result<ProgramInfo> {
        let mut maps = vec![0u32; MOST_MAPS];
        let mut raw = RawProgram {
            nr_map_ids: u32::try_from(maps.len()).map_err(too_big)?,
            map_ids: maps.as_mut_ptr() as u64,
            ..RawProgram::default()
        };
        // SAFETY: the struct is a prefix of `struct bpf_prog_info` and has only integers. `map_ids` is owned by this function
        // and `nr_map_ids` numbers long; the other pointers are null and their lengths 0, so the kernel does not write there.
        unsafe { read(self.as_fd(), &mut raw) }?;
        maps.truncate(usize::try_from(raw.nr_map_ids).map_err(too_big)?);
        Ok(ProgramInfo {
            kind: raw.kind,
            id: raw.id,
            tag: raw.tag,
            name: name_of(&raw.name),
            length: raw.xlated_prog_len,
            maps,
        })
    }

    /// `bpf(BPF_PROG_GET_FD_BY_ID)`. `None`: there is no such program.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn by_id(id: u32) -> io::Result<Option<Self>> {
        open(BPF_PROG_GET_FD_BY_ID, id).map(|fd| fd.map(Self))
    }

    /// `bpf(BPF_PROG_GET_NEXT_ID)`: the lowest id above this one. `None`: there is none.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn next_id(id: u32) -> io::Result<Option<u32>> {
        next(BPF_PROG_GET_NEXT_ID, id)
    }
}

impl Map {
    /// `bpf(BPF_MAP_GET_FD_BY_ID)`. `None`: there is no such map.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn by_id(id: u32) -> io::Result<Option<Self>> {
        open(BPF_MAP_GET_FD_BY_ID, id)?.map(Self::of).transpose()
    }

    /// `bpf(BPF_MAP_GET_NEXT_ID)`: the lowest id above this one. `None`: there is none.
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn next_id(id: u32) -> io::Result<Option<u32>> {
        next(BPF_MAP_GET_NEXT_ID, id)
    }
}

impl MapInfo {
    pub(super) fn of(map: BorrowedFd<'_>) -> io::Result<Self> {
        let mut raw = RawMap::default();
        // SAFETY: the struct is a prefix of `struct bpf_map_info`, has only integers, and no pointer.
        unsafe { read(map, &mut raw) }?;
        Ok(Self {
            kind: raw.kind,
            id: raw.id,
            key_size: raw.key_size,
            value_size: raw.value_size,
            max_entries: raw.max_entries,
            flags: raw.map_flags,
            name: name_of(&raw.name),
        })
    }
}

impl Link {
    /// `bpf(BPF_LINK_GET_FD_BY_ID)`. `None`: there is no such link, or its last descriptor and pin are gone. Since 5.8
    ///
    /// # Errors
    ///
    /// `EPERM` without `CAP_SYS_ADMIN`.
    pub fn by_id(id: u32) -> io::Result<Option<Self>> {
        open(BPF_LINK_GET_FD_BY_ID, id).map(|fd| fd.map(Self))
    }
}

impl LinkInfo {
    pub(super) fn of(link: BorrowedFd<'_>) -> io::Result<Self> {
        let mut raw = RawLink::default();
        // SAFETY: the struct is a prefix of `struct bpf_link_info` and has only integers. Pointers are in that union only
        // for links of other kinds, where the kernel reads a null pointer with length 0 as "not wanted".
        unsafe { read(link, &mut raw) }?;
        let [first, second, third, _] = raw.words;
        Ok(Self {
            kind: raw.kind,
            id: raw.id,
            program: raw.prog_id,
            target: match raw.kind {
                BPF_LINK_TYPE_TCX | BPF_LINK_TYPE_NETKIT => LinkTarget::Interface(first, second),
                BPF_LINK_TYPE_XDP => LinkTarget::Interface(first, BPF_XDP),
                BPF_LINK_TYPE_NETNS => LinkTarget::Netns(first, second),
                BPF_LINK_TYPE_CGROUP => LinkTarget::Cgroup(word(first, second), third),
                _ => LinkTarget::Other,
            },
        })
    }
}

/// Joins the two halves of a number in host order.
fn word(first: u32, second: u32) -> u64 {
    let (low, high) = match cfg!(target_endian = "little") {
        true => (first, second),
        false => (second, first),
    };
    u64::from(high) << 32 | u64::from(low)
}

fn open(command: libc::c_int, id: u32) -> io::Result<Option<std::os::fd::OwnedFd>> {
    let mut attr = ById {
        id,
        ..ById::default()
    };
    // SAFETY: the struct holds no pointer. The command returns a new descriptor.
    match unsafe { call_for_fd(command, &mut attr) } {
        Ok(fd) => Ok(Some(fd)),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

pub(super) fn next(command: libc::c_int, id: u32) -> io::Result<Option<u32>> {
    let mut attr = ById {
        id,
        ..ById::default()
    };
    // SAFETY: the struct holds no pointer. The command does not return a descriptor.
    match unsafe { call(command, &mut attr) } {
        Ok(_) => Ok(Some(attr.next_id)),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}
