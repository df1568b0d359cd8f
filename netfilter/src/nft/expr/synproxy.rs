//! Answers the handshake in place of the server (`NFTA_SYNPROXY_*`). Since 5.3.

use super::Instruction;
use crate::nft::listing::Listing;
use crate::nft::raw;
use weir_netlink::attr::{Be16, Be32, U8};

weir_netlink::attributes! {
    /// `enum nft_synproxy_attributes`
    #[doc(alias = "nft_synproxy")]
    pub struct Synproxy {
        /// maximum segment size that is announced
        mss: Be16 = NFTA_SYNPROXY_MSS 1,
        /// window scale that is announced
        wscale: U8 = NFTA_SYNPROXY_WSCALE 2,
        /// `NF_SYNPROXY_OPT_*`
        flags: Be32 = NFTA_SYNPROXY_FLAGS 3,
    }
}

impl Instruction for Synproxy {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let has = |bit| self.flags.unwrap_or(0) & bit != 0;
        let mut text = "synproxy".to_owned();
        if has(raw::NF_SYNPROXY_OPT_MSS) || has(raw::NF_SYNPROXY_OPT_WSCALE) {
            let (mss, wscale) = (self.mss.unwrap_or(0), self.wscale.unwrap_or(0));
            text += &format!(" mss {mss} wscale {wscale}");
        }
        if has(raw::NF_SYNPROXY_OPT_TIMESTAMP) {
            text += " timestamp";
        }
        if has(raw::NF_SYNPROXY_OPT_SACK_PERM) {
            text += " sack-perm";
        }
        l.say(text)
    }
}
