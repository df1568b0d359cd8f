//! Destination NAT to this machine (`NFTA_REDIR_*`). Since 3.19, in `inet` tables since 5.2.

use weir_netlink::attr::Be32;

weir_netlink::attributes! {
    /// `enum nft_redir_attributes`
    #[doc(alias = "nft_redir")]
    pub struct Redir {
        /// register of the first port
        reg_proto_min: Be32 = NFTA_REDIR_REG_PROTO_MIN 1,
        /// register of the last port
        reg_proto_max: Be32 = NFTA_REDIR_REG_PROTO_MAX 2,
        /// `NF_NAT_RANGE_*`
        flags: Be32 = NFTA_REDIR_FLAGS 3,
    }
}
