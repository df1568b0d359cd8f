//! Loads a value or a verdict into a register (`NFTA_IMMEDIATE_*`). Since 3.13.

use weir_netlink::attr::{Be32, Nest};

weir_netlink::attributes! {
    /// `enum nft_immediate_attributes`
    #[doc(alias = "nft_immediate")]
    pub struct Immediate {
        /// destination register; `NFT_REG_VERDICT` for a verdict
        dreg: Be32 = NFTA_IMMEDIATE_DREG 1,
        /// the value or the verdict
        data: Nest<super::DataAttrs> = NFTA_IMMEDIATE_DATA 2,
    }
}
