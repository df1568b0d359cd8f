//! A match: a value is loaded from the packet or its context and compared.

use super::{CtDirection, CtKey, Data, Element, FibResult, MetaKey, SocketKey};
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
#[repr(u32)]
#[doc(alias = "NFT_CMP_EQ")]
pub enum CmpOp {
    /// `==`
    Eq = raw::NFT_CMP_EQ,
    /// `!=`; with a set or a range: not in it
    Neq = raw::NFT_CMP_NEQ,
    /// `<`
    Lt = raw::NFT_CMP_LT,
    /// `<=`
    Lte = raw::NFT_CMP_LTE,
    /// `>`
    Gt = raw::NFT_CMP_GT,
    /// `>=`
    Gte = raw::NFT_CMP_GTE,
}

impl CmpOp {
    /// `NFT_CMP_*`
    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    /// The comparison of this number.
    pub(crate) fn of(number: u32) -> Option<Self> {
        use CmpOp::{Eq, Gt, Gte, Lt, Lte, Neq};
        let mut all = [Eq, Neq, Lt, Lte, Gt, Gte].into_iter();
        all.find(|op| op.number() == number)
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
