//! Numbers of `linux/bpf.h`, grouped like its enums.

macro_rules! numbers {
    ($($(#[$meta:meta])* $visibility:vis const $name:ident: $ty:ty = $value:literal;)*) => {
        $($(#[$meta])* $visibility const $name: $ty = $value;)*

        /// Every number of this module by its name in C, for the comparison with the headers.
        const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $value as i64)),*];
    };
}

numbers! {
    // enum bpf_cmd
    pub(super) const BPF_MAP_CREATE: i32 = 0;
    pub(super) const BPF_MAP_LOOKUP_ELEM: i32 = 1;
    pub(super) const BPF_MAP_UPDATE_ELEM: i32 = 2;
    pub(super) const BPF_MAP_DELETE_ELEM: i32 = 3;
    pub(super) const BPF_MAP_GET_NEXT_KEY: i32 = 4;
    pub(super) const BPF_PROG_LOAD: i32 = 5;
    pub(super) const BPF_OBJ_PIN: i32 = 6;
    pub(super) const BPF_OBJ_GET: i32 = 7;
    pub(super) const BPF_PROG_TEST_RUN: i32 = 10;
    pub(super) const BPF_PROG_GET_NEXT_ID: i32 = 11;
    pub(super) const BPF_MAP_GET_NEXT_ID: i32 = 12;
    pub(super) const BPF_PROG_GET_FD_BY_ID: i32 = 13;
    pub(super) const BPF_MAP_GET_FD_BY_ID: i32 = 14;
    pub(super) const BPF_OBJ_GET_INFO_BY_FD: i32 = 15;
    pub(super) const BPF_PROG_QUERY: i32 = 16;
    pub(super) const BPF_BTF_LOAD: i32 = 18;
    pub(super) const BPF_MAP_LOOKUP_BATCH: i32 = 24;
    pub(super) const BPF_MAP_UPDATE_BATCH: i32 = 26;
    pub(super) const BPF_LINK_CREATE: i32 = 28;
    pub(super) const BPF_LINK_UPDATE: i32 = 29;
    pub(super) const BPF_LINK_GET_FD_BY_ID: i32 = 30;
    pub(super) const BPF_LINK_GET_NEXT_ID: i32 = 31;
    pub(super) const BPF_LINK_DETACH: i32 = 34;

    // enum bpf_map_type
    /// Keys of any bytes.
    pub const BPF_MAP_TYPE_HASH: u32 = 1;
    /// Keys are the numbers below `max_entries`; every entry exists.
    pub const BPF_MAP_TYPE_ARRAY: u32 = 2;
    /// An array with one value per CPU. Since 4.6
    pub const BPF_MAP_TYPE_PERCPU_ARRAY: u32 = 6;
    /// A hash that evicts the least recently used entries when it is full.
    pub const BPF_MAP_TYPE_LRU_HASH: u32 = 9;
    /// Longest prefix match. Since 4.11
    pub const BPF_MAP_TYPE_LPM_TRIE: u32 = 11;
    /// Values that belong to sockets. Since 5.2
    pub const BPF_MAP_TYPE_SK_STORAGE: u32 = 24;
    /// Events for a reader. Since 5.8
    pub const BPF_MAP_TYPE_RINGBUF: u32 = 27;
    /// Entries are allocated when they are added.
    pub const BPF_F_NO_PREALLOC: u32 = 1;

    // The header of a record in a ring buffer
    pub(super) const BPF_RINGBUF_BUSY_BIT: u32 = 0x8000_0000;
    pub(super) const BPF_RINGBUF_DISCARD_BIT: u32 = 0x4000_0000;
    pub(super) const BPF_RINGBUF_HDR_SZ: u32 = 8;

    // enum bpf_prog_type
    /// Traffic control.
    pub const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
    /// `bind(2)`, `connect(2)` and `sendmsg(2)` of the processes of a cgroup.
    pub const BPF_PROG_TYPE_CGROUP_SOCK_ADDR: u32 = 18;
    /// The first hook of an interface.
    pub const BPF_PROG_TYPE_XDP: u32 = 6;
    /// Choice of the socket for a packet.
    pub const BPF_PROG_TYPE_SK_LOOKUP: u32 = 30;

    // enum bpf_attach_type
    /// `connect(2)` over IPv4.
    pub const BPF_CGROUP_INET4_CONNECT: u32 = 10;
    /// Choice of the socket for a packet, in a network namespace.
    pub const BPF_SK_LOOKUP: u32 = 36;
    /// Ingress of an interface, before the kernel allocates an `sk_buff`.
    pub const BPF_XDP: u32 = 37;
    /// Ingress of an interface. Since 6.6
    pub const BPF_TCX_INGRESS: u32 = 46;
    /// Egress of an interface. Since 6.6
    pub const BPF_TCX_EGRESS: u32 = 47;
    /// Egress of the host's end of a netkit pair. Since 6.7
    pub const BPF_NETKIT_PRIMARY: u32 = 54;
    /// Egress of the pod's end of a netkit pair. Since 6.7
    pub const BPF_NETKIT_PEER: u32 = 55;

    // enum bpf_link_type
    /// The kind of a cgroup link.
    pub const BPF_LINK_TYPE_CGROUP: u32 = 3;
    /// The kind of a link to a network namespace.
    pub const BPF_LINK_TYPE_NETNS: u32 = 5;
    /// The kind of a tcx link.
    pub const BPF_LINK_TYPE_TCX: u32 = 11;
    /// The kind of an XDP link.
    pub const BPF_LINK_TYPE_XDP: u32 = 6;
    /// The kind of a netkit link.
    pub const BPF_LINK_TYPE_NETKIT: u32 = 13;

    // Flags of tcx and netkit links, and of BPF_MAP_UPDATE_ELEM
    pub(super) const BPF_F_REPLACE: u32 = 4;
    pub(super) const BPF_F_BEFORE: u32 = 8;
    pub(super) const BPF_F_AFTER: u32 = 16;
    pub(super) const BPF_ANY: u64 = 0;
    pub(super) const BPF_NOEXIST: u64 = 1;
}

/// Returns all numbers of this module, and all sizes and offsets of its structs, as C expressions and values.
#[must_use]
pub fn constants() -> Vec<(&'static str, i64)> {
    CONSTANTS
        .iter()
        .copied()
        .chain(super::program::LAYOUT.iter().copied())
        .chain(super::map::LAYOUT.iter().copied())
        .chain(super::batch::LAYOUT.iter().copied())
        .chain(super::link::LAYOUT.iter().copied())
        .chain(super::pin::LAYOUT.iter().copied())
        .chain(super::info::LAYOUT.iter().copied())
        .chain(super::query::LAYOUT.iter().copied())
        .collect()
}
