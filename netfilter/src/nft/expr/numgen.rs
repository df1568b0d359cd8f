//! Generates a number (`NFTA_NG_*`). Since 4.9.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_ng_attributes`
    #[doc(alias = "nft_ng")]
    pub struct Numgen {
        /// destination register
        dreg: Be32 = NFTA_NG_DREG 1,
        /// one more than the highest number
        modulus: Be32 = NFTA_NG_MODULUS 2,
        /// `enum nft_ng_types`
        kind: Be32 = NFTA_NG_TYPE 3,
        /// added to the number
        offset: Be32 = NFTA_NG_OFFSET 4,
    }
}

/// ` offset N`
pub(super) fn offset(n: Option<u32>) -> String {
    match n.unwrap_or(0) {
        0 => String::new(),
        n => format!(" offset {n}"),
    }
}

impl Instruction for Numgen {
    fn normalize(&mut self) {
        super::drop_if(&mut self.offset, 0);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let kind = match self.kind? {
            raw::NFT_NG_INCREMENTAL => "inc",
            raw::NFT_NG_RANDOM => "random",
            _ => return None,
        };
        let text = format!("numgen {kind} mod {}{}", self.modulus?, offset(self.offset));
        l.load(
            self.dreg,
            Term::named(text, Key::host(DataType::INTEGER, 4)),
        )
    }
}
