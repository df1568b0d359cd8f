//! Constants of the kernel's interface, with their C names.
//!
//! Wire level: public for tests, and for tools that decode messages to the kernel.
//!
//! A test compares every constant with the system's headers. Attribute numbers are declared with their attributes, in
//! [`wire`](super::wire).

constants! {
    // linux/netfilter/ipset/ip_set.h
    enum ipset_cmd: u16 {
        IPSET_CMD_PROTOCOL = 1, IPSET_CMD_CREATE, IPSET_CMD_DESTROY, IPSET_CMD_FLUSH,
        IPSET_CMD_RENAME, IPSET_CMD_SWAP, IPSET_CMD_LIST, IPSET_CMD_ADD = 9, IPSET_CMD_DEL,
        IPSET_CMD_TEST, IPSET_CMD_HEADER, IPSET_CMD_TYPE, IPSET_CMD_GET_BYNAME,
        IPSET_CMD_GET_BYINDEX,
    }
    enum ipset_errno: i32 {
        IPSET_ERR_PRIVATE = 4096, IPSET_ERR_PROTOCOL, IPSET_ERR_FIND_TYPE, IPSET_ERR_MAX_SETS,
        IPSET_ERR_BUSY, IPSET_ERR_EXIST_SETNAME2, IPSET_ERR_TYPE_MISMATCH, IPSET_ERR_EXIST,
        IPSET_ERR_INVALID_CIDR, IPSET_ERR_INVALID_NETMASK, IPSET_ERR_INVALID_FAMILY,
        IPSET_ERR_TIMEOUT, IPSET_ERR_REFERENCED, IPSET_ERR_IPADDR_IPV4, IPSET_ERR_IPADDR_IPV6,
        IPSET_ERR_COUNTER, IPSET_ERR_COMMENT, IPSET_ERR_INVALID_MARKMASK, IPSET_ERR_SKBINFO,
        IPSET_ERR_TYPE_SPECIFIC = 4352,
    }
    // linux/netfilter/ipset/ip_set_bitmap.h, ip_set_hash.h and ip_set_list.h, whose enums have no names
    enum ip_set_bitmap: i32 { IPSET_ERR_BITMAP_RANGE = 4352, IPSET_ERR_BITMAP_RANGE_SIZE }
    enum ip_set_hash: i32 {
        IPSET_ERR_HASH_FULL = 4352, IPSET_ERR_HASH_ELEM, IPSET_ERR_INVALID_PROTO,
        IPSET_ERR_MISSING_PROTO, IPSET_ERR_HASH_RANGE_UNSUPPORTED, IPSET_ERR_HASH_RANGE,
    }
    enum ip_set_list: i32 {
        IPSET_ERR_NAME = 4352, IPSET_ERR_LOOP, IPSET_ERR_BEFORE, IPSET_ERR_NAMEREF,
        IPSET_ERR_LIST_FULL, IPSET_ERR_REF_EXIST,
    }

    values:
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
}
