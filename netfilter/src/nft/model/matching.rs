//! A match: a value is loaded from the packet or its context and compared.

use super::{Data, Element};
use crate::nft::raw;

/// `SELECTOR [& MASK] OP OPERAND`: the rule continues if it holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Match {
    /// What is loaded.
    pub selector: Selector,
    /// `& MASK`, applied before the comparison.
    pub mask: Option<Data>,
    /// How it is compared.
    pub op: CmpOp,
    /// The value to compare with.
    pub operand: Operand,
}

/// The comparison (`enum nft_cmp_ops`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "NFT_CMP_EQ")]
pub enum CmpOp {
    /// `==`
    Eq,
    /// `!=`; with a set or a range: not in it
    Neq,
    /// `<`
    Lt,
    /// `<=`
    Lte,
    /// `>`
    Gt,
    /// `>=`
    Gte,
}

impl CmpOp {
    /// `NFT_CMP_*`
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Eq => raw::NFT_CMP_EQ,
            Self::Neq => raw::NFT_CMP_NEQ,
            Self::Lt => raw::NFT_CMP_LT,
            Self::Lte => raw::NFT_CMP_LTE,
            Self::Gt => raw::NFT_CMP_GT,
            Self::Gte => raw::NFT_CMP_GTE,
        }
    }

    /// The comparison of this number.
    pub(crate) fn of(number: u32) -> Option<Self> {
        let all = [
            Self::Eq,
            Self::Neq,
            Self::Lt,
            Self::Lte,
            Self::Gt,
            Self::Gte,
        ];
        all.into_iter().find(|op| op.number() == number)
    }
}

/// The right-hand side of a [`Match`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operand {
    /// One value.
    Value(Data),
    /// An address prefix: its leading bits are compared, as many as the second field has.
    ///
    /// As in `nft`, a length of whole bytes shortens the load, any other length masks it. A length beyond the address is
    /// refused before anything is sent.
    Prefix(Data, u8),
    /// An interface name prefix, `eth*`.
    IfnamePrefix(String),
    /// From the first to the last value, inclusive.
    Range(Data, Data),
    /// Any of these bits (`ct state established,related`): masked, then compared with zero.
    AnyBit(Data),
    /// One of the elements of a set that belongs to this rule, `{ 53, 15008 }`.
    Anonymous(Vec<Element>),
    /// A named set of the table, `@name`.
    Named {
        /// Its name.
        set: String,
        /// `byteorder hton` is applied before the lookup: interval sets compare keys in network order.
        turned: bool,
    },
}

/// What a match or a statement loads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Selector {
    /// Packet metadata.
    Meta(MetaKey),
    /// Bytes of the packet.
    Payload {
        /// Where the offset counts from.
        base: PayloadBase,
        /// First byte.
        offset: u32,
        /// Number of bytes, 1 to 16.
        len: u32,
    },
    /// The conntrack entry.
    Ct(CtKey, Option<CtDirection>),
    /// The local socket that the packet belongs to. Since 4.18 (`transparent`), 4.19 (`mark`), 5.10 (`wildcard`), 5.13
    /// (`cgroupv2`, with its level).
    Socket(SocketKey, Option<u32>),
    /// A route lookup (`fib`). Since 4.10.
    Fib {
        /// `NFTA_FIB_F_*`: the inputs of the lookup.
        flags: u32,
        /// The selected part of the result.
        result: FibResult,
    },
}

open_enum! {
    /// `enum nft_payload_bases`
    PayloadBase: u32 {
        /// Link-layer header
        LinkLayer = NFT_PAYLOAD_LL_HEADER,
        /// Network header
        Network = NFT_PAYLOAD_NETWORK_HEADER,
        /// Transport header
        Transport = NFT_PAYLOAD_TRANSPORT_HEADER,
        /// Inner header. Since 5.16
        Inner = NFT_PAYLOAD_INNER_HEADER,
    }
}

