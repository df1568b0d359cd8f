//! Converts a register between host and network order (`NFTA_BYTEORDER_*`). Since 3.13.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_byteorder_attributes`
    #[doc(alias = "nft_byteorder")]
    pub struct Byteorder {
        /// source register
        sreg: Be32 = NFTA_BYTEORDER_SREG 1,
        /// destination register
        dreg: Be32 = NFTA_BYTEORDER_DREG 2,
        /// `NFT_BYTEORDER_NTOH` or `NFT_BYTEORDER_HTON`
        op: Be32 = NFTA_BYTEORDER_OP 3,
        /// total length in bytes
        len: Be32 = NFTA_BYTEORDER_LEN 4,
        /// length of one number in bytes: 2, 4 or 8
        size: Be32 = NFTA_BYTEORDER_SIZE 5,
    }
}

impl Instruction for Byteorder {
    /// The same term in the other order.
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let mut term = l.term(self.sreg)?;
        term.host_order = !term.host_order;
        l.load(self.dreg, term)
    }
}
