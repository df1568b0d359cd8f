//! Adds the connection to a flowtable (`NFTA_FLOW_*`). Since 4.16.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_offload_attributes`
    #[doc(alias = "nft_flow_offload")]
    pub struct FlowOffload {
        /// name of the flowtable
        table: Str = NFTA_FLOW_TABLE_NAME 1,
    }
}

impl Instruction for FlowOffload {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        l.say(format!("flow add @{}", self.table.as_deref()?))
    }
}
