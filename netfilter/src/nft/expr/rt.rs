//! Loads from the route of the packet (`NFTA_RT_*`). Since 4.10, `tcpmss` since 4.14, `ipsec` since 4.20.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_rt_attributes`
    #[doc(alias = "nft_rt")]
    pub struct Rt {
        /// destination register
        dreg: Be32 = NFTA_RT_DREG 1,
        /// `enum nft_rt_keys`
        key: Be32 = NFTA_RT_KEY 2,
    }
}

keys! {
    nft_rt_keys RtKey "rt " {
        host Classid = NFT_RT_CLASSID "rt classid" REALM 4;
        net Nexthop4 = NFT_RT_NEXTHOP4 "rt ip nexthop" IPV4_ADDR 4;
        net Nexthop6 = NFT_RT_NEXTHOP6 "rt ip6 nexthop" IPV6_ADDR 16;
        host Mtu = NFT_RT_TCPMSS "rt mtu" INTEGER 2;
        host Ipsec = NFT_RT_XFRM "rt ipsec" BOOLEAN 1;
    }
}

impl Instruction for Rt {
    const NUMBERS: Numbers = constants::CONSTANTS;

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let key = RtKey::from(self.key?);
        l.load(self.dreg, Term::named(key.to_string(), key.key()?))
    }
}
