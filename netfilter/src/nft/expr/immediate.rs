//! Loads a value or a verdict into a register (`NFTA_IMMEDIATE_*`). Since 3.13.

use super::prelude::*;
use crate::nft::delinearize;

weir_netlink::attributes! {
    /// `enum nft_immediate_attributes`
    #[doc(alias = "nft_immediate")]
    pub struct Immediate {
        /// destination register; `NFT_REG_VERDICT` for a verdict
        dreg: Be32 = NFTA_IMMEDIATE_DREG 1,
        /// the value or the verdict
        data: Nest<DataAttrs> = NFTA_IMMEDIATE_DATA 2,
    }
}

impl Instruction for Immediate {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let data = self.data.as_ref()?;
        if self.dreg == Some(raw::NFT_REG_VERDICT) {
            return l.say(delinearize::verdict(data.verdict.as_ref()?).to_string());
        }
        l.load(self.dreg, Term::value(data.value.as_deref()?.into()))
    }
}
