//! Loads from or stores into the packet's metadata (`NFTA_META_*`). Since 3.13, store since 3.14.

use super::Instruction;
use crate::nft::listing::{Key, Listing, find_key};
use crate::nft::model::{DataType, Selector};
use crate::nft::raw;
use weir_netlink::attr::Be32;

weir_netlink::attributes! {
    /// `enum nft_meta_attributes`
    #[doc(alias = "nft_meta")]
    pub struct Meta {
        /// `enum nft_meta_keys`
        key: Be32 = NFTA_META_KEY 2,
        /// destination register of a load
        dreg: Be32 = NFTA_META_DREG 1,
        /// source register of a store
        sreg: Be32 = NFTA_META_SREG 3,
    }
}

/// What can be loaded, by `enum nft_meta_keys`. Without `meta` where `nft` omits it.
pub(crate) const KEYS: &[Key] = &[
    Key::host(raw::NFT_META_LEN, "meta length", DataType::INTEGER, 4),
    Key::net(
        raw::NFT_META_PROTOCOL,
        "meta protocol",
        DataType::ETHER_TYPE,
        2,
    ),
    Key::host(
        raw::NFT_META_PRIORITY,
        "meta priority",
        DataType::CLASSID,
        4,
    ),
    Key::host(raw::NFT_META_MARK, "meta mark", DataType::MARK, 4),
    Key::host(raw::NFT_META_IIF, "iif", DataType::IFINDEX, 4),
    Key::host(raw::NFT_META_OIF, "oif", DataType::IFINDEX, 4),
    Key::net(raw::NFT_META_IIFNAME, "iifname", DataType::IFNAME, 16),
    Key::net(raw::NFT_META_OIFNAME, "oifname", DataType::IFNAME, 16),
    Key::host(raw::NFT_META_IFTYPE, "meta iiftype", DataType::ARPHRD, 2),
    Key::host(raw::NFT_META_OIFTYPE, "meta oiftype", DataType::ARPHRD, 2),
    Key::host(raw::NFT_META_SKUID, "meta skuid", DataType::UID, 4),
    Key::host(raw::NFT_META_SKGID, "meta skgid", DataType::GID, 4),
    Key::host(raw::NFT_META_NFTRACE, "meta nftrace", DataType::INTEGER, 1),
    Key::host(
        raw::NFT_META_RTCLASSID,
        "meta rtclassid",
        DataType::REALM,
        4,
    ),
    Key::host(raw::NFT_META_SECMARK, "meta secmark", DataType::INTEGER, 4),
    Key::host(raw::NFT_META_NFPROTO, "meta nfproto", DataType::NF_PROTO, 1),
    Key::host(
        raw::NFT_META_L4PROTO,
        "meta l4proto",
        DataType::INET_PROTO,
        1,
    ),
    Key::net(
        raw::NFT_META_BRI_IIFNAME,
        "meta ibrname",
        DataType::IFNAME,
        16,
    ),
    Key::net(
        raw::NFT_META_BRI_OIFNAME,
        "meta obrname",
        DataType::IFNAME,
        16,
    ),
    Key::host(raw::NFT_META_PKTTYPE, "meta pkttype", DataType::PKT_TYPE, 1),
    Key::host(raw::NFT_META_CPU, "meta cpu", DataType::INTEGER, 4),
    Key::host(raw::NFT_META_IIFGROUP, "iifgroup", DataType::DEVGROUP, 4),
    Key::host(raw::NFT_META_OIFGROUP, "oifgroup", DataType::DEVGROUP, 4),
    Key::host(raw::NFT_META_CGROUP, "meta cgroup", DataType::INTEGER, 4),
    Key::net(raw::NFT_META_PRANDOM, "meta random", DataType::INTEGER, 4),
    Key::host(raw::NFT_META_SECPATH, "meta ipsec", DataType::BOOLEAN, 1),
    Key::net(raw::NFT_META_IIFKIND, "meta iifkind", DataType::IFNAME, 16),
    Key::net(raw::NFT_META_OIFKIND, "meta oifkind", DataType::IFNAME, 16),
    Key::host(
        raw::NFT_META_BRI_IIFPVID,
        "meta ibrpvid",
        DataType::INTEGER,
        2,
    ),
    Key::net(
        raw::NFT_META_BRI_IIFVPROTO,
        "meta ibrvproto",
        DataType::ETHER_TYPE,
        2,
    ),
    Key::host(raw::NFT_META_TIME_NS, "meta time", DataType::TIME_DATE, 8),
    Key::host(raw::NFT_META_TIME_DAY, "meta day", DataType::TIME_DAY, 1),
    Key::host(raw::NFT_META_TIME_HOUR, "meta hour", DataType::TIME_HOUR, 4),
    Key::host(raw::NFT_META_SDIF, "meta sdif", DataType::IFINDEX, 4),
    Key::net(
        raw::NFT_META_SDIFNAME,
        "meta sdifname",
        DataType::IFNAME,
        16,
    ),
];

/// `meta KEY`
pub(crate) fn text(key: u32) -> String {
    find_key(KEYS, key).map_or_else(|| format!("meta {key}"), |k| k.word.to_owned())
}

impl Instruction for Meta {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let number = self.key?;
        let key = find_key(KEYS, number)?;
        let Some(register) = self.sreg else {
            let term = l.context.term(&Selector::Meta(number.into()));
            return l.load(self.dreg, term);
        };
        let source = l.term(Some(register))?.typed(key.data_type, key.host_order);
        let source = l.text(&source);
        l.say(format!("{} set {source}", key.word))
    }
}
