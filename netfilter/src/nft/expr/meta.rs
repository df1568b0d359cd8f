//! Loads from or stores into the packet's metadata (`NFTA_META_*`). Since 3.13, store since 3.14.

use weir_netlink::attr::Be32;

weir_netlink::attributes! {
    /// `enum nft_meta_attributes`
    #[doc(alias = "nft_meta")]
    pub struct Meta {
        /// `enum nft_meta_keys`
        key: Be32 = NFTA_META_KEY 2,
        /// destination register of a load
        dreg: Be32 = NFTA_META_DREG 1,
        /// source register of a store
        sreg: Be32 = NFTA_META_SREG 3,
    }
}
