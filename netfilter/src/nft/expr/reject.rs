//! Rejects the packet with an answer (`NFTA_REJECT_*`). Since 3.14, `inet` since 3.18.

use weir_netlink::attr::{Be32, U8};

weir_netlink::attributes! {
    /// `enum nft_reject_attributes`
    pub struct Reject {
        /// `enum nft_reject_types`
        kind: Be32 = NFTA_REJECT_TYPE 1,
        /// ICMP code, or `enum nft_reject_inet_code`
        icmp_code: U8 = NFTA_REJECT_ICMP_CODE 2,
    }
}
