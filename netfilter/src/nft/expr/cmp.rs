//! Compares a register with a value (`NFTA_CMP_*`). Since 3.13.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_cmp_attributes`
    #[doc(alias = "nft_cmp")]
    pub struct Cmp {
        /// source register
        sreg: Be32 = NFTA_CMP_SREG 1,
        /// `enum nft_cmp_ops`; bytes are compared, so numbers must be in network order
        op: Be32 = NFTA_CMP_OP 2,
        /// the value
        data: Nest<DataAttrs> = NFTA_CMP_DATA 3,
    }
}

impl Instruction for Cmp {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let op = CmpOp::of(self.op?)?;
        let data = Data::from(self.data.as_ref()?.value.as_deref()?);
        let left = l.term(self.sreg)?;
        let len = u32::try_from(data.0.len()).ok()?;
        let left = match left.len {
            n if n > 0 && n < len => l.key(self.sreg, Some(len), None)?,
            _ => left,
        };
        l.relation(&left, op, &Right::Value(data))
    }
}
