//! Constants and layouts of the kernel's interface, with their C names, for 64-bit machines.
//!
//! Wire level: public for tests and for tools that read what the kernel was sent.
//!
//! A test compares every constant and layout with the system's headers.

use super::structs::{GetEntries, GetInfo, Head, Replace, XtCountersInfo};

// Every layout is that of LP64, native order. On other machines the pointers in the structures are shorter and
// the padding differs.
const _: () = assert!(
    usize::BITS == 64,
    "xtables layouts are those of 64-bit machines"
);

constants! {
    // linux/if.h
    IFNAMSIZ: usize = 16,

    // linux/netfilter/x_tables.h
    XT_FUNCTION_MAXNAMELEN: usize = 30,
    XT_EXTENSION_MAXNAMELEN: usize = 29,
    XT_TABLE_MAXNAMELEN: usize = 32,
    XT_RETURN: i32 = -5,

    // linux/netfilter.h
    NF_DROP: i32 = 0,
    NF_ACCEPT: i32 = 1,
    NF_QUEUE: i32 = 3,
    NF_INET_NUMHOOKS: usize = 5,

    // linux/netfilter_ipv4/ip_tables.h
    IPT_SO_SET_REPLACE: i32 = 64,
    IPT_SO_SET_ADD_COUNTERS: i32 = 65,
    IPT_SO_GET_INFO: i32 = 64,
    IPT_SO_GET_ENTRIES: i32 = 65,
    IPT_SO_GET_REVISION_MATCH: i32 = 66,
    IPT_SO_GET_REVISION_TARGET: i32 = 67,
    IPT_F_FRAG: u8 = 1,
    IPT_F_GOTO: u8 = 2,
    IPT_INV_VIA_IN: u8 = 0x01,
    IPT_INV_VIA_OUT: u8 = 0x02,
    IPT_INV_SRCIP: u8 = 0x08,
    IPT_INV_DSTIP: u8 = 0x10,
    IPT_INV_FRAG: u8 = 0x20,
    IPT_INV_PROTO: u8 = 0x40,

    // linux/netfilter_ipv6/ip6_tables.h
    IP6T_SO_GET_REVISION_MATCH: i32 = 68,
    IP6T_SO_GET_REVISION_TARGET: i32 = 69,
    IP6T_F_PROTO: u8 = 1,
    IP6T_F_GOTO: u8 = 4,

    // linux/netfilter/ipset/ip_set.h
    SO_IP_SET: i32 = 83,
    IP_SET_OP_GET_BYINDEX: u32 = 7,
    IP_SET_OP_GET_FNAME: u32 = 8,
    IP_SET_OP_VERSION: u32 = 0x100,
    IPSET_MAXNAMELEN: usize = 32,
    IPSET_INVALID_ID: u16 = 65535,
    IPSET_DIM_MAX: usize = 6,
    IPSET_INV_MATCH: u8 = 1,
    IPSET_RETURN_NOMATCH: u8 = 0x80,
    IPSET_COUNTER_NONE: u8 = 0,
    IPSET_COUNTER_EQ: u8 = 1,
    IPSET_COUNTER_NE: u8 = 2,
    IPSET_COUNTER_LT: u8 = 3,
    IPSET_COUNTER_GT: u8 = 4,
    IPSET_FLAG_EXIST: u32 = 1,
    IPSET_FLAG_SKIP_COUNTER_UPDATE: u32 = 0x8,
    IPSET_FLAG_SKIP_SUBCOUNTER_UPDATE: u32 = 0x10,
    IPSET_FLAG_RETURN_NOMATCH: u32 = 0x80,
    IPSET_FLAG_MAP_SKBMARK: u32 = 0x100,
    IPSET_FLAG_MAP_SKBPRIO: u32 = 0x200,
    IPSET_FLAG_MAP_SKBQUEUE: u32 = 0x400,

    // linux/netfilter/xt_set.h
    IPSET_SRC: u32 = 1,
    IPSET_DST: u32 = 2,
    IPSET_MATCH_INV: u32 = 4,

    // linux/netfilter/xt_tcpudp.h
    XT_TCP_INV_SRCPT: u8 = 1,
    XT_TCP_INV_DSTPT: u8 = 2,
    XT_TCP_INV_FLAGS: u8 = 4,
    XT_TCP_INV_OPTION: u8 = 8,
    XT_UDP_INV_SRCPT: u8 = 1,
    XT_UDP_INV_DSTPT: u8 = 2,

    // linux/netfilter/xt_multiport.h
    XT_MULTIPORT_SOURCE: u8 = 0,
    XT_MULTIPORT_DESTINATION: u8 = 1,
    XT_MULTIPORT_EITHER: u8 = 2,
    XT_MULTI_PORTS: usize = 15,

    // linux/netfilter/xt_owner.h
    XT_OWNER_UID: u8 = 1,
    XT_OWNER_GID: u8 = 2,
    XT_OWNER_SOCKET: u8 = 4,
    XT_OWNER_SUPPL_GROUPS: u8 = 8,

    // linux/netfilter/xt_conntrack.h
    XT_CONNTRACK_STATE_INVALID: u16 = 1,
    XT_CONNTRACK_STATE_SNAT: u16 = 64,
    XT_CONNTRACK_STATE_DNAT: u16 = 128,
    XT_CONNTRACK_STATE_UNTRACKED: u16 = 256,
    XT_CONNTRACK_STATE: u16 = 0x1,
    XT_CONNTRACK_PROTO: u16 = 0x2,
    XT_CONNTRACK_ORIGSRC: u16 = 0x4,
    XT_CONNTRACK_ORIGDST: u16 = 0x8,
    XT_CONNTRACK_REPLSRC: u16 = 0x10,
    XT_CONNTRACK_REPLDST: u16 = 0x20,
    XT_CONNTRACK_STATUS: u16 = 0x40,
    XT_CONNTRACK_EXPIRES: u16 = 0x80,
    XT_CONNTRACK_ORIGSRC_PORT: u16 = 0x100,
    XT_CONNTRACK_ORIGDST_PORT: u16 = 0x200,
    XT_CONNTRACK_REPLSRC_PORT: u16 = 0x400,
    XT_CONNTRACK_REPLDST_PORT: u16 = 0x800,
    XT_CONNTRACK_DIRECTION: u16 = 0x1000,
    XT_CONNTRACK_STATE_ALIAS: u16 = 0x2000,

    // linux/netfilter/xt_state.h
    XT_STATE_UNTRACKED: u16 = 64,

    // linux/netfilter/xt_comment.h
    XT_MAX_COMMENT_LEN: usize = 256,

    // linux/netfilter/xt_iprange.h
    IPRANGE_SRC: u8 = 1,
    IPRANGE_DST: u8 = 2,
    IPRANGE_SRC_INV: u8 = 0x10,
    IPRANGE_DST_INV: u8 = 0x20,

    // linux/netfilter/xt_physdev.h
    XT_PHYSDEV_OP_IN: u8 = 1,
    XT_PHYSDEV_OP_OUT: u8 = 2,
    XT_PHYSDEV_OP_BRIDGED: u8 = 4,
    XT_PHYSDEV_OP_ISIN: u8 = 8,
    XT_PHYSDEV_OP_ISOUT: u8 = 16,

    // linux/netfilter/xt_connmark.h
    XT_CONNMARK_SET: u8 = 0,
    XT_CONNMARK_SAVE: u8 = 1,
    XT_CONNMARK_RESTORE: u8 = 2,

    // linux/netfilter/nf_nat.h
    NF_NAT_RANGE_MAP_IPS: u32 = 1,
    NF_NAT_RANGE_PROTO_SPECIFIED: u32 = 2,
    NF_NAT_RANGE_PROTO_RANDOM: u32 = 4,
    NF_NAT_RANGE_PERSISTENT: u32 = 8,
    NF_NAT_RANGE_PROTO_RANDOM_FULLY: u32 = 16,
    NF_NAT_RANGE_PROTO_OFFSET: u32 = 32,

    // linux/netfilter/xt_CT.h
    XT_CT_NOTRACK: u16 = 1,
    XT_CT_NOTRACK_ALIAS: u16 = 2,
    XT_CT_ZONE_DIR_ORIG: u16 = 4,
    XT_CT_ZONE_DIR_REPL: u16 = 8,
    XT_CT_ZONE_MARK: u16 = 16,
}

