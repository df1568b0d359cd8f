//! Constants of the kernel's interface, with their C names.
//!
//! Wire level: public for tests and for tools that read what the kernel was sent.
//!
//! A test compares every one with the system's headers. Attribute numbers stand with the
//! declaration of their attributes, in [`wire`](super::wire).

constants! {
    // linux/netfilter.h
    NFPROTO_UNSPEC: u8 = 0,
    NFPROTO_IPV4: u8 = 2,
    NFPROTO_IPV6: u8 = 10,

    // linux/in.h
    IPPROTO_ICMP: u8 = 1,
    IPPROTO_TCP: u8 = 6,
    IPPROTO_UDP: u8 = 17,
    IPPROTO_ICMPV6: u8 = 58,
    IPPROTO_SCTP: u8 = 132,
    IPPROTO_UDPLITE: u8 = 136,

    // linux/netfilter/ipset/ip_set.h
    IPSET_PROTOCOL: u8 = 7,
    IPSET_PROTOCOL_MIN: u8 = 6,
    IPSET_MAXNAMELEN: usize = 32,
    IPSET_MAX_COMMENT_SIZE: usize = 255,

    // enum ipset_cmd
    IPSET_CMD_PROTOCOL: u16 = 1,
    IPSET_CMD_CREATE: u16 = 2,
    IPSET_CMD_DESTROY: u16 = 3,
    IPSET_CMD_FLUSH: u16 = 4,
    IPSET_CMD_RENAME: u16 = 5,
    IPSET_CMD_SWAP: u16 = 6,
    IPSET_CMD_LIST: u16 = 7,
    IPSET_CMD_ADD: u16 = 9,
    IPSET_CMD_DEL: u16 = 10,
    IPSET_CMD_TEST: u16 = 11,
    IPSET_CMD_HEADER: u16 = 12,
    IPSET_CMD_TYPE: u16 = 13,
    IPSET_CMD_GET_BYNAME: u16 = 14,
    IPSET_CMD_GET_BYINDEX: u16 = 15,

    // enum ipset_cmd_flags
    IPSET_FLAG_LIST_SETNAME: u32 = 1 << 1,
    IPSET_FLAG_LIST_HEADER: u32 = 1 << 2,

    // enum ipset_cadt_flags
    IPSET_FLAG_PHYSDEV: u32 = 1 << 1,
    IPSET_FLAG_NOMATCH: u32 = 1 << 2,
    IPSET_FLAG_IFACE_WILDCARD: u32 = 1 << 7,
    IPSET_FLAG_WITH_COUNTERS: u32 = 1 << 3,
    IPSET_FLAG_WITH_COMMENT: u32 = 1 << 4,
    IPSET_FLAG_WITH_FORCEADD: u32 = 1 << 5,
    IPSET_FLAG_WITH_SKBINFO: u32 = 1 << 6,

    // enum ipset_errno
    IPSET_ERR_PRIVATE: i32 = 4096,
    IPSET_ERR_PROTOCOL: i32 = 4097,
    IPSET_ERR_FIND_TYPE: i32 = 4098,
    IPSET_ERR_MAX_SETS: i32 = 4099,
    IPSET_ERR_BUSY: i32 = 4100,
    IPSET_ERR_EXIST_SETNAME2: i32 = 4101,
    IPSET_ERR_TYPE_MISMATCH: i32 = 4102,
    IPSET_ERR_EXIST: i32 = 4103,
    IPSET_ERR_INVALID_CIDR: i32 = 4104,
    IPSET_ERR_INVALID_NETMASK: i32 = 4105,
    IPSET_ERR_INVALID_FAMILY: i32 = 4106,
    IPSET_ERR_TIMEOUT: i32 = 4107,
    IPSET_ERR_REFERENCED: i32 = 4108,
    IPSET_ERR_IPADDR_IPV4: i32 = 4109,
    IPSET_ERR_IPADDR_IPV6: i32 = 4110,
    IPSET_ERR_COUNTER: i32 = 4111,
    IPSET_ERR_COMMENT: i32 = 4112,
    IPSET_ERR_INVALID_MARKMASK: i32 = 4113,
    IPSET_ERR_SKBINFO: i32 = 4114,
    IPSET_ERR_TYPE_SPECIFIC: i32 = 4352,

    // linux/netfilter/ipset/ip_set_bitmap.h
    IPSET_ERR_BITMAP_RANGE: i32 = 4352,
    IPSET_ERR_BITMAP_RANGE_SIZE: i32 = 4353,

    // linux/netfilter/ipset/ip_set_hash.h
    IPSET_ERR_HASH_FULL: i32 = 4352,
    IPSET_ERR_HASH_ELEM: i32 = 4353,
    IPSET_ERR_INVALID_PROTO: i32 = 4354,
    IPSET_ERR_MISSING_PROTO: i32 = 4355,
    IPSET_ERR_HASH_RANGE_UNSUPPORTED: i32 = 4356,
    IPSET_ERR_HASH_RANGE: i32 = 4357,

    // linux/netfilter/ipset/ip_set_list.h
    IPSET_ERR_NAME: i32 = 4352,
    IPSET_ERR_LOOP: i32 = 4353,
    IPSET_ERR_BEFORE: i32 = 4354,
    IPSET_ERR_NAMEREF: i32 = 4355,
    IPSET_ERR_LIST_FULL: i32 = 4356,
    IPSET_ERR_REF_EXIST: i32 = 4357,
}
