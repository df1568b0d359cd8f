//! Sends a copy of the packet (`NFTA_DUP_*`). Since 4.3, `netdev` since 4.5.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_dup_attributes`
    #[doc(alias = "nft_dup")]
    pub struct Dup {
        /// register of the address
        sreg_addr: Be32 = NFTA_DUP_SREG_ADDR 1,
        /// register of the interface index
        sreg_dev: Be32 = NFTA_DUP_SREG_DEV 2,
    }
}

impl Instruction for Dup {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let data_type = match l.family {
            TableFamily::Ip6 => DataType::IPV6_ADDR,
            _ => DataType::IPV4_ADDR,
        };
        let mut parts = Vec::new();
        if self.sreg_addr.is_some() {
            let term = l.term(self.sreg_addr)?.typed(data_type, false);
            parts.push(l.text(&term));
        }
        if self.sreg_dev.is_some() {
            let term = l.term(self.sreg_dev)?.typed(DataType::IFINDEX, true);
            parts.push(l.text(&term));
        }
        if parts.is_empty() {
            return None;
        }
        l.say(format!("dup to {}", parts.join(" device ")))
    }
}
