//! The statements of a rule.

use super::{CtDirection, CtKey, Data, Match, MetaKey, Selector, TableFamily};
use crate::nft::expr::{Counter, Expr, Limit, Log, Reject};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// One statement of a rule, evaluated from left to right.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Statement {
    /// Ends the evaluation of the rule unless it holds.
    Match(Match),
    /// `counter packets N bytes N`; without values the counter begins at zero.
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
    /// `log`, with a prefix of at most 127 bytes.
    Log(Log),
    /// `limit rate [over] N/UNIT [burst N packets]`
    Limit(Limit),
    /// `reject`
    Reject(Reject),
    /// Expressions for which this enum has no variant. They are kept as they were read, so that nothing that the kernel
    /// holds is lost or ignored in a comparison.
    Opaque(Vec<Expr>),
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
