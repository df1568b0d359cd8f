//! Loads from the route of the packet (`NFTA_RT_*`). Since 4.9, `tcpmss` since 4.14, `ipsec` since 4.20.

use super::Instruction;
use crate::nft::listing::{Key, Listing, Term, find_key};
use crate::nft::model::DataType;
use crate::nft::raw;
use weir_netlink::attr::Be32;

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

/// What can be loaded, by `enum nft_rt_keys`.
const KEYS: &[Key] = &[
    Key::host(raw::NFT_RT_CLASSID, "classid", DataType::REALM, 4),
    Key::net(raw::NFT_RT_NEXTHOP4, "ip nexthop", DataType::IPV4_ADDR, 4),
    Key::net(raw::NFT_RT_NEXTHOP6, "ip6 nexthop", DataType::IPV6_ADDR, 16),
    Key::host(raw::NFT_RT_TCPMSS, "mtu", DataType::INTEGER, 2),
    Key::host(raw::NFT_RT_XFRM, "ipsec", DataType::BOOLEAN, 1),
];

impl Instruction for Rt {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let k = find_key(KEYS, self.key?)?;
        let term = Term::named(format!("rt {}", k.word), k.data_type, k.len, k.host_order);
        l.load(self.dreg, term)
    }
}
