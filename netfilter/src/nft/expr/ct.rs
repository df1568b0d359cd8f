//! Loads from or stores into the conntrack entry (`NFTA_CT_*`). Since 3.13, store since 3.16, zone since 4.11.

use weir_netlink::attr::{Be32, U8};

weir_netlink::attributes! {
    /// `enum nft_ct_attributes`
    #[doc(alias = "nft_ct")]
    pub struct Ct {
        /// `enum nft_ct_keys`
        key: Be32 = NFTA_CT_KEY 2,
        /// destination register of a load
        dreg: Be32 = NFTA_CT_DREG 1,
        /// `enum ip_conntrack_dir`, for the keys that have one
        direction: U8 = NFTA_CT_DIRECTION 3,
        /// source register of a store
        sreg: Be32 = NFTA_CT_SREG 4,
    }
}
