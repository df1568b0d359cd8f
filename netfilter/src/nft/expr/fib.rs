//! Looks a route up (`NFTA_FIB_*`). Since 4.10.

use weir_netlink::attr::Be32;

weir_netlink::attributes! {
    /// `enum nft_fib_attributes`
    #[doc(alias = "nft_fib")]
    pub struct Fib {
        /// `enum nft_fib_flags`: the inputs of the lookup
        flags: Be32 = NFTA_FIB_FLAGS 3,
        /// `enum nft_fib_result`
        result: Be32 = NFTA_FIB_RESULT 2,
        /// destination register
        dreg: Be32 = NFTA_FIB_DREG 1,
    }
}
