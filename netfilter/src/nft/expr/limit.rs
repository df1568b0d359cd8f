//! A token bucket (`NFTA_LIMIT_*`). Since 3.13, bytes and burst since 4.3, inverted since 4.3.

use weir_netlink::attr::{Be32, Be64};

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
