//! The header fields that have a name in `nft`: one table per header, positions and widths in bits.

use super::model::DataType;

/// A header field that has a name.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) header: &'static str,
    pub(crate) name: &'static str,
    /// First bit, counted from the start of the header.
    pub(crate) offset: u32,
    /// Number of bits.
    pub(crate) len: u32,
    pub(crate) data_type: DataType,
    /// Header and field number in nft's `typeof` userdata.
    pub(crate) type_of: (u32, u32),
}

impl Field {
    pub(crate) fn is_address(&self) -> bool {
        matches!(self.data_type, DataType::IPV4_ADDR | DataType::IPV6_ADDR)
    }
}

macro_rules! headers {
    ($($table:ident = $header:literal $h:literal {
        $($offset:literal $len:literal $name:literal $data_type:ident $f:literal,)*
    })*) => {
        $(pub(crate) const $table: &[Field] = &[$(Field {
            header: $header,
            name: $name,
            offset: $offset,
            len: $len,
            data_type: DataType::$data_type,
            type_of: ($h, $f),
        },)*];)*
        const ALL: &[&[Field]] = &[$($table,)*];
    };
}

// The number after a header is that of nft's `enum proto_desc_id`; the last number of a field is that of nft's table of the
// header's fields.
headers! {
    ETHER = "ether" 17 {
        0 48 "daddr" ETHER_ADDR 1,
        48 48 "saddr" ETHER_ADDR 2,
        96 16 "type" ETHER_TYPE 3,
    }
    VLAN = "vlan" 16 {
        0 3 "pcp" INTEGER 1,
        3 1 "dei" INTEGER 2,
        3 1 "cfi" INTEGER 3,
        4 12 "id" INTEGER 4,
        16 16 "type" ETHER_TYPE 5,
    }
    ARP = "arp" 15 {
        0 16 "htype" INTEGER 1,
        16 16 "ptype" ETHER_TYPE 2,
        32 8 "hlen" INTEGER 3,
        40 8 "plen" INTEGER 4,
        48 16 "operation" ARP_OP 5,
        64 48 "saddr ether" ETHER_ADDR 6,
        112 32 "saddr ip" IPV4_ADDR 7,
        144 48 "daddr ether" ETHER_ADDR 8,
        192 32 "daddr ip" IPV4_ADDR 9,
    }
    IP = "ip" 12 {
        0 4 "version" INTEGER 1,
        4 4 "hdrlength" INTEGER 2,
        8 6 "dscp" DSCP 3,
        14 2 "ecn" ECN 4,
        16 16 "length" INTEGER 5,
        32 16 "id" INTEGER 6,
        48 16 "frag-off" INTEGER 7,
        64 8 "ttl" INTEGER 8,
        72 8 "protocol" INET_PROTO 9,
        80 16 "checksum" INTEGER 10,
        96 32 "saddr" IPV4_ADDR 11,
        128 32 "daddr" IPV4_ADDR 12,
    }
    IP6 = "ip6" 13 {
        0 4 "version" INTEGER 1,
        4 6 "dscp" DSCP 2,
        10 2 "ecn" ECN 3,
        12 20 "flowlabel" INTEGER 4,
        32 16 "length" INTEGER 5,
        48 8 "nexthdr" INET_PROTO 6,
        56 8 "hoplimit" INTEGER 7,
        64 128 "saddr" IPV6_ADDR 8,
        192 128 "daddr" IPV6_ADDR 9,
    }
    TCP = "tcp" 8 {
        0 16 "sport" INET_SERVICE 1,
        16 16 "dport" INET_SERVICE 2,
        32 32 "sequence" INTEGER 3,
        64 32 "ackseq" INTEGER 4,
        96 4 "doff" INTEGER 5,
        100 4 "reserved" INTEGER 6,
        104 8 "flags" TCP_FLAG 7,
        112 16 "window" INTEGER 8,
        128 16 "checksum" INTEGER 9,
        144 16 "urgptr" INTEGER 10,
    }
    UDP = "udp" 6 {
        0 16 "sport" INET_SERVICE 1,
        16 16 "dport" INET_SERVICE 2,
        32 16 "length" INTEGER 3,
        48 16 "checksum" INTEGER 4,
    }
    UDPLITE = "udplite" 7 {
        0 16 "sport" INET_SERVICE 1,
        16 16 "dport" INET_SERVICE 2,
        32 16 "csumcov" INTEGER 3,
        48 16 "checksum" INTEGER 4,
    }
    SCTP = "sctp" 10 {
        0 16 "sport" INET_SERVICE 1,
        16 16 "dport" INET_SERVICE 2,
        32 32 "vtag" INTEGER 3,
        64 32 "checksum" INTEGER 4,
    }
    DCCP = "dccp" 9 {
        0 16 "sport" INET_SERVICE 1,
        16 16 "dport" INET_SERVICE 2,
        67 4 "type" DCCP_PKTTYPE 3,
    }
    TH = "th" 11 {
        0 16 "sport" INET_SERVICE 1,
        16 16 "dport" INET_SERVICE 2,
    }
    AH = "ah" 1 {
        0 8 "nexthdr" INET_PROTO 1,
        8 8 "hdrlength" INTEGER 2,
        16 16 "reserved" INTEGER 3,
        32 32 "spi" INTEGER 4,
        64 32 "sequence" INTEGER 5,
    }
    ESP = "esp" 2 {
        0 32 "spi" INTEGER 1,
        32 32 "sequence" INTEGER 2,
    }
    COMP = "comp" 3 {
        0 8 "nexthdr" INET_PROTO 1,
        8 8 "flags" BITMASK 2,
        16 16 "cpi" INTEGER 3,
    }
    ICMP = "icmp" 4 {
        0 8 "type" ICMP_TYPE 1,
        8 8 "code" ICMP_CODE 2,
        16 16 "checksum" INTEGER 3,
        32 16 "id" INTEGER 4,
        48 16 "sequence" INTEGER 5,
    }
    ICMP_UNREACHABLE = "icmp" 4 {
        48 16 "mtu" INTEGER 7,
    }
    ICMP_REDIRECT = "icmp" 4 {
        32 32 "gateway" INTEGER 6,
    }
    ICMP6 = "icmpv6" 14 {
        0 8 "type" ICMPV6_TYPE 1,
        8 8 "code" ICMPV6_CODE 2,
        16 16 "checksum" INTEGER 3,
        32 16 "id" INTEGER 6,
        48 16 "sequence" INTEGER 7,
    }
    ICMP6_TOO_BIG = "icmpv6" 14 {
        32 32 "mtu" INTEGER 5,
    }
    ICMP6_PARAMETER = "icmpv6" 14 {
        32 32 "parameter-problem" INTEGER 4,
    }
    ICMP6_LISTENER = "icmpv6" 14 {
        32 16 "max-delay" INTEGER 8,
        64 128 "taddr" IPV6_ADDR 9,
    }
    ICMP6_TARGET = "icmpv6" 14 {
        64 128 "taddr" IPV6_ADDR 9,
    }
    ICMP6_REDIRECT = "icmpv6" 14 {
        64 128 "taddr" IPV6_ADDR 9,
        192 128 "daddr" IPV6_ADDR 10,
    }
    IGMP = "igmp" 5 {
        0 8 "type" IGMP_TYPE 1,
        8 8 "mrt" INTEGER 3,
        16 16 "checksum" INTEGER 2,
        32 32 "group" INTEGER 4,
    }
}

/// The field with these numbers in nft's `typeof` userdata.
pub(crate) fn named_field(header: u32, field: u32) -> Option<&'static Field> {
    let mut all = ALL.iter().copied().flatten();
    all.find(|f| f.type_of == (header, field))
}