open_enum! {
    /// `enum nft_meta_keys`
    MetaKey: u32 {
        /// `meta length`
        Length = NFT_META_LEN,
        /// `meta protocol`
        Protocol = NFT_META_PROTOCOL,
        /// `meta priority`
        Priority = NFT_META_PRIORITY,
        /// `meta mark`
        Mark = NFT_META_MARK,
        /// `iif`
        Iif = NFT_META_IIF,
        /// `oif`
        Oif = NFT_META_OIF,
        /// `iifname`
        Iifname = NFT_META_IIFNAME,
        /// `oifname`
        Oifname = NFT_META_OIFNAME,
        /// `iiftype`
        Iiftype = NFT_META_IFTYPE,
        /// `oiftype`
        Oiftype = NFT_META_OIFTYPE,
        /// `meta skuid`: the user that owns the packet's socket
        Skuid = NFT_META_SKUID,
        /// `meta skgid`: its group
        Skgid = NFT_META_SKGID,
        /// `meta nftrace`
        Nftrace = NFT_META_NFTRACE,
        /// `rtclassid`
        Rtclassid = NFT_META_RTCLASSID,
        /// `meta nfproto`
        Nfproto = NFT_META_NFPROTO,
        /// `meta l4proto`
        L4proto = NFT_META_L4PROTO,
        /// `meta ibrname`
        Ibrname = NFT_META_BRI_IIFNAME,
        /// `meta obrname`
        Obrname = NFT_META_BRI_OIFNAME,
        /// `meta pkttype`
        Pkttype = NFT_META_PKTTYPE,
        /// `meta cpu`
        Cpu = NFT_META_CPU,
        /// `meta iifgroup`
        Iifgroup = NFT_META_IIFGROUP,
        /// `meta oifgroup`
        Oifgroup = NFT_META_OIFGROUP,
        /// `meta cgroup`
        Cgroup = NFT_META_CGROUP,
        /// `meta random`
        Random = NFT_META_PRANDOM,
    }
}

open_enum! {
    /// `enum nft_ct_keys`
    CtKey: u32 {
        /// `ct state`: bits, see `NF_CT_STATE_BIT`
        State = NFT_CT_STATE,
        /// `ct direction`
        Direction = NFT_CT_DIRECTION,
        /// `ct status`
        Status = NFT_CT_STATUS,
        /// `ct mark`
        Mark = NFT_CT_MARK,
        /// `ct expiration`: remaining lifetime in milliseconds
        Expiration = NFT_CT_EXPIRATION,
        /// `ct l3proto`
        L3protocol = NFT_CT_L3PROTOCOL,
        /// `ct saddr` of rules from before the key contained the family
        Src = NFT_CT_SRC,
        /// `ct daddr` of rules from before the key contained the family
        Dst = NFT_CT_DST,
        /// `ct protocol`
        Protocol = NFT_CT_PROTOCOL,
        /// `ct proto-src`
        ProtoSrc = NFT_CT_PROTO_SRC,
        /// `ct proto-dst`
        ProtoDst = NFT_CT_PROTO_DST,
        /// `ct packets`
        Packets = NFT_CT_PKTS,
        /// `ct bytes`
        Bytes = NFT_CT_BYTES,
        /// `ct zone`
        Zone = NFT_CT_ZONE,
        /// `ct ip saddr`
        SrcIp = NFT_CT_SRC_IP,
        /// `ct ip daddr`
        DstIp = NFT_CT_DST_IP,
        /// `ct ip6 saddr`
        SrcIp6 = NFT_CT_SRC_IP6,
        /// `ct ip6 daddr`
        DstIp6 = NFT_CT_DST_IP6,
    }
}

/// The direction of a conntrack entry (`enum ip_conntrack_dir`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "IP_CT_DIR_ORIGINAL")]
pub enum CtDirection {
    /// `original`
    Original,
    /// `reply`
    Reply,
}

open_enum! {
    /// `enum nft_socket_keys`
    SocketKey: u32 {
        /// `socket transparent`
        Transparent = NFT_SOCKET_TRANSPARENT,
        /// `socket mark`
        Mark = NFT_SOCKET_MARK,
        /// `socket wildcard`
        Wildcard = NFT_SOCKET_WILDCARD,
        /// `socket cgroupv2 level N`
        Cgroupv2 = NFT_SOCKET_CGROUPV2,
    }
}

open_enum! {
    /// `enum nft_fib_result`
    FibResult: u32 {
        /// `oif`: the interface index
        Oif = NFT_FIB_RESULT_OIF,
        /// `oifname`
        Oifname = NFT_FIB_RESULT_OIFNAME,
        /// `type`: local, broadcast and so on
        Type = NFT_FIB_RESULT_ADDRTYPE,
    }
}
