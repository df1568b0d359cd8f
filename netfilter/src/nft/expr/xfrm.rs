//! Loads from the IPsec transformation of the packet (`NFTA_XFRM_*`). Since 4.20.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_xfrm_attributes`
    #[doc(alias = "nft_xfrm")]
    pub struct Xfrm {
        /// destination register
        dreg: Be32 = NFTA_XFRM_DREG 1,
        /// `enum nft_xfrm_keys`
        key: Be32 = NFTA_XFRM_KEY 2,
        /// `XFRM_POLICY_IN` (0) or `XFRM_POLICY_OUT` (1)
        dir: U8 = NFTA_XFRM_DIR 3,
        /// index of the transformation
        spnum: Be32 = NFTA_XFRM_SPNUM 4,
    }
}

keys! {
    nft_xfrm_keys XfrmKey "" {
        net DaddrIp4 = NFT_XFRM_KEY_DADDR_IP4 (1) "ip daddr" IPV4_ADDR 4;
        net DaddrIp6 = NFT_XFRM_KEY_DADDR_IP6 "ip6 daddr" IPV6_ADDR 16;
        net SaddrIp4 = NFT_XFRM_KEY_SADDR_IP4 "ip saddr" IPV4_ADDR 4;
        net SaddrIp6 = NFT_XFRM_KEY_SADDR_IP6 "ip6 saddr" IPV6_ADDR 16;
        host Reqid = NFT_XFRM_KEY_REQID "reqid" INTEGER 4;
        net Spi = NFT_XFRM_KEY_SPI "spi" INTEGER 4;
    }
}

impl Instruction for Xfrm {
    const NUMBERS: Numbers = constants::CONSTANTS;

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let key = XfrmKey::from(self.key?);
        let dir = match self.dir? {
            0 => "in",
            1 => "out",
            _ => return None,
        };
        let spnum = match self.spnum.unwrap_or(0) {
            0 => String::new(),
            n => format!("spnum {n} "),
        };
        let text = format!("ipsec {dir} {spnum}{key}");
        l.load(self.dreg, Term::named(text, key.key()?))
    }
}
