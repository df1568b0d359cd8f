//! A token bucket (`NFTA_LIMIT_*`). Since 3.13, bytes and burst since 4.3, inverted since 4.5.

use super::prelude::*;
use crate::nft::display::bytes;

weir_netlink::attributes! {
    /// `enum nft_limit_attributes`
    pub struct Limit {
        /// packets or bytes per unit of time
        rate: Be64 = NFTA_LIMIT_RATE 1,
        /// the unit of time in seconds
        unit: Be64 = NFTA_LIMIT_UNIT 2,
        /// packets or bytes that may exceed the rate
        burst: Be32 = NFTA_LIMIT_BURST 3,
        /// `enum nft_limit_type`
        kind: Be32 = NFTA_LIMIT_TYPE 4,
        /// `NFT_LIMIT_F_INV`
        flags: Be32 = NFTA_LIMIT_FLAGS 5,
    }
}

/// `NFT_LIMIT_PKT_BURST_DEFAULT` of `net/netfilter/nft_limit.c`
const PACKETS_BURST: u32 = 5;

impl Limit {
    /// Whether it has no attribute or value that this version does not know.
    pub(crate) fn is_known(&self) -> bool {
        self.unknown.is_empty() && self.text().is_some()
    }

    /// `10/second burst 5 packets`
    pub(crate) fn text(&self) -> Option<String> {
        let over = match self.flags.unwrap_or(0) & raw::NFT_LIMIT_F_INV {
            0 => "",
            _ => "over ",
        };
        let per = match self.unit? {
            1 => "second".to_owned(),
            60 => "minute".to_owned(),
            3600 => "hour".to_owned(),
            86_400 => "day".to_owned(),
            604_800 => "week".to_owned(),
            n => format!("{n}s"),
        };
        let (rate, burst) = (self.rate?, self.burst.unwrap_or(0));
        Some(match (self.kind.unwrap_or(raw::NFT_LIMIT_PKTS), burst) {
            (raw::NFT_LIMIT_PKTS, PACKETS_BURST) => format!("{over}{rate}/{per}"),
            (raw::NFT_LIMIT_PKTS, n) => format!("{over}{rate}/{per} burst {n} packets"),
            (raw::NFT_LIMIT_PKT_BYTES, 0) => format!("{over}{}/{per}", bytes(rate)),
            (raw::NFT_LIMIT_PKT_BYTES, n) => {
                format!("{over}{}/{per} burst {}", bytes(rate), bytes(u64::from(n)))
            }
            _ => return None,
        })
    }
}

impl Instruction for Limit {
    fn normalize(&mut self) {
        super::drop_if(&mut self.burst, 0);
        self.flags.get_or_insert(0);
        if *self.kind.get_or_insert(raw::NFT_LIMIT_PKTS) == raw::NFT_LIMIT_PKTS {
            // For packets without a burst the kernel uses and lists this default.
            self.burst.get_or_insert(PACKETS_BURST);
        }
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        l.say(format!("limit rate {}", self.text()?))
    }
}
