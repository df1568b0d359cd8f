//! Stores the time of the last packet (`NFTA_LAST_*`). Since 5.14.

use super::prelude::*;
use crate::nft::display::duration;
use std::time::Duration;

weir_netlink::attributes! {
    /// `enum nft_last_attributes`
    #[doc(alias = "nft_last")]
    pub struct Last {
        /// 1 after the first packet, else 0
        set: Be32 = NFTA_LAST_SET 1,
        /// milliseconds since the last packet
        msecs: Be64 = NFTA_LAST_MSECS 2,
    }
}

impl Instruction for Last {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        match self.set.unwrap_or(0) {
            0 => l.say("last used never"),
            _ => l.say(format!(
                "last used {}",
                duration(Duration::from_millis(self.msecs.unwrap_or(0)))
            )),
        }
    }
}
