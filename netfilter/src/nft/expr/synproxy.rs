//! Answers the handshake in place of the server (`NFTA_SYNPROXY_*`). Since 5.3.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_synproxy_attributes`
    #[doc(alias = "nft_synproxy")]
    pub struct Synproxy {
        /// maximum segment size that is announced
        mss: Be16 = NFTA_SYNPROXY_MSS 1,
        /// window scale that is announced
        wscale: U8 = NFTA_SYNPROXY_WSCALE 2,
        /// `NF_SYNPROXY_OPT_*`
        flags: Be32 = NFTA_SYNPROXY_FLAGS 3,
    }
}

impl Synproxy {
    /// `mss 1460`, `wscale 7`, `timestamp sack-perm`
    pub(crate) fn parts(&self) -> Vec<String> {
        let has = |bit| self.flags.unwrap_or(0) & bit != 0;
        let mut parts = Vec::new();
        if has(raw::NF_SYNPROXY_OPT_MSS) || has(raw::NF_SYNPROXY_OPT_WSCALE) {
            parts.push(format!("mss {}", self.mss.unwrap_or(0)));
            parts.push(format!("wscale {}", self.wscale.unwrap_or(0)));
        }
        let word = |bit, name| if has(bit) { name } else { "" };
        let flags = [
            word(raw::NF_SYNPROXY_OPT_TIMESTAMP, "timestamp"),
            word(raw::NF_SYNPROXY_OPT_SACK_PERM, "sack-perm"),
        ];
        // For an object, nft lists the space between the two even if there is only one.
        if flags != ["", ""] {
            parts.push(flags.join(" "));
        }
        parts
    }
}

impl Instruction for Synproxy {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let parts = self.parts();
        let words = parts.iter().map(|part| part.trim());
        let words: Vec<&str> = std::iter::once("synproxy").chain(words).collect();
        l.say(words.join(" "))
    }
}
