//! Counts packets and bytes (`NFTA_COUNTER_*`). Since 3.13.

use weir_netlink::attr::Be64;

weir_netlink::attributes! {
    /// `enum nft_counter_attributes`
    pub struct Counter {
        /// bytes so far
        bytes: Be64 = NFTA_COUNTER_BYTES 1,
        /// packets so far
        packets: Be64 = NFTA_COUNTER_PACKETS 2,
    }
}
