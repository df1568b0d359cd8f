//! Matches until, or after, a number of bytes (`NFTA_QUOTA_*`). Since 4.9.

use super::prelude::*;
use crate::nft::display::bytes;

weir_netlink::attributes! {
    /// `enum nft_quota_attributes`
    #[doc(alias = "nft_quota")]
    pub struct Quota {
        /// limit in bytes
        bytes: Be64 = NFTA_QUOTA_BYTES 1,
        /// `NFT_QUOTA_F_*`
        flags: Be32 = NFTA_QUOTA_FLAGS 2,
        /// bytes used so far
        consumed: Be64 = NFTA_QUOTA_CONSUMED 4,
    }
}

impl Quota {
    /// Whether it is used up. The kernel lists `NFT_QUOTA_F_DEPLETED` for it, and refuses this flag in a request.
    pub(crate) fn is_depleted(&self) -> bool {
        self.flags.unwrap_or(0) & raw::NFT_QUOTA_F_DEPLETED != 0
    }

    /// Removes the flag that the kernel refuses in a request.
    pub(crate) fn settle_flags(&mut self) {
        self.flags = self.flags.map(|flags| flags & !raw::NFT_QUOTA_F_DEPLETED);
    }

    /// `over 25 mbytes used 1 kbytes`
    pub(crate) fn text(&self) -> Option<String> {
        let over = match self.flags.unwrap_or(0) & raw::NFT_QUOTA_F_INV {
            0 => "",
            _ => "over ",
        };
        let mut text = format!("{over}{}", bytes(self.bytes?));
        if let Some(used) = self.consumed.filter(|n| *n != 0) {
            text += &format!(" used {}", bytes(used));
        }
        Some(text)
    }
}

impl Instruction for Quota {
    fn normalize(&mut self) {
        self.settle_flags();
        super::drop_if(&mut self.consumed, 0);
        super::drop_if(&mut self.flags, 0);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        l.say(format!("quota {}", self.text()?))
    }
}
