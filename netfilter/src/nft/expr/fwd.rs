//! Sends the packet to another interface (`NFTA_FWD_*`). Since 4.5, with an address since 4.19.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_fwd_attributes`
    #[doc(alias = "nft_fwd")]
    pub struct Fwd {
        /// register of the interface index
        sreg_dev: Be32 = NFTA_FWD_SREG_DEV 1,
        /// register of the address
        sreg_addr: Be32 = NFTA_FWD_SREG_ADDR 2,
        /// family of the address
        nfproto: Be32 = NFTA_FWD_NFPROTO 3,
    }
}

impl Instruction for Fwd {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let device = l.term(self.sreg_dev)?.typed(DataType::IFINDEX, true);
        if self.sreg_addr.is_none() {
            let device = l.text(&device);
            return l.say(format!("fwd to {device}"));
        }
        let (word, data_type) = match u8::try_from(self.nfproto?).ok()? {
            raw::NFPROTO_IPV4 => ("ip", DataType::IPV4_ADDR),
            raw::NFPROTO_IPV6 => ("ip6", DataType::IPV6_ADDR),
            _ => return None,
        };
        let address = l.term(self.sreg_addr)?.typed(data_type, false);
        let (address, device) = (l.text(&address), l.text(&device));
        l.say(format!("fwd {word} to {address} device {device}"))
    }
}
