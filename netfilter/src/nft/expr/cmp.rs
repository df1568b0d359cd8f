//! Compares a register with a value (`NFTA_CMP_*`). Since 3.13.

use weir_netlink::attr::{Be32, Nest};

weir_netlink::attributes! {
    /// `enum nft_cmp_attributes`
    #[doc(alias = "nft_cmp")]
    pub struct Cmp {
        /// source register
        sreg: Be32 = NFTA_CMP_SREG 1,
        /// `enum nft_cmp_ops`; bytes are compared, so numbers must be in network order
        op: Be32 = NFTA_CMP_OP 2,
        /// the value
        data: Nest<super::DataAttrs> = NFTA_CMP_DATA 3,
    }
}
