//! The header fields that have a name: one table per header, positions and widths in bits.

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
    pub(crate) type_of: Option<(u32, u32)>,
}

impl Field {
    pub(crate) fn is_address(&self) -> bool {
        matches!(self.data_type, DataType::IPV4_ADDR | DataType::IPV6_ADDR)
    }
}

macro_rules! headers {
    ($($table:ident = $header:literal {
        $($offset:literal $len:literal $name:literal $data_type:ident $(typeof $h:literal $f:literal)?,)*
    })*) => {
        $(pub(crate) const $table: &[Field] = &[$(Field {
            header: $header,
            name: $name,
            offset: $offset,
            len: $len,
            data_type: DataType::$data_type,
            type_of: headers!(@type_of $($h $f)?),
        },)*];)*
        const ALL: &[&[Field]] = &[$($table,)*];
    };
    (@type_of) => { None };
    (@type_of $h:literal $f:literal) => { Some(($h, $f)) };
}

headers! {
    ETHER = "ether" {
        0 48 "daddr" ETHER_ADDR,
        48 48 "saddr" ETHER_ADDR,
        96 16 "type" ETHER_TYPE,
    }
    VLAN = "vlan" {
        0 3 "pcp" INTEGER,
        3 1 "dei" INTEGER,
        4 12 "id" INTEGER,
        16 16 "type" ETHER_TYPE,
    }
    ARP = "arp" {
        0 16 "htype" INTEGER,
        16 16 "ptype" ETHER_TYPE,
        32 8 "hlen" INTEGER,
        40 8 "plen" INTEGER,
        48 16 "operation" ARP_OP,
        64 48 "saddr ether" ETHER_ADDR,
        112 32 "saddr ip" IPV4_ADDR,
        144 48 "daddr ether" ETHER_ADDR,
        192 32 "daddr ip" IPV4_ADDR,
    }
    IP = "ip" {
        0 4 "version" INTEGER,
        4 4 "hdrlength" INTEGER,
        8 6 "dscp" DSCP,
        14 2 "ecn" ECN,
        16 16 "length" INTEGER,
        32 16 "id" INTEGER,
        48 16 "frag-off" INTEGER,
        64 8 "ttl" INTEGER,
        72 8 "protocol" INET_PROTO,
        80 16 "checksum" INTEGER,
        96 32 "saddr" IPV4_ADDR typeof 12 11,
        128 32 "daddr" IPV4_ADDR typeof 12 12,
    }
    IP6 = "ip6" {
        0 4 "version" INTEGER,
        4 6 "dscp" DSCP,
        10 2 "ecn" ECN,
        12 20 "flowlabel" INTEGER,
        32 16 "length" INTEGER,
        48 8 "nexthdr" INET_PROTO,
        56 8 "hoplimit" INTEGER,
        64 128 "saddr" IPV6_ADDR typeof 13 8,
        192 128 "daddr" IPV6_ADDR typeof 13 9,
    }
    TCP = "tcp" {
        0 16 "sport" INET_SERVICE typeof 8 1,
        16 16 "dport" INET_SERVICE typeof 8 2,
        32 32 "sequence" INTEGER,
        64 32 "ackseq" INTEGER,
        96 4 "doff" INTEGER,
        100 4 "reserved" INTEGER,
        104 8 "flags" TCP_FLAG,
        112 16 "window" INTEGER,
        128 16 "checksum" INTEGER,
        144 16 "urgptr" INTEGER,
    }
    UDP = "udp" {
        0 16 "sport" INET_SERVICE typeof 6 1,
        16 16 "dport" INET_SERVICE typeof 6 2,
        32 16 "length" INTEGER,
        48 16 "checksum" INTEGER,
    }
    UDPLITE = "udplite" {
        0 16 "sport" INET_SERVICE,
        16 16 "dport" INET_SERVICE,
        32 16 "csumcov" INTEGER,
        48 16 "checksum" INTEGER,
    }
    SCTP = "sctp" {
        0 16 "sport" INET_SERVICE,
        16 16 "dport" INET_SERVICE,
        32 32 "vtag" INTEGER,
        64 32 "checksum" INTEGER,
    }
    DCCP = "dccp" {
        0 16 "sport" INET_SERVICE,
        16 16 "dport" INET_SERVICE,
        67 4 "type" DCCP_PKTTYPE,
    }
    TH = "th" {
        0 16 "sport" INET_SERVICE typeof 11 1,
        16 16 "dport" INET_SERVICE typeof 11 2,
    }
    AH = "ah" {
        0 8 "nexthdr" INET_PROTO,
        8 8 "hdrlength" INTEGER,
        16 16 "reserved" INTEGER,
        32 32 "spi" INTEGER,
        64 32 "sequence" INTEGER,
    }
    ESP = "esp" {
        0 32 "spi" INTEGER,
        32 32 "sequence" INTEGER,
    }
    COMP = "comp" {
        0 8 "nexthdr" INET_PROTO,
        8 8 "flags" BITMASK,
        16 16 "cpi" INTEGER,
    }
    ICMP = "icmp" {
        0 8 "type" ICMP_TYPE,
        8 8 "code" ICMP_CODE,
        16 16 "checksum" INTEGER,
        32 16 "id" INTEGER,
        48 16 "sequence" INTEGER,
    }
    ICMP_UNREACHABLE = "icmp" {
        48 16 "mtu" INTEGER,
    }
    ICMP_REDIRECT = "icmp" {
        32 32 "gateway" INTEGER,
    }
    ICMP6 = "icmpv6" {
        0 8 "type" ICMPV6_TYPE,
        8 8 "code" ICMPV6_CODE,
        16 16 "checksum" INTEGER,
        32 16 "id" INTEGER,
        48 16 "sequence" INTEGER,
    }
    ICMP6_TOO_BIG = "icmpv6" {
        32 32 "mtu" INTEGER,
    }
    ICMP6_PARAMETER = "icmpv6" {
        32 32 "parameter-problem" INTEGER,
    }
    ICMP6_LISTENER = "icmpv6" {
        32 16 "max-delay" INTEGER,
    }
    IGMP = "igmp" {
        0 8 "type" IGMP_TYPE,
        8 8 "mrt" INTEGER,
        16 16 "checksum" INTEGER,
        32 32 "group" IPV4_ADDR,
    }
}

/// The field with these numbers in nft's `typeof` userdata.
pub(crate) fn named_field(header: u32, field: u32) -> Option<&'static Field> {
    let mut all = ALL.iter().copied().flatten();
    all.find(|f| f.type_of == Some((header, field)))
}
