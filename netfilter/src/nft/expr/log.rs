//! Logs the packet (`NFTA_LOG_*`). Since 3.13.

use super::prelude::*;
use crate::nft::display::numbers;

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

/// `LOGLEVEL_WARNING`, the kernel's default.
const WARNING: u32 = 4;

impl Instruction for Log {
    fn normalize(&mut self) {
        super::drop_if(&mut self.flags, 0);
        super::drop_if(&mut self.qthreshold, 0);
        super::drop_if(&mut self.level, WARNING);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let mut text = String::from("log");
        if let Some(prefix) = &self.prefix {
            text += &format!(" prefix \"{prefix}\"");
        }
        if let Some(group) = self.group {
            text += &format!(" group {group}");
            // 0 copies nothing; without this attribute the length that the reader configured applies.
            if let Some(n) = self.snaplen {
                text += &format!(" snaplen {n}");
            }
            if let Some(n) = self.qthreshold.filter(|n| *n != 0) {
                text += &format!(" queue-threshold {n}");
            }
        }
        if let Some(level) = self.level.filter(|n| *n != WARNING) {
            let name = numbers::name(numbers::LOG_LEVELS, u64::from(level)).unwrap_or("unknown");
            text += &format!(" level {name}");
        }
        let flags = self.flags.unwrap_or(0);
        if flags & raw::NF_LOG_MASK == raw::NF_LOG_MASK {
            return l.say(text + " flags all");
        }
        match (
            flags & raw::NF_LOG_TCPSEQ != 0,
            flags & raw::NF_LOG_TCPOPT != 0,
        ) {
            (true, true) => text += " flags tcp sequence,options",
            (true, false) => text += " flags tcp sequence",
            (false, true) => text += " flags tcp options",
            (false, false) => {}
        }
        for (bit, words) in [
            (raw::NF_LOG_IPOPT, " flags ip options"),
            (raw::NF_LOG_UID, " flags skuid"),
            (raw::NF_LOG_MACDECODE, " flags ether"),
        ] {
            if flags & bit != 0 {
                text += words;
            }
        }
        l.say(text)
    }
}
