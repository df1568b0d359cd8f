//! Values and verdicts inside expressions (`NFTA_DATA_*`, `NFTA_VERDICT_*`).

use weir_netlink::attr::{Be32, Bytes, I32Be, Nest, Str};

weir_netlink::attributes! {
    /// `enum nft_data_attributes`
    pub struct DataAttrs {
        /// register bytes
        value: Bytes = NFTA_DATA_VALUE 1,
        /// a verdict instead
        verdict: Nest<VerdictAttrs> = NFTA_DATA_VERDICT 2,
    }

    /// `enum nft_verdict_attributes`
    pub struct VerdictAttrs {
        /// `NF_ACCEPT`, `NFT_JUMP` and so on
        code: I32Be = NFTA_VERDICT_CODE 1,
        /// target chain of `NFT_JUMP` and `NFT_GOTO`
        chain: Str = NFTA_VERDICT_CHAIN 2,
        /// the target chain by its id in the batch that creates it; since 5.9
        chain_id: Be32 = NFTA_VERDICT_CHAIN_ID 3,
    }
}

impl DataAttrs {
    /// A value of these register bytes.
    #[must_use]
    pub fn of(value: &[u8]) -> Self {
        Self {
            value: Some(value.to_vec()),
            ..Self::default()
        }
    }
}
