//! Loads from or stores into the packet's metadata (`NFTA_META_*`). Since 3.13, store since 3.14.

use super::prelude::*;

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

// The word lacks `meta` where `nft` omits it.
keys! {
    nft_meta_keys MetaKey "meta " {
        host Length = NFT_META_LEN "meta length" INTEGER 4;
        net Protocol = NFT_META_PROTOCOL "meta protocol" ETHER_TYPE 2;
        host Priority = NFT_META_PRIORITY "meta priority" CLASSID 4;
        host Mark = NFT_META_MARK "meta mark" MARK 4;
        host Iif = NFT_META_IIF "iif" IFINDEX 4;
        host Oif = NFT_META_OIF "oif" IFINDEX 4;
        net Iifname = NFT_META_IIFNAME "iifname" IFNAME 16;
        net Oifname = NFT_META_OIFNAME "oifname" IFNAME 16;
        host Iiftype = NFT_META_IFTYPE "meta iiftype" ARPHRD 2;
        host Oiftype = NFT_META_OIFTYPE "meta oiftype" ARPHRD 2;
        /// the user that owns the packet's socket
        host Skuid = NFT_META_SKUID "meta skuid" UID 4;
        /// the group that owns the packet's socket
        host Skgid = NFT_META_SKGID "meta skgid" GID 4;
        host Nftrace = NFT_META_NFTRACE "meta nftrace" INTEGER 1;
        host Rtclassid = NFT_META_RTCLASSID "meta rtclassid" REALM 4;
        host Secmark = NFT_META_SECMARK "meta secmark" INTEGER 4;
        host Nfproto = NFT_META_NFPROTO "meta nfproto" NF_PROTO 1;
        host L4proto = NFT_META_L4PROTO "meta l4proto" INET_PROTO 1;
        net Ibrname = NFT_META_BRI_IIFNAME "meta ibrname" IFNAME 16;
        net Obrname = NFT_META_BRI_OIFNAME "meta obrname" IFNAME 16;
        host Pkttype = NFT_META_PKTTYPE "meta pkttype" PKT_TYPE 1;
        host Cpu = NFT_META_CPU "meta cpu" INTEGER 4;
        host Iifgroup = NFT_META_IIFGROUP "iifgroup" DEVGROUP 4;
        host Oifgroup = NFT_META_OIFGROUP "oifgroup" DEVGROUP 4;
        host Cgroup = NFT_META_CGROUP "meta cgroup" INTEGER 4;
        net Random = NFT_META_PRANDOM "meta random" INTEGER 4;
        host Ipsec = NFT_META_SECPATH "meta ipsec" BOOLEAN 1;
        net Iifkind = NFT_META_IIFKIND "meta iifkind" IFNAME 16;
        net Oifkind = NFT_META_OIFKIND "meta oifkind" IFNAME 16;
        host Ibrpvid = NFT_META_BRI_IIFPVID "meta ibrpvid" INTEGER 2;
        net Ibrvproto = NFT_META_BRI_IIFVPROTO "meta ibrvproto" ETHER_TYPE 2;
        host Time = NFT_META_TIME_NS "meta time" TIME_DATE 8;
        host Day = NFT_META_TIME_DAY "meta day" TIME_DAY 1;
        host Hour = NFT_META_TIME_HOUR "meta hour" TIME_HOUR 4;
        host Sdif = NFT_META_SDIF "meta sdif" IFINDEX 4;
        net Sdifname = NFT_META_SDIFNAME "meta sdifname" IFNAME 16;
    }
}

impl Instruction for Meta {
    const NUMBERS: Numbers = constants::CONSTANTS;

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let number = MetaKey::from(self.key?);
        let Some(register) = self.sreg else {
            let term = l.context.term(&Selector::Meta(number))?;
            return l.load(self.dreg, term);
        };
        let source = l.term(Some(register))?.typed_by(number.key()?);
        let source = l.text(&source);
        l.say(format!("{number} set {source}"))
    }
}
