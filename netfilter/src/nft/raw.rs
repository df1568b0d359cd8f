//! Constants of the kernel's interface, with their C names.
//!
//! Wire level: public for tests and for tools that read what the kernel was sent.
//!
//! A test compares every one with the system's headers. Attribute numbers stand with the
//! declaration of their attributes, in `expr` and `wire`.

macro_rules! constants {
    ($($(#[$m:meta])* $name:ident: $ty:ty = $value:expr,)*) => {
        $($(#[$m])* #[allow(missing_docs)] pub const $name: $ty = $value;)*
        /// Names and values, for the comparison with the system's headers.
        pub const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $name as i64)),*];
    };
}

constants! {
    // linux/in.h
    IPPROTO_ICMP: u8 = 1,
    IPPROTO_TCP: u8 = 6,
    IPPROTO_UDP: u8 = 17,
    IPPROTO_ICMPV6: u8 = 58,

    // linux/netfilter.h
    NFPROTO_UNSPEC: u8 = 0,
    NFPROTO_INET: u8 = 1,
    NFPROTO_IPV4: u8 = 2,
    NFPROTO_ARP: u8 = 3,
    NFPROTO_NETDEV: u8 = 5,
    NFPROTO_BRIDGE: u8 = 7,
    NFPROTO_IPV6: u8 = 10,
    NF_INET_PRE_ROUTING: u32 = 0,
    NF_INET_LOCAL_IN: u32 = 1,
    NF_INET_FORWARD: u32 = 2,
    NF_INET_LOCAL_OUT: u32 = 3,
    NF_INET_POST_ROUTING: u32 = 4,
    NF_INET_INGRESS: u32 = 5,
    NF_DROP: i32 = 0,
    NF_ACCEPT: i32 = 1,
    NF_STOLEN: i32 = 2,
    NF_QUEUE: i32 = 3,

    // linux/netfilter_ipv4.h, enum nf_ip_hook_priorities
    NF_IP_PRI_RAW: i32 = -300,
    NF_IP_PRI_MANGLE: i32 = -150,
    NF_IP_PRI_NAT_DST: i32 = -100,
    NF_IP_PRI_FILTER: i32 = 0,
    NF_IP_PRI_SECURITY: i32 = 50,
    NF_IP_PRI_NAT_SRC: i32 = 100,

    // linux/netfilter/nf_tables.h
    NFT_NAME_MAXLEN: usize = 256,
    NFT_USERDATA_MAXLEN: usize = 256,
    NFT_REG_VERDICT: u32 = 0,
    NFT_REG_1: u32 = 1,
    NFT_REG_2: u32 = 2,
    NFT_REG_3: u32 = 3,
    NFT_REG_4: u32 = 4,
    NFT_CONTINUE: i32 = -1,
    NFT_BREAK: i32 = -2,
    NFT_JUMP: i32 = -3,
    NFT_GOTO: i32 = -4,
    NFT_RETURN: i32 = -5,
    NFT_MSG_NEWTABLE: u16 = 0,
    NFT_MSG_GETTABLE: u16 = 1,
    NFT_MSG_DELTABLE: u16 = 2,
    NFT_MSG_NEWCHAIN: u16 = 3,
    NFT_MSG_GETCHAIN: u16 = 4,
    NFT_MSG_DELCHAIN: u16 = 5,
    NFT_MSG_NEWRULE: u16 = 6,
    NFT_MSG_GETRULE: u16 = 7,
    NFT_MSG_DELRULE: u16 = 8,
    NFT_MSG_NEWSET: u16 = 9,
    NFT_MSG_GETSET: u16 = 10,
    NFT_MSG_DELSET: u16 = 11,
    NFT_MSG_NEWSETELEM: u16 = 12,
    NFT_MSG_GETSETELEM: u16 = 13,
    NFT_MSG_DELSETELEM: u16 = 14,
    NFT_MSG_GETGEN: u16 = 16,
    NFT_MSG_NEWOBJ: u16 = 18,
    NFT_MSG_GETOBJ: u16 = 19,
    NFT_MSG_GETFLOWTABLE: u16 = 23,
    NFT_TABLE_F_DORMANT: u32 = 1,
    NFT_TABLE_F_OWNER: u32 = 2,
    NFT_SET_ANONYMOUS: u32 = 0x1,
    NFT_SET_CONSTANT: u32 = 0x2,
    NFT_SET_INTERVAL: u32 = 0x4,
    NFT_SET_MAP: u32 = 0x8,
    NFT_SET_TIMEOUT: u32 = 0x10,
    NFT_SET_EVAL: u32 = 0x20,
    NFT_SET_OBJECT: u32 = 0x40,
    NFT_SET_CONCAT: u32 = 0x80,
    NFT_SET_ELEM_INTERVAL_END: u32 = 0x1,
    NFT_DATA_VALUE: u32 = 0,
    NFT_DATA_VERDICT: u32 = 0xffff_ff00,
    NFT_BITWISE_BOOL: u32 = 0,
    NFT_BYTEORDER_NTOH: u32 = 0,
    NFT_BYTEORDER_HTON: u32 = 1,
    NFT_CMP_EQ: u32 = 0,
    NFT_CMP_NEQ: u32 = 1,
    NFT_CMP_LT: u32 = 2,
    NFT_CMP_LTE: u32 = 3,
    NFT_CMP_GT: u32 = 4,
    NFT_CMP_GTE: u32 = 5,
    NFT_RANGE_EQ: u32 = 0,
    NFT_RANGE_NEQ: u32 = 1,
    NFT_LOOKUP_F_INV: u32 = 1,
    NFT_PAYLOAD_LL_HEADER: u32 = 0,
    NFT_PAYLOAD_NETWORK_HEADER: u32 = 1,
    NFT_PAYLOAD_TRANSPORT_HEADER: u32 = 2,
    NFT_PAYLOAD_INNER_HEADER: u32 = 3,
    NFT_META_LEN: u32 = 0,
    NFT_META_PROTOCOL: u32 = 1,
    NFT_META_PRIORITY: u32 = 2,
    NFT_META_MARK: u32 = 3,
    NFT_META_IIF: u32 = 4,
    NFT_META_OIF: u32 = 5,
    NFT_META_IIFNAME: u32 = 6,
    NFT_META_OIFNAME: u32 = 7,
    NFT_META_IFTYPE: u32 = 8,
    NFT_META_OIFTYPE: u32 = 9,
    NFT_META_SKUID: u32 = 10,
    NFT_META_SKGID: u32 = 11,
    NFT_META_NFTRACE: u32 = 12,
    NFT_META_RTCLASSID: u32 = 13,
    NFT_META_NFPROTO: u32 = 15,
    NFT_META_L4PROTO: u32 = 16,
    NFT_META_BRI_IIFNAME: u32 = 17,
    NFT_META_BRI_OIFNAME: u32 = 18,
    NFT_META_PKTTYPE: u32 = 19,
    NFT_META_CPU: u32 = 20,
    NFT_META_IIFGROUP: u32 = 21,
    NFT_META_OIFGROUP: u32 = 22,
    NFT_META_CGROUP: u32 = 23,
    NFT_META_PRANDOM: u32 = 24,
    NFT_CT_STATE: u32 = 0,
    NFT_CT_DIRECTION: u32 = 1,
    NFT_CT_STATUS: u32 = 2,
    NFT_CT_MARK: u32 = 3,
    NFT_CT_EXPIRATION: u32 = 5,
    NFT_CT_L3PROTOCOL: u32 = 7,
    NFT_CT_SRC: u32 = 8,
    NFT_CT_DST: u32 = 9,
    NFT_CT_PROTOCOL: u32 = 10,
    NFT_CT_PROTO_SRC: u32 = 11,
    NFT_CT_PROTO_DST: u32 = 12,
    NFT_CT_PKTS: u32 = 14,
    NFT_CT_BYTES: u32 = 15,
    NFT_CT_ZONE: u32 = 17,
    NFT_CT_SRC_IP: u32 = 19,
    NFT_CT_DST_IP: u32 = 20,
    NFT_CT_SRC_IP6: u32 = 21,
    NFT_CT_DST_IP6: u32 = 22,
    NFT_SOCKET_TRANSPARENT: u32 = 0,
    NFT_SOCKET_MARK: u32 = 1,
    NFT_SOCKET_WILDCARD: u32 = 2,
    NFT_SOCKET_CGROUPV2: u32 = 3,
    NFT_FIB_RESULT_OIF: u32 = 1,
    NFT_FIB_RESULT_OIFNAME: u32 = 2,
    NFT_FIB_RESULT_ADDRTYPE: u32 = 3,
    NFTA_FIB_F_SADDR: u32 = 1,
    NFTA_FIB_F_DADDR: u32 = 2,
    NFTA_FIB_F_MARK: u32 = 4,
    NFTA_FIB_F_IIF: u32 = 8,
    NFTA_FIB_F_OIF: u32 = 16,
    NFTA_FIB_F_PRESENT: u32 = 32,
    NFT_LIMIT_PKTS: u32 = 0,
    NFT_LIMIT_PKT_BYTES: u32 = 1,
    NFT_LIMIT_F_INV: u32 = 1,
    NFT_REJECT_ICMP_UNREACH: u32 = 0,
    NFT_REJECT_TCP_RST: u32 = 1,
    NFT_REJECT_ICMPX_UNREACH: u32 = 2,
    NFT_REJECT_ICMPX_NO_ROUTE: u8 = 0,
    NFT_REJECT_ICMPX_PORT_UNREACH: u8 = 1,
    NFT_REJECT_ICMPX_HOST_UNREACH: u8 = 2,
    NFT_REJECT_ICMPX_ADMIN_PROHIBITED: u8 = 3,
    NFTA_SET_OBJ_TYPE: u16 = 15,
    NFTA_SET_EXPR: u16 = 17,
    NFTA_SET_ELEM_EXPR: u16 = 7,
    NFTA_SET_ELEM_OBJREF: u16 = 9,
    NFT_SET_ELEM_CATCHALL: u32 = 2,
    NFT_OBJECT_COUNTER: u32 = 1,
    NFT_OBJECT_QUOTA: u32 = 2,
    NFT_OBJECT_CT_HELPER: u32 = 3,
    NFT_OBJECT_LIMIT: u32 = 4,
    NFT_OBJECT_CT_TIMEOUT: u32 = 7,
    NFT_OBJECT_SECMARK: u32 = 8,
    NFT_OBJECT_CT_EXPECT: u32 = 9,
    NFT_QUOTA_F_INV: u32 = 1,
    NFT_NAT_SNAT: u32 = 0,
    NFT_NAT_DNAT: u32 = 1,

    // linux/netfilter/nf_nat.h
    NF_NAT_RANGE_MAP_IPS: u32 = 1,
    NF_NAT_RANGE_PROTO_SPECIFIED: u32 = 2,
    NF_NAT_RANGE_PROTO_RANDOM: u32 = 4,
    NF_NAT_RANGE_PERSISTENT: u32 = 8,
    NF_NAT_RANGE_PROTO_RANDOM_FULLY: u32 = 16,

    // linux/netfilter/nf_conntrack_common.h; state bits as NF_CT_STATE_BIT makes them
    IP_CT_DIR_ORIGINAL: u8 = 0,
    IP_CT_DIR_REPLY: u8 = 1,
    NF_CT_STATE_INVALID_BIT: u32 = 1,

    // linux/netfilter/nf_log.h
    NF_LOG_TCPSEQ: u32 = 1,
    NF_LOG_TCPOPT: u32 = 2,
    NF_LOG_IPOPT: u32 = 4,
    NF_LOG_UID: u32 = 8,
    NF_LOG_MACDECODE: u32 = 32,
    NF_LOG_MASK: u32 = 47,
}

/// `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)` and similar; function-like macros in C, so the test compares them by
/// expression.
pub mod ct_state {
    /// `NF_CT_STATE_INVALID_BIT`
    pub const INVALID: u32 = 1;
    /// `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)`
    pub const ESTABLISHED: u32 = 2;
    /// `NF_CT_STATE_BIT(IP_CT_RELATED)`
    pub const RELATED: u32 = 4;
    /// `NF_CT_STATE_BIT(IP_CT_NEW)`
    pub const NEW: u32 = 8;
    /// `NF_CT_STATE_UNTRACKED_BIT`. Since 4.11.
    pub const UNTRACKED: u32 = 64;
}
