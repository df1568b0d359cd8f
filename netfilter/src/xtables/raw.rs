//! Constants and layouts of the kernel's interface, with their C names, for 64-bit machines.
//!
//! Wire level: public for tests and for tools that read what the kernel was sent.
//!
//! A test compares every one with the system's headers.

// Every layout below is that of LP64, native order. On other machines the pointers in the structures are shorter and
// the padding differs.
const _: () = assert!(
    usize::BITS == 64,
    "xtables layouts are those of 64-bit machines"
);

macro_rules! constants {
    ($($(#[$m:meta])* $name:ident: $ty:ty = $value:expr,)*) => {
        $($(#[$m])* #[allow(missing_docs)] pub const $name: $ty = $value;)*
        /// Names and values, for the comparison with the system's headers.
        pub const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $name as i64)),*];
    };
}

constants! {
    // linux/if.h
    IFNAMSIZ: usize = 16,

    // linux/netfilter/x_tables.h
    XT_FUNCTION_MAXNAMELEN: usize = 30,
    XT_EXTENSION_MAXNAMELEN: usize = 29,
    XT_TABLE_MAXNAMELEN: usize = 32,
    XT_RETURN: i32 = -5,
    XT_INV_PROTO: u8 = 0x40,

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
    IPT_ICMP_INV: u8 = 1,

    // linux/netfilter_ipv6/ip6_tables.h
    IP6T_SO_SET_REPLACE: i32 = 64,
    IP6T_SO_SET_ADD_COUNTERS: i32 = 65,
    IP6T_SO_GET_INFO: i32 = 64,
    IP6T_SO_GET_ENTRIES: i32 = 65,
    IP6T_SO_GET_REVISION_MATCH: i32 = 68,
    IP6T_SO_GET_REVISION_TARGET: i32 = 69,
    IP6T_F_PROTO: u8 = 1,
    IP6T_F_GOTO: u8 = 4,
    IP6T_INV_VIA_IN: u8 = 0x01,
    IP6T_INV_VIA_OUT: u8 = 0x02,
    IP6T_INV_SRCIP: u8 = 0x08,
    IP6T_INV_DSTIP: u8 = 0x10,
    IP6T_INV_PROTO: u8 = 0x40,
    IP6T_ICMP_INV: u8 = 1,

    // linux/netfilter/ipset/ip_set.h
    SO_IP_SET: i32 = 83,
    IP_SET_OP_GET_BYNAME: u32 = 6,
    IP_SET_OP_GET_BYINDEX: u32 = 7,
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
    IPSET_FLAG_MATCH_COUNTERS: u32 = 0x20,
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

    // linux/netfilter/nf_conntrack_common.h
    IPS_EXPECTED: u16 = 1,
    IPS_SEEN_REPLY: u16 = 2,
    IPS_ASSURED: u16 = 4,
    IPS_CONFIRMED: u16 = 8,

    // linux/netfilter/xt_state.h
    XT_STATE_UNTRACKED: u16 = 64,

    // linux/netfilter/xt_addrtype.h
    XT_ADDRTYPE_INVERT_SOURCE: u32 = 1,
    XT_ADDRTYPE_INVERT_DEST: u32 = 2,
    XT_ADDRTYPE_LIMIT_IFACE_IN: u32 = 4,
    XT_ADDRTYPE_LIMIT_IFACE_OUT: u32 = 8,

    // linux/netfilter/xt_comment.h
    XT_MAX_COMMENT_LEN: usize = 256,

    // linux/netfilter/xt_socket.h
    XT_SOCKET_TRANSPARENT: u8 = 1,
    XT_SOCKET_NOWILDCARD: u8 = 2,
    XT_SOCKET_RESTORESKMARK: u8 = 4,

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

    // linux/netfilter/xt_limit.h
    XT_LIMIT_SCALE: u32 = 10000,

    // linux/netfilter/xt_statistic.h
    XT_STATISTIC_MODE_RANDOM: u16 = 0,
    XT_STATISTIC_MODE_NTH: u16 = 1,
    XT_STATISTIC_INVERT: u16 = 1,

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

    // linux/netfilter/xt_LOG.h
    XT_LOG_TCPSEQ: u8 = 1,
    XT_LOG_TCPOPT: u8 = 2,
    XT_LOG_IPOPT: u8 = 4,
    XT_LOG_UID: u8 = 8,
    XT_LOG_MACDECODE: u8 = 32,

    // linux/netfilter/xt_NFLOG.h
    XT_NFLOG_F_COPY_LEN: u16 = 1,
    XT_NFLOG_DEFAULT_THRESHOLD: u16 = 0,

    // linux/netfilter_ipv4/ipt_REJECT.h
    IPT_ICMP_NET_UNREACHABLE: u32 = 0,
    IPT_ICMP_HOST_UNREACHABLE: u32 = 1,
    IPT_ICMP_PROT_UNREACHABLE: u32 = 2,
    IPT_ICMP_PORT_UNREACHABLE: u32 = 3,
    IPT_ICMP_NET_PROHIBITED: u32 = 5,
    IPT_ICMP_HOST_PROHIBITED: u32 = 6,
    IPT_TCP_RESET: u32 = 7,
    IPT_ICMP_ADMIN_PROHIBITED: u32 = 8,

    // linux/netfilter_ipv6/ip6t_REJECT.h
    IP6T_ICMP6_NO_ROUTE: u32 = 0,
    IP6T_ICMP6_ADM_PROHIBITED: u32 = 1,
    IP6T_ICMP6_ADDR_UNREACH: u32 = 3,
    IP6T_ICMP6_PORT_UNREACH: u32 = 4,
    IP6T_TCP_RESET: u32 = 6,
    IP6T_ICMP6_POLICY_FAIL: u32 = 7,
    IP6T_ICMP6_REJECT_ROUTE: u32 = 8,
}

/// `XT_CONNTRACK_STATE_BIT(IP_CT_ESTABLISHED)`; a function-like macro in C.
pub const XT_CONNTRACK_STATE_ESTABLISHED: u16 = 2;
/// `XT_CONNTRACK_STATE_BIT(IP_CT_RELATED)`
pub const XT_CONNTRACK_STATE_RELATED: u16 = 4;
/// `XT_CONNTRACK_STATE_BIT(IP_CT_NEW)`
pub const XT_CONNTRACK_STATE_NEW: u16 = 8;

/// Sizes of structures and offsets of their fields.
pub mod layout {
    macro_rules! layouts {
        ($($(#[$m:meta])* $name:ident = $expr:literal: $value:expr,)*) => {
            $($(#[$m])* #[allow(missing_docs)] pub const $name: usize = $value;)*
            /// C expressions and values, for the comparison with the system's headers.
            pub const LAYOUTS: &[(&str, usize)] = &[$(($expr, $name)),*];
        };
    }

    layouts! {
        // struct ipt_getinfo; ip6t_getinfo is the same
        INFO_SIZE = "sizeof(struct ipt_getinfo)": 84,
        INFO_VALID_HOOKS = "offsetof(struct ipt_getinfo, valid_hooks)": 32,
        INFO_HOOK_ENTRY = "offsetof(struct ipt_getinfo, hook_entry)": 36,
        INFO_UNDERFLOW = "offsetof(struct ipt_getinfo, underflow)": 56,
        INFO_NUM_ENTRIES = "offsetof(struct ipt_getinfo, num_entries)": 76,
        INFO_BYTES = "offsetof(struct ipt_getinfo, size)": 80,
        INFO_SIZE_6 = "sizeof(struct ip6t_getinfo)": 84,

        // struct ipt_get_entries
        ENTRIES_SIZE = "sizeof(struct ipt_get_entries)": 40,
        ENTRIES_BYTES = "offsetof(struct ipt_get_entries, size)": 32,
        ENTRIES_TABLE = "offsetof(struct ipt_get_entries, entrytable)": 40,
        ENTRIES_TABLE_6 = "offsetof(struct ip6t_get_entries, entrytable)": 40,

        // struct ipt_replace
        REPLACE_VALID_HOOKS = "offsetof(struct ipt_replace, valid_hooks)": 32,
        REPLACE_NUM_ENTRIES = "offsetof(struct ipt_replace, num_entries)": 36,
        REPLACE_BYTES = "offsetof(struct ipt_replace, size)": 40,
        REPLACE_HOOK_ENTRY = "offsetof(struct ipt_replace, hook_entry)": 44,
        REPLACE_UNDERFLOW = "offsetof(struct ipt_replace, underflow)": 64,
        REPLACE_NUM_COUNTERS = "offsetof(struct ipt_replace, num_counters)": 84,
        REPLACE_COUNTERS = "offsetof(struct ipt_replace, counters)": 88,
        REPLACE_ENTRIES = "offsetof(struct ipt_replace, entries)": 96,
        REPLACE_ENTRIES_6 = "offsetof(struct ip6t_replace, entries)": 96,

        // struct xt_counters and xt_counters_info
        COUNTERS_SIZE = "sizeof(struct xt_counters)": 16,
        COUNTERS_INFO_SIZE = "sizeof(struct xt_counters_info)": 40,
        COUNTERS_INFO_NUM = "offsetof(struct xt_counters_info, num_counters)": 32,
        COUNTERS_INFO_COUNTERS = "offsetof(struct xt_counters_info, counters)": 40,

        // struct ipt_entry and ipt_ip
        IP_SIZE = "sizeof(struct ipt_entry)": 112,
        IP_SRC = "offsetof(struct ipt_ip, src)": 0,
        IP_DST = "offsetof(struct ipt_ip, dst)": 4,
        IP_SMSK = "offsetof(struct ipt_ip, smsk)": 8,
        IP_DMSK = "offsetof(struct ipt_ip, dmsk)": 12,
        IP_INIFACE = "offsetof(struct ipt_ip, iniface)": 16,
        IP_OUTIFACE = "offsetof(struct ipt_ip, outiface)": 32,
        IP_INIFACE_MASK = "offsetof(struct ipt_ip, iniface_mask)": 48,
        IP_OUTIFACE_MASK = "offsetof(struct ipt_ip, outiface_mask)": 64,
        IP_PROTO = "offsetof(struct ipt_ip, proto)": 80,
        IP_FLAGS = "offsetof(struct ipt_ip, flags)": 82,
        IP_INVFLAGS = "offsetof(struct ipt_ip, invflags)": 83,
        IP_NFCACHE = "offsetof(struct ipt_entry, nfcache)": 84,
        IP_TARGET_OFFSET = "offsetof(struct ipt_entry, target_offset)": 88,
        IP_NEXT_OFFSET = "offsetof(struct ipt_entry, next_offset)": 90,
        IP_COMEFROM = "offsetof(struct ipt_entry, comefrom)": 92,
        IP_COUNTERS = "offsetof(struct ipt_entry, counters)": 96,

        // struct ip6t_entry and ip6t_ip6
        IP6_SIZE = "sizeof(struct ip6t_entry)": 168,
        IP6_SRC = "offsetof(struct ip6t_ip6, src)": 0,
        IP6_DST = "offsetof(struct ip6t_ip6, dst)": 16,
        IP6_SMSK = "offsetof(struct ip6t_ip6, smsk)": 32,
        IP6_DMSK = "offsetof(struct ip6t_ip6, dmsk)": 48,
        IP6_INIFACE = "offsetof(struct ip6t_ip6, iniface)": 64,
        IP6_OUTIFACE = "offsetof(struct ip6t_ip6, outiface)": 80,
        IP6_INIFACE_MASK = "offsetof(struct ip6t_ip6, iniface_mask)": 96,
        IP6_OUTIFACE_MASK = "offsetof(struct ip6t_ip6, outiface_mask)": 112,
        IP6_PROTO = "offsetof(struct ip6t_ip6, proto)": 128,
        IP6_FLAGS = "offsetof(struct ip6t_ip6, flags)": 131,
        IP6_INVFLAGS = "offsetof(struct ip6t_ip6, invflags)": 132,
        IP6_NFCACHE = "offsetof(struct ip6t_entry, nfcache)": 136,
        IP6_TARGET_OFFSET = "offsetof(struct ip6t_entry, target_offset)": 140,
        IP6_NEXT_OFFSET = "offsetof(struct ip6t_entry, next_offset)": 142,
        IP6_COMEFROM = "offsetof(struct ip6t_entry, comefrom)": 144,
        IP6_COUNTERS = "offsetof(struct ip6t_entry, counters)": 152,

        // struct xt_entry_match and xt_entry_target
        HEADER_SIZE = "sizeof(struct xt_entry_match)": 32,
        HEADER_NAME = "offsetof(struct xt_entry_match, u.user.name)": 2,
        HEADER_REVISION = "offsetof(struct xt_entry_match, u.user.revision)": 31,
        TARGET_HEADER_SIZE = "sizeof(struct xt_entry_target)": 32,
        STANDARD_SIZE = "sizeof(struct xt_standard_target)": 40,
        ERROR_SIZE = "sizeof(struct xt_error_target)": 64,

        // struct xt_get_revision and the requests of SO_IP_SET
        REVISION_SIZE = "sizeof(struct xt_get_revision)": 30,
        SET_REQUEST_SIZE = "sizeof(struct ip_set_req_get_set)": 40,
        SET_VERSION_SIZE = "sizeof(struct ip_set_req_version)": 8,
    }
}

/// Sizes of the extensions' structures, by the C name of each.
pub const SIZES: &[(&str, usize)] = &[
    ("struct xt_tcp", 12),
    ("struct xt_udp", 10),
    ("struct ipt_icmp", 4),
    ("struct ip6t_icmp", 4),
    ("struct xt_multiport", 32),
    ("struct xt_multiport_v1", 48),
    ("struct xt_owner_match_info", 20),
    ("struct xt_mark_mtinfo1", 12),
    ("struct xt_connmark_mtinfo1", 12),
    ("struct xt_conntrack_mtinfo1", 152),
    ("struct xt_conntrack_mtinfo2", 156),
    ("struct xt_conntrack_mtinfo3", 164),
    ("struct xt_state_info", 4),
    ("struct xt_set_info_match_v0", 32),
    ("struct xt_set_info_match_v1", 4),
    ("struct xt_set_info_match_v3", 48),
    ("struct xt_set_info_match_v4", 48),
    ("struct xt_addrtype_info", 12),
    ("struct xt_addrtype_info_v1", 8),
    ("struct xt_comment_info", 256),
    ("struct xt_socket_mtinfo1", 1),
    ("struct xt_iprange_mtinfo", 68),
    ("struct xt_physdev_info", 66),
    ("struct xt_pkttype_info", 8),
    ("struct xt_rateinfo", 40),
    ("struct xt_statistic_info", 24),
    ("struct xt_tos_match_info", 3),
    ("struct xt_dscp_info", 2),
    ("struct nf_nat_ipv4_multi_range_compat", 20),
    ("struct nf_nat_range", 40),
    ("struct nf_nat_range2", 44),
    ("struct xt_mark_tginfo2", 8),
    ("struct xt_connmark_tginfo1", 16),
    ("struct xt_connmark_tginfo2", 16),
    ("struct xt_tproxy_target_info", 16),
    ("struct xt_tproxy_target_info_v1", 28),
    ("struct xt_ct_target_info", 40),
    ("struct xt_ct_target_info_v1", 72),
    ("struct xt_log_info", 32),
    ("struct xt_nflog_info", 76),
    ("struct ipt_reject_info", 4),
    ("struct ip6t_reject_info", 4),
    ("struct xt_set_info_target_v1", 8),
    ("struct xt_set_info_target_v2", 16),
    ("struct xt_set_info_target_v3", 20),
];
