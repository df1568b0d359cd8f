//! The statements of a rule.

use super::{CtDirection, CtKey, Data, Match, MetaKey, Selector, TableFamily};
use crate::nft::expr::Expr;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// One statement of a rule, evaluated from left to right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Statement {
    /// Ends the rule unless it holds.
    Match(Match),
    /// `counter packets N bytes N`
    Counter(Counter),
    /// A verdict ends the rule.
    Verdict(Verdict),
    /// `SELECTOR vmap @name`: the verdict is looked up.
    Vmap(Selector, String),
    /// `meta KEY set SOURCE`
    MetaSet(MetaKey, Source),
    /// `ct KEY set SOURCE`
    CtSet(CtKey, Option<CtDirection>, Source),
    /// `redirect [to :PORT]`. In `inet` tables since 5.2.
    Redirect(Redirect),
    /// `masquerade`. In `inet` tables since 5.2.
    Masquerade(Masquerade),
    /// `snat` or `dnat`. In `inet` tables since 5.2.
    Nat(Nat),
    /// `tproxy`. Since 4.19.
    Tproxy(Tproxy),
    /// `notrack`: no conntrack entry is created. Since 4.9.
    Notrack,
    /// `log`
    Log(Log),
    /// `limit rate`
    Limit(Limit),
    /// `reject`
    Reject(Reject),
    /// Expressions without a statement here. They are kept whole, so that nothing that the kernel holds is lost or
    /// ignored in a comparison.
    Opaque(Vec<Expr>),
}

/// `counter`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "nft_counter")]
pub struct Counter {
    /// Packets seen.
    pub packets: u64,
    /// Bytes seen.
    pub bytes: u64,
}

/// Where evaluation continues (`NFT_*` and `NF_*` verdicts).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "NF_ACCEPT")]
pub enum Verdict {
    /// The packet continues to the next hook.
    Accept,
    /// The packet is dropped.
    Drop,
    /// Evaluation continues with the next rule.
    Continue,
    /// Evaluation continues in the calling chain, or with the policy.
    Return,
    /// Evaluation continues in a chain, and after its end with the next rule.
    Jump(String),
    /// Evaluation continues in a chain and does not return.
    Goto(String),
    /// Another verdict number.
    Other(i32),
}

impl Verdict {
    /// The chain where evaluation continues.
    #[must_use]
    pub fn chain(&self) -> Option<&str> {
        match self {
            Self::Jump(to) | Self::Goto(to) => Some(to),
            _ => None,
        }
    }
}

/// The value that `meta KEY set` and `ct KEY set` store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// A fixed value.
    Value(Data),
    /// A loaded value.
    Selector(Selector),
    /// `(selector & mask) ^ xor`. Printed by `nft` as `SELECTOR & (mask|xor) | xor`.
    Bitwise {
        /// What is loaded.
        selector: Selector,
        /// Bits that are kept.
        mask: Data,
        /// Bits that are inverted after masking.
        xor: Data,
    },
    /// `SELECTOR map @name`: the value is looked up.
    Map(Selector, String),
}

/// `redirect`: to this machine, on another port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "nft_redir")]
pub struct Redirect {
    /// The port or ports; without them only the address changes.
    pub ports: Option<RangeInclusive<u16>>,
    /// `NF_NAT_RANGE_PROTO_RANDOM` (4), `NF_NAT_RANGE_PERSISTENT` (8), `NF_NAT_RANGE_PROTO_RANDOM_FULLY` (16). The
    /// bits for given ports are implied.
    pub flags: u32,
}

/// `masquerade`: the source becomes the address of the outgoing interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "nft_masq")]
pub struct Masquerade {
    /// `masquerade to :PORT`
    pub ports: Option<RangeInclusive<u16>>,
    /// As in [`Redirect::flags`].
    pub flags: u32,
}

/// `snat` or `dnat` to fixed addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "nft_nat")]
pub struct Nat {
    /// Which end of the connection is translated.
    pub kind: NatKind,
    /// [`TableFamily::Ip`] or [`TableFamily::Ip6`].
    pub family: TableFamily,
    /// First and last address.
    pub addrs: Option<(IpAddr, IpAddr)>,
    /// Ports.
    pub ports: Option<RangeInclusive<u16>>,
    /// As in [`Redirect::flags`].
    pub flags: u32,
}

/// `enum nft_nat_types`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "NFT_NAT_SNAT")]
pub enum NatKind {
    /// `snat`
    Snat,
    /// `dnat`
    Dnat,
}

/// `tproxy`: the packet is delivered to a local socket unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "nft_tproxy")]
pub struct Tproxy {
    /// [`TableFamily::Ip`] or [`TableFamily::Ip6`] in `inet` tables; the table's own family elsewhere, and
    /// [`TableFamily::Unspec`] for `tproxy to :PORT` in an `inet` table.
    pub family: TableFamily,
    /// The address of the socket.
    pub addr: Option<IpAddr>,
    /// Its port.
    pub port: Option<u16>,
}

/// `log`
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "nft_log")]
pub struct Log {
    /// Text before the packet, at most 127 bytes.
    pub prefix: Option<String>,
    /// Sends to this group of nfnetlink_log instead of the kernel log.
    pub group: Option<u16>,
    /// Number of bytes of the packet that are copied (with a group).
    pub snaplen: Option<u32>,
    /// Number of packets that are collected before sending (with a group).
    pub qthreshold: Option<u16>,
    /// Syslog level, 0 to 7 (without a group); 8 is `audit`.
    pub level: Option<u32>,
    /// `NF_LOG_*` bits.
    pub flags: Option<u32>,
}

/// `limit rate [over] N/UNIT [burst N packets]`
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "nft_limit")]
pub struct Limit {
    /// Packets or bytes per unit of time.
    pub rate: u64,
    /// The unit of time in seconds: 1, 60, 3600, 86400, 604800.
    pub per: u64,
    /// Packets (5 by default) or bytes (0 by default) that may exceed the rate.
    pub burst: u32,
    /// What the rate counts.
    pub unit: LimitUnit,
    /// Matches packets above the rate.
    pub over: bool,
}

/// `enum nft_limit_type`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "NFTA_LIMIT_UNIT")]
pub enum LimitUnit {
    /// Packets
    Packets,
    /// Bytes
    Bytes,
}

/// `reject`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "nft_reject")]
pub enum Reject {
    /// `reject with icmp CODE` (`NFT_REJECT_ICMP_UNREACH`); the code is the family's own.
    Icmp(u8),
    /// `reject with tcp reset`
    TcpReset,
    /// `reject with icmpx CODE`, one number for both families (`enum nft_reject_inet_code`).
    Icmpx(u8),
}