/// `XT_CONNTRACK_STATE_BIT(IP_CT_ESTABLISHED)`; a function-like macro in C.
pub const XT_CONNTRACK_STATE_ESTABLISHED: u16 = 2;
/// `XT_CONNTRACK_STATE_BIT(IP_CT_RELATED)`
pub const XT_CONNTRACK_STATE_RELATED: u16 = 4;
/// `XT_CONNTRACK_STATE_BIT(IP_CT_NEW)`
pub const XT_CONNTRACK_STATE_NEW: u16 = 8;

/// Sizes of structures and offsets of their fields, as C expressions and their values in this crate, for a test that compares
/// them with the system's headers.
#[must_use]
pub fn layouts() -> Vec<(String, usize)> {
    let mut all = super::structs::layouts();
    all.extend(super::ext::structs::layouts());
    let mut start = |c: &str, field: &str, size: usize| {
        all.push((format!("offsetof(struct {c}, {field})"), size));
    };
    for family in ["ipt", "ip6t"] {
        let entries = size_of::<GetEntries>();
        start(&format!("{family}_get_entries"), "entrytable", entries);
        let replace = size_of::<Replace>();
        start(&format!("{family}_replace"), "entries", replace);
    }
    let counters = size_of::<XtCountersInfo>();
    start("xt_counters_info", "counters", counters);
    for (c, size) in [("standard", STANDARD_SIZE), ("error", ERROR_SIZE)] {
        let c = format!("sizeof(struct xt_{c}_target)");
        all.push((c, size_of::<Head>() + size));
    }
    all
}

/// `sizeof(struct ipt_getinfo)`
pub(crate) const INFO_SIZE: usize = size_of::<GetInfo>();

/// Size of a standard target after its head: the verdict, padded.
pub(super) const STANDARD_SIZE: usize = 8;
/// Size of an error target after its head: the name, padded.
pub(super) const ERROR_SIZE: usize = 32;
