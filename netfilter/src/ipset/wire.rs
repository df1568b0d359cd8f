//! The attributes of ipset messages (`linux/netfilter/ipset/ip_set.h`), one declaration per object.
//!
//! Wire level: public for tests, and for tools that decode messages to the kernel.
//!
//! ```text
//! CREATE, sets in answers to LIST          CommandAttrs > CreateAttrs > IpAttrs
//! ADD, DEL, entries in answers to LIST     CommandAttrs > [EntryAttrs > IpAttrs]
//! TEST                                     TestAttrs > EntryAttrs > IpAttrs
//! other messages                           CommandAttrs
//! ```
//! The same number has different meanings in the options of a set and in an entry, so there are two declarations. Integers are
//! in network order, with the flag `NLA_F_NET_BYTEORDER`; without the flag the kernel returns `IPSET_ERR_PROTOCOL`. Line numbers
//! are in host order.

use weir_netlink::attr::{
    AttrSet, Be16, Be32, Be64, Bytes, Ip4, Ip6, ListOf, Ne32, Nest, NetOrder, Str, U8,
};

/// `IPSET_ATTR_DATA`, the attribute number of every entry in `IPSET_ATTR_ADT`.
const DATA: u16 = CommandAttrs::IPSET_ATTR_DATA;

weir_netlink::attributes! {
    /// Attributes at command level.
    pub struct CommandAttrs {
        /// protocol version, in every message
        protocol: U8 = IPSET_ATTR_PROTOCOL 1,
        /// name of the set
        name: Str = IPSET_ATTR_SETNAME 2,
        /// type; in rename and swap the other set's name (`IPSET_ATTR_SETNAME2`)
        type_name: Str = IPSET_ATTR_TYPENAME 3,
        /// revision of the type
        revision: U8 = IPSET_ATTR_REVISION 4,
        /// `NFPROTO_*`
        family: U8 = IPSET_ATTR_FAMILY 5,
        /// `IPSET_FLAG_*` at command level
        flags: NetOrder<Be32> = IPSET_ATTR_FLAGS 6,
        /// index by which xtables rules refer to the set
        index: NetOrder<Be16> = IPSET_ATTR_INDEX 11,
        /// options of the set
        data: Nest<CreateAttrs> = IPSET_ATTR_DATA 7,
        entries: ListOf<EntryAttrs, DATA> = IPSET_ATTR_ADT 8,
        /// line of the refused entry; the kernel overwrites it
        line: Ne32 = IPSET_ATTR_LINENO 9,
        /// oldest supported protocol version; in answers about a type its oldest revision (`IPSET_ATTR_REVISION_MIN`)
        minimum: U8 = IPSET_ATTR_PROTOCOL_MIN 10,
    }

    /// Attributes of `IPSET_CMD_TEST`, which contains one entry instead of a list.
    pub struct TestAttrs {
        /// protocol version
        protocol: U8 = IPSET_ATTR_PROTOCOL 1,
        /// name of the set
        name: Str = IPSET_ATTR_SETNAME 2,
        /// the entry
        data: Nest<EntryAttrs> = IPSET_ATTR_DATA 7,
    }

    /// An address of either family.
    pub struct IpAttrs {
        /// IPv4
        v4: Ip4 = IPSET_ATTR_IPADDR_IPV4 1,
        /// IPv6
        v6: Ip6 = IPSET_ATTR_IPADDR_IPV6 2,
    }

    /// Options of a set.
    pub struct CreateAttrs {
        /// first address of a bitmap
        ip: Nest<IpAttrs> = IPSET_ATTR_IP 1,
        /// last address of a bitmap
        ip_to: Nest<IpAttrs> = IPSET_ATTR_IP_TO 2,
        /// first port of a bitmap
        port: NetOrder<Be16> = IPSET_ATTR_PORT 4,
        /// last port of a bitmap
        port_to: NetOrder<Be16> = IPSET_ATTR_PORT_TO 5,
        /// initial size of the hash
        hash_size: NetOrder<Be32> = IPSET_ATTR_HASHSIZE 18,
        /// maximum number of entries
        max_elem: NetOrder<Be32> = IPSET_ATTR_MAXELEM 19,
        /// prefix length to which addresses are masked
        netmask: U8 = IPSET_ATTR_NETMASK 20,
        /// mask that is applied to addresses; since 6.2
        bitmask: Nest<IpAttrs> = IPSET_ATTR_BITMASK 12,
        /// `markmask` of `hash:ip,mark`
        mark_mask: NetOrder<Be32> = IPSET_ATTR_MARKMASK 11,
        /// entries per bucket; since 5.11
        bucket_size: U8 = IPSET_ATTR_BUCKETSIZE 21,
        /// seed of the hash; since 5.11
        init_val: NetOrder<Be32> = IPSET_ATTR_INITVAL 17,
        /// maximum number of members of a list
        size: NetOrder<Be32> = IPSET_ATTR_SIZE 23,
        /// default lifetime of an entry in seconds
        timeout: NetOrder<Be32> = IPSET_ATTR_TIMEOUT 6,
        /// `IPSET_FLAG_WITH_*`
        flags: NetOrder<Be32> = IPSET_ATTR_CADT_FLAGS 8,
        /// number of entries; only in answers
        elements: NetOrder<Be32> = IPSET_ATTR_ELEMENTS 24,
        /// number of rules and lists that refer to the set; only in answers
        references: NetOrder<Be32> = IPSET_ATTR_REFERENCES 25,
        /// memory usage in bytes; only in answers
        memory: NetOrder<Be32> = IPSET_ATTR_MEMSIZE 26,
    }

    /// One entry.
    pub struct EntryAttrs {
        /// address
        ip: Nest<IpAttrs> = IPSET_ATTR_IP 1,
        /// prefix length
        cidr: U8 = IPSET_ATTR_CIDR 3,
        /// port, or ICMP type and code
        port: NetOrder<Be16> = IPSET_ATTR_PORT 4,
        /// `IPPROTO_*`
        protocol: U8 = IPSET_ATTR_PROTO 7,
        /// mark of packets
        mark: NetOrder<Be32> = IPSET_ATTR_MARK 10,
        /// name of an interface
        iface: Str = IPSET_ATTR_IFACE 23,
        /// second address
        ip2: Nest<IpAttrs> = IPSET_ATTR_IP2 20,
        /// its prefix length
        cidr2: U8 = IPSET_ATTR_CIDR2 21,
        /// hardware address
        ether: Bytes = IPSET_ATTR_ETHER 17,
        /// member of a list
        name: Str = IPSET_ATTR_NAME 18,
        /// the member before or after which it is inserted
        name_ref: Str = IPSET_ATTR_NAMEREF 19,
        /// lifetime in seconds
        timeout: NetOrder<Be32> = IPSET_ATTR_TIMEOUT 6,
        /// `IPSET_FLAG_NOMATCH` and others
        flags: NetOrder<Be32> = IPSET_ATTR_CADT_FLAGS 8,
        /// counter of bytes
        bytes: NetOrder<Be64> = IPSET_ATTR_BYTES 24,
        /// counter of packets
        packets: NetOrder<Be64> = IPSET_ATTR_PACKETS 25,
        comment: Str = IPSET_ATTR_COMMENT 26,
        /// mark in the upper half, mask in the lower
        skb_mark: NetOrder<Be64> = IPSET_ATTR_SKBMARK 27,
        /// priority (traffic control class)
        skb_prio: NetOrder<Be32> = IPSET_ATTR_SKBPRIO 28,
        /// queue number
        skb_queue: NetOrder<Be16> = IPSET_ATTR_SKBQUEUE 29,
        /// number by which an error identifies it
        line: Ne32 = IPSET_ATTR_CADT_LINENO 9,
        /// aligns the counters on some architectures
        pad: Bytes = IPSET_ATTR_PAD 30,
    }
}

/// C names and numbers of every attribute of every message, for a test that compares them with the system's headers.
#[must_use]
pub fn constants() -> Vec<(&'static str, u16)> {
    [
        CommandAttrs::CONSTANTS,
        TestAttrs::CONSTANTS,
        IpAttrs::CONSTANTS,
        CreateAttrs::CONSTANTS,
        EntryAttrs::CONSTANTS,
    ]
    .concat()
}
