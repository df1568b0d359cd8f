//! Logs the packet (`NFTA_LOG_*`). Since 3.13.

use weir_netlink::attr::{Be16, Be32, Str};

weir_netlink::attributes! {
    /// `enum nft_log_attributes`
    pub struct Log {
        /// text before the packet
        prefix: Str = NFTA_LOG_PREFIX 2,
        /// group of nfnetlink_log
        group: Be16 = NFTA_LOG_GROUP 1,
        /// number of bytes that are copied
        snaplen: Be32 = NFTA_LOG_SNAPLEN 3,
        /// number of packets that are collected
        qthreshold: Be16 = NFTA_LOG_QTHRESHOLD 4,
        /// `enum nft_log_level`
        level: Be32 = NFTA_LOG_LEVEL 5,
        /// `NF_LOG_*`
        flags: Be32 = NFTA_LOG_FLAGS 6,
    }
}
