//! Constants of nfnetlink.

use crate::message::constants;

// linux/netfilter/nfnetlink.h
constants! {
    /// The only version of nfnetlink.
    pub NFNETLINK_V0: u8 = 0,
    /// The subsystem id of ipset.
    pub NFNL_SUBSYS_IPSET: u16 = 6,
    /// The subsystem id of nf_tables.
    pub NFNL_SUBSYS_NFTABLES: u16 = 10,
    /// Begins a batch.
    pub NFNL_MSG_BATCH_BEGIN: u16 = 16,
    /// Ends and commits a batch.
    pub NFNL_MSG_BATCH_END: u16 = 17,
    /// Notifications of nf_tables.
    pub NFNLGRP_NFTABLES: u32 = 7,
    /// Trace events of packets with `nftrace` set.
    pub NFNLGRP_NFTRACE: u32 = 9,
    /// Attribute of [`NFNL_MSG_BATCH_BEGIN`]: commit only if the ruleset still has this generation. Since 4.12
    pub NFNL_BATCH_GENID: u16 = 1,
}

/// `nlmsg_type` of a subsystem's message: `NFNL_SUBSYS << 8 | NFT_MSG`.
#[must_use]
pub const fn message_type(subsystem: u16, message: u16) -> u16 {
    subsystem << 8 | message
}
