//! Counts packets and bytes (`NFTA_COUNTER_*`). Since 3.13.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_counter_attributes`
    pub struct Counter {
        /// bytes so far
        bytes: Be64 = NFTA_COUNTER_BYTES 1,
        /// packets so far
        packets: Be64 = NFTA_COUNTER_PACKETS 2,
    }
}

impl Instruction for Counter {
    fn normalize(&mut self) {
        super::drop_if(&mut self.bytes, 0);
        super::drop_if(&mut self.packets, 0);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let (packets, bytes) = (self.packets.unwrap_or(0), self.bytes.unwrap_or(0));
        l.say(format!("counter packets {packets} bytes {bytes}"))
    }
}
