//! Constants of the kernel's interface, with their C names.
//!
//! Wire level: public for tests and for tools that read what the kernel was sent.
//!
//! A test compares every constant with the system's headers. Attribute numbers are declared with their attributes, in
//! `expr` and `wire`, keys of expressions with their values in `expr`.

pub use super::expr::{
    ct::constants::*, fib::constants::*, meta::constants::*, rt::constants::*,
    socket::constants::*, xfrm::constants::*,
};

constants! {
    // linux/netfilter.h
    enum nf_inet_hooks: u32 {
        NF_INET_PRE_ROUTING, NF_INET_LOCAL_IN, NF_INET_FORWARD, NF_INET_LOCAL_OUT,
        NF_INET_POST_ROUTING, NF_INET_INGRESS,
    }
    // linux/netfilter/nf_conntrack_tuple_common.h
    enum ip_conntrack_dir: u8 { IP_CT_DIR_ORIGINAL, IP_CT_DIR_REPLY }
    // linux/netfilter/nf_tables.h
    enum nf_tables_msg_types: u16 {
        NFT_MSG_NEWTABLE, NFT_MSG_GETTABLE, NFT_MSG_DELTABLE, NFT_MSG_NEWCHAIN, NFT_MSG_GETCHAIN,
        NFT_MSG_DELCHAIN, NFT_MSG_NEWRULE, NFT_MSG_GETRULE, NFT_MSG_DELRULE, NFT_MSG_NEWSET,
        NFT_MSG_GETSET, NFT_MSG_DELSET, NFT_MSG_NEWSETELEM, NFT_MSG_GETSETELEM, NFT_MSG_DELSETELEM,
        NFT_MSG_NEWGEN, NFT_MSG_GETGEN, NFT_MSG_NEWOBJ = 18, NFT_MSG_GETOBJ,
        NFT_MSG_NEWFLOWTABLE = 22, NFT_MSG_GETFLOWTABLE,
    }
    enum nft_bitwise_ops: u32 { NFT_BITWISE_BOOL, NFT_BITWISE_LSHIFT, NFT_BITWISE_RSHIFT }
    enum nft_cmp_ops: u32 {
        NFT_CMP_EQ, NFT_CMP_NEQ, NFT_CMP_LT, NFT_CMP_LTE, NFT_CMP_GT, NFT_CMP_GTE,
    }
    enum nft_range_ops: u32 { NFT_RANGE_EQ, NFT_RANGE_NEQ }
    enum nft_payload_bases: u32 {
        NFT_PAYLOAD_LL_HEADER, NFT_PAYLOAD_NETWORK_HEADER, NFT_PAYLOAD_TRANSPORT_HEADER,
        NFT_PAYLOAD_INNER_HEADER,
    }
    enum nft_limit_type: u32 { NFT_LIMIT_PKTS, NFT_LIMIT_PKT_BYTES }
    enum nft_reject_types: u32 {
        NFT_REJECT_ICMP_UNREACH, NFT_REJECT_TCP_RST, NFT_REJECT_ICMPX_UNREACH,
    }
    enum nft_nat_types: u32 { NFT_NAT_SNAT, NFT_NAT_DNAT }
    enum nft_dynset_ops: u32 { NFT_DYNSET_OP_ADD, NFT_DYNSET_OP_UPDATE, NFT_DYNSET_OP_DELETE }
    enum nft_exthdr_op: u32 {
        NFT_EXTHDR_OP_IPV6, NFT_EXTHDR_OP_TCPOPT, NFT_EXTHDR_OP_IPV4, NFT_EXTHDR_OP_SCTP,
        NFT_EXTHDR_OP_DCCP,
    }
    enum nft_hash_types: u32 { NFT_HASH_JENKINS, NFT_HASH_SYM }
    enum nft_ng_types: u32 { NFT_NG_INCREMENTAL, NFT_NG_RANDOM }

    values:
    // linux/in.h
    IPPROTO_ICMP: u8 = 1,
    IPPROTO_IGMP: u8 = 2,
    IPPROTO_TCP: u8 = 6,
    IPPROTO_UDP: u8 = 17,
    IPPROTO_DCCP: u8 = 33,
    IPPROTO_ESP: u8 = 50,
    IPPROTO_AH: u8 = 51,
    IPPROTO_ICMPV6: u8 = 58,
    IPPROTO_COMP: u8 = 108,
    IPPROTO_SCTP: u8 = 132,
    IPPROTO_UDPLITE: u8 = 136,

    // linux/netfilter.h
    NFPROTO_UNSPEC: u8 = 0,
    NFPROTO_INET: u8 = 1,
    NFPROTO_IPV4: u8 = 2,
    NFPROTO_ARP: u8 = 3,
    NFPROTO_NETDEV: u8 = 5,
    NFPROTO_BRIDGE: u8 = 7,
    NFPROTO_IPV6: u8 = 10,
    NF_DROP: i32 = 0,
    NF_ACCEPT: i32 = 1,
    NF_QUEUE: i32 = 3,

    // linux/netfilter/nf_tables.h
    NFT_NAME_MAXLEN: usize = 256,
    NFT_REG_VERDICT: u32 = 0,
    NFT_REG_1: u32 = 1,
    NFT_REG_2: u32 = 2,
    NFT_REG_4: u32 = 4,
    NFT_REG32_00: u32 = 8,
    NFT_CONTINUE: i32 = -1,
    NFT_JUMP: i32 = -3,
    NFT_GOTO: i32 = -4,
    NFT_RETURN: i32 = -5,
    NFT_TABLE_F_DORMANT: u32 = 1,
    NFT_TABLE_F_OWNER: u32 = 2,
    NFT_CHAIN_HW_OFFLOAD: u32 = 2,
    NFT_CHAIN_BINDING: u32 = 4,
    NFT_SET_POL_MEMORY: u32 = 1,
    NFT_SET_ANONYMOUS: u32 = 0x1,
    NFT_SET_CONSTANT: u32 = 0x2,
    NFT_SET_INTERVAL: u32 = 0x4,
    NFT_SET_MAP: u32 = 0x8,
    NFT_SET_TIMEOUT: u32 = 0x10,
    NFT_SET_EVAL: u32 = 0x20,
    NFT_SET_OBJECT: u32 = 0x40,
    NFT_SET_CONCAT: u32 = 0x80,
    NFT_SET_EXPR: u32 = 0x100,
    NFT_SET_ELEM_INTERVAL_END: u32 = 0x1,
    NFT_DATA_VERDICT: u32 = 0xffff_ff00,
    NFT_BYTEORDER_HTON: u32 = 1,
    NFT_LOOKUP_F_INV: u32 = 1,
    NFT_PAYLOAD_CSUM_NONE: u32 = 0,
    NFTA_FIB_F_SADDR: u32 = 1,
    NFTA_FIB_F_DADDR: u32 = 2,
    NFTA_FIB_F_MARK: u32 = 4,
    NFTA_FIB_F_IIF: u32 = 8,
    NFTA_FIB_F_OIF: u32 = 16,
    NFTA_FIB_F_PRESENT: u32 = 32,
    NFT_LIMIT_F_INV: u32 = 1,
    NFT_REJECT_ICMPX_PORT_UNREACH: u8 = 1,
    NFTA_SET_OBJ_TYPE: u16 = 15,
    NFTA_SET_EXPR: u16 = 17,
    NFTA_SET_EXPRESSIONS: u16 = 18,
    NFTA_SET_ELEM_EXPR: u16 = 7,
    NFTA_SET_ELEM_EXPRESSIONS: u16 = 11,
    NFTA_SET_ELEM_OBJREF: u16 = 9,
    NFT_SET_ELEM_CATCHALL: u32 = 2,
    NFT_OBJECT_COUNTER: u32 = 1,
    NFT_OBJECT_QUOTA: u32 = 2,
    NFT_OBJECT_CT_HELPER: u32 = 3,
    NFT_OBJECT_LIMIT: u32 = 4,
    NFT_OBJECT_CT_TIMEOUT: u32 = 7,
    NFT_OBJECT_SECMARK: u32 = 8,
    NFT_OBJECT_CT_EXPECT: u32 = 9,
    NFT_OBJECT_SYNPROXY: u32 = 10,
    NFT_QUOTA_F_INV: u32 = 1,
    NFT_QUOTA_F_DEPLETED: u32 = 2,
    NFT_CONNLIMIT_F_INV: u32 = 1,
    NFT_DYNSET_F_EXPR: u32 = 2,
    NFT_EXTHDR_F_PRESENT: u32 = 1,
    NFT_OSF_F_VERSION: u32 = 1,
    NFT_OSF_MAXGENRELEN: u32 = 16,
    NFT_QUEUE_FLAG_BYPASS: u16 = 1,
    NFT_QUEUE_FLAG_CPU_FANOUT: u16 = 2,

    // linux/netfilter/nf_nat.h
    NF_NAT_RANGE_MAP_IPS: u32 = 1,
    NF_NAT_RANGE_PROTO_SPECIFIED: u32 = 2,
    NF_NAT_RANGE_PROTO_RANDOM: u32 = 4,
    NF_NAT_RANGE_PERSISTENT: u32 = 8,
    NF_NAT_RANGE_PROTO_RANDOM_FULLY: u32 = 16,
    NF_NAT_RANGE_NETMAP: u32 = 64,

    // linux/netfilter/nf_synproxy.h
    NF_SYNPROXY_OPT_MSS: u32 = 1,
    NF_SYNPROXY_OPT_WSCALE: u32 = 2,
    NF_SYNPROXY_OPT_SACK_PERM: u32 = 4,
    NF_SYNPROXY_OPT_TIMESTAMP: u32 = 8,

    // linux/netfilter/nf_log.h
    NF_LOG_TCPSEQ: u32 = 1,
    NF_LOG_TCPOPT: u32 = 2,
    NF_LOG_IPOPT: u32 = 4,
    NF_LOG_UID: u32 = 8,
    NF_LOG_MACDECODE: u32 = 32,
    NF_LOG_MASK: u32 = 47,
}

/// The bits of `ct state`: `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)` and others. They are function-like macros in C, so the test
/// compares them by expression.
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
