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

/// The values that can be loaded, by `enum nft_rt_keys`.
const KEYS: &[Key] = keys! {
    host NFT_RT_CLASSID "classid" REALM 4;
    net NFT_RT_NEXTHOP4 "ip nexthop" IPV4_ADDR 4;
    net NFT_RT_NEXTHOP6 "ip6 nexthop" IPV6_ADDR 16;
    host NFT_RT_TCPMSS "mtu" INTEGER 2;
    host NFT_RT_XFRM "ipsec" BOOLEAN 1;
};

impl Instruction for Rt {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let k = find_key(KEYS, self.key?)?;
        let term = Term::named(format!("rt {}", k.word), k.data_type, k.len, k.host_order);
        l.load(self.dreg, term)
    }
}
