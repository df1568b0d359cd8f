//! `(register & mask) ^ xor` (`NFTA_BITWISE_*`). Since 3.13.

use weir_netlink::attr::{Be32, Nest};

weir_netlink::attributes! {
    /// `enum nft_bitwise_attributes`
    #[doc(alias = "nft_bitwise")]
    pub struct Bitwise {
        /// source register
        sreg: Be32 = NFTA_BITWISE_SREG 1,
        /// destination register
        dreg: Be32 = NFTA_BITWISE_DREG 2,
        /// `enum nft_bitwise_ops`; since 5.6, older kernels know only mask and xor and ignore it
        op: Be32 = NFTA_BITWISE_OP 6,
        /// length in bytes, 1 to 64
        len: Be32 = NFTA_BITWISE_LEN 3,
        /// bits that are kept
        mask: Nest<super::DataAttrs> = NFTA_BITWISE_MASK 4,
        /// bits that are inverted
        xor: Nest<super::DataAttrs> = NFTA_BITWISE_XOR 5,
        /// shift width; since 5.6
        data: Nest<super::DataAttrs> = NFTA_BITWISE_DATA 7,
    }
}
