//! Loads from the local socket of the packet (`NFTA_SOCKET_*`). Since 4.20.

use weir_netlink::attr::Be32;

weir_netlink::attributes! {
    /// `enum nft_socket_attributes`
    #[doc(alias = "nft_socket")]
    pub struct Socket {
        /// `enum nft_socket_keys`
        key: Be32 = NFTA_SOCKET_KEY 1,
        /// destination register
        dreg: Be32 = NFTA_SOCKET_DREG 2,
        /// depth of the cgroup; since 5.13
        level: Be32 = NFTA_SOCKET_LEVEL 3,
    }
}
