//! Matches on the number of connections of an element or a rule (`NFTA_CONNLIMIT_*`). Since 4.18.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_connlimit_attributes`
    #[doc(alias = "nft_connlimit")]
    pub struct Connlimit {
        /// limit: matches up to this number of connections, inverted above it
        count: Be32 = NFTA_CONNLIMIT_COUNT 1,
        /// `NFT_CONNLIMIT_F_INV`
        flags: Be32 = NFTA_CONNLIMIT_FLAGS 2,
    }
}

impl Instruction for Connlimit {
    fn normalize(&mut self) {
        super::drop_if(&mut self.flags, 0);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let over = match self.flags.unwrap_or(0) & raw::NFT_CONNLIMIT_F_INV {
            0 => "",
            _ => "over ",
        };
        l.say(format!("ct count {over}{}", self.count?))
    }
}
