//! Delivers the packet to a local socket (`NFTA_TPROXY_*`). Since 4.19.

use weir_netlink::attr::Be32;

weir_netlink::attributes! {
    /// `enum nft_tproxy_attributes`
    pub struct Tproxy {
        /// `NFPROTO_IPV4`, `NFPROTO_IPV6` or `NFPROTO_UNSPEC`
        family: Be32 = NFTA_TPROXY_FAMILY 1,
        /// register of the address
        reg_addr: Be32 = NFTA_TPROXY_REG_ADDR 2,
        /// register of the port
        reg_port: Be32 = NFTA_TPROXY_REG_PORT 3,
    }
}
