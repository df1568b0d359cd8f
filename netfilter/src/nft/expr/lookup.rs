//! Looks a register up in a set or map (`NFTA_LOOKUP_*`). Since 3.13, inverted since 4.8.

use weir_netlink::attr::{Be32, Str};

weir_netlink::attributes! {
    /// `enum nft_lookup_attributes`
    #[doc(alias = "nft_lookup")]
    pub struct Lookup {
        /// key register
        sreg: Be32 = NFTA_LOOKUP_SREG 2,
        /// destination register of a map's value
        dreg: Be32 = NFTA_LOOKUP_DREG 3,
        /// name of the set
        set: Str = NFTA_LOOKUP_SET 1,
        /// id of a set that is created in the same batch
        set_id: Be32 = NFTA_LOOKUP_SET_ID 4,
        /// `NFT_LOOKUP_F_INV`
        flags: Be32 = NFTA_LOOKUP_FLAGS 5,
    }
}
