//! The statements of a rule.

use super::{CtDirection, CtKey, Data, Match, MetaKey, Selector, TableFamily};
use crate::nft::expr::Expr;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// One statement of a rule, evaluated from left to right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Statement {
    /// Ends the evaluation of the rule unless it holds.
    Match(Match),
    /// `counter packets N bytes N`
    Counter(Counter),
    /// A verdict, which ends the rule.
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
    /// Expressions for which this enum has no variant. They are kept as they were read, so that nothing that the kernel
    /// holds is lost or ignored in a comparison.
    Opaque(Vec<Expr>),
}

/// `counter`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "nft_counter")]
pub struct Counter {
    /// Number of packets that were counted.
    pub packets: u64,
    /// Number of their bytes.
    pub bytes: u64,
}

/// The verdict of a rule: where evaluation continues (`NFT_*` and `NF_*` verdicts).
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

/// `redirect`: destination NAT to this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "nft_redir")]
pub struct Redirect {
    /// `redirect to :PORT` or `redirect to :FIRST-LAST`; `None` changes only the address.
    pub ports: Option<RangeInclusive<u16>>,
    /// `NF_NAT_RANGE_PROTO_RANDOM` (4), `NF_NAT_RANGE_PERSISTENT` (8), `NF_NAT_RANGE_PROTO_RANDOM_FULLY` (16).
    /// `NF_NAT_RANGE_PROTO_SPECIFIED` follows from [`ports`](Self::ports).
    pub flags: u32,
}

/// `masquerade`: the source becomes the address of the outgoing interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "nft_masq")]
pub struct Masquerade {
    /// `masquerade to :PORT` or `masquerade to :FIRST-LAST`
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

/// `tproxy`: delivers the packet to a local socket without changing it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "nft_tproxy")]
pub struct Tproxy {
    /// In `inet` tables [`TableFamily::Ip`], [`TableFamily::Ip6`], or [`TableFamily::Unspec`] for `tproxy to :PORT`;
    /// elsewhere the family of the table.
    pub family: TableFamily,
    /// The address of the socket; `None` is an address of the incoming interface or, if it has none, the destination of the
    /// packet (`nf_tproxy_laddr4()`).
    pub addr: Option<IpAddr>,
    /// The port of the socket; `None` keeps that of the packet.
    pub port: Option<u16>,
}

/// `log`
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[doc(alias = "nft_log")]
pub struct Log {
    /// Text before the packet, at most 127 bytes.
    pub prefix: Option<String>,
    /// Sends the packet to this group of nfnetlink_log instead of the kernel log.
    pub group: Option<u16>,
    /// Number of bytes of the packet that are copied (only with a group).
    pub snaplen: Option<u32>,
    /// Number of packets that the kernel collects before it sends them (only with a group).
    pub qthreshold: Option<u16>,
    /// Syslog level, 0 to 7, 4 by default (only without a group); 8 is `audit`.
    pub level: Option<u32>,
    /// `NF_LOG_*` bits (`linux/netfilter/nf_log.h`).
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
    /// Number of packets or bytes that may exceed the rate. 0 is the default: 5 packets, 0 bytes.
    pub burst: u32,
    /// Whether the rate counts packets or bytes. Bytes since 4.3.
    pub unit: LimitUnit,
    /// `over`: matches packets above the rate. Since 4.5.
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
    /// `reject with icmp CODE` or `icmpv6 CODE` (`NFT_REJECT_ICMP_UNREACH`): a code of the family of the packet.
    Icmp(u8),
    /// `reject with tcp reset`
    TcpReset,
    /// `reject with icmpx CODE`, one number for both families (`enum nft_reject_inet_code`).
    Icmpx(u8),
}
