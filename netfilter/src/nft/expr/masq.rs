//! Source NAT to the address of the outgoing interface (`NFTA_MASQ_*`). Since 3.18.

use weir_netlink::attr::Be32;

weir_netlink::attributes! {
    /// `enum nft_masq_attributes`
    #[doc(alias = "nft_masq")]
    pub struct Masq {
        /// `NF_NAT_RANGE_*`
        flags: Be32 = NFTA_MASQ_FLAGS 1,
        /// register of the first port
        reg_proto_min: Be32 = NFTA_MASQ_REG_PROTO_MIN 2,
        /// register of the last port
        reg_proto_max: Be32 = NFTA_MASQ_REG_PROTO_MAX 3,
    }
}
