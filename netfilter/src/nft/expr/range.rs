//! Compares a register with a range (`NFTA_RANGE_*`). Since 4.9.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_range_attributes`
    #[doc(alias = "nft_range")]
    pub struct Range {
        /// source register
        sreg: Be32 = NFTA_RANGE_SREG 1,
        /// `NFT_RANGE_EQ` or `NFT_RANGE_NEQ`
        op: Be32 = NFTA_RANGE_OP 2,
        /// first value
        from: Nest<DataAttrs> = NFTA_RANGE_FROM_DATA 3,
        /// last value
        to: Nest<DataAttrs> = NFTA_RANGE_TO_DATA 4,
    }
}

impl Instruction for Range {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let data = |d: &Option<DataAttrs>| Some(Data::from(d.as_ref()?.value.as_deref()?));
        let op = match self.op? {
            raw::NFT_RANGE_EQ => CmpOp::Eq,
            raw::NFT_RANGE_NEQ => CmpOp::Neq,
            _ => return None,
        };
        let left = l.term(self.sreg)?;
        l.relation(&left, op, &Right::Range(data(&self.from)?, data(&self.to)?))
    }
}
