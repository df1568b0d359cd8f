//! Source or destination NAT (`NFTA_NAT_*`). Since 3.13, in `inet` tables since 5.2.

use weir_netlink::attr::Be32;

weir_netlink::attributes! {
    /// `enum nft_nat_attributes`
    pub struct Nat {
        /// `enum nft_nat_types`
        kind: Be32 = NFTA_NAT_TYPE 1,
        /// `NFPROTO_IPV4` or `NFPROTO_IPV6`
        family: Be32 = NFTA_NAT_FAMILY 2,
        /// register of the first address
        reg_addr_min: Be32 = NFTA_NAT_REG_ADDR_MIN 3,
        /// register of the last address
        reg_addr_max: Be32 = NFTA_NAT_REG_ADDR_MAX 4,
        /// register of the first port
        reg_proto_min: Be32 = NFTA_NAT_REG_PROTO_MIN 5,
        /// register of the last port
        reg_proto_max: Be32 = NFTA_NAT_REG_PROTO_MAX 6,
        /// `NF_NAT_RANGE_*`
        flags: Be32 = NFTA_NAT_FLAGS 7,
    }
}
