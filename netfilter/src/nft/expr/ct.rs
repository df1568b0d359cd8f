//! Loads from or stores into the conntrack entry (`NFTA_CT_*`). Since 3.13, store since 3.16, zone since 4.11.

use super::prelude::*;
use crate::nft::delinearize::ct_direction;
use crate::nft::model::CtDirection;

weir_netlink::attributes! {
    /// `enum nft_ct_attributes`
    #[doc(alias = "nft_ct")]
    pub struct Ct {
        /// `enum nft_ct_keys`
        key: Be32 = NFTA_CT_KEY 2,
        /// destination register of a load
        dreg: Be32 = NFTA_CT_DREG 1,
        /// `enum ip_conntrack_dir`, for the keys that have one
        direction: U8 = NFTA_CT_DIRECTION 3,
        /// source register of a store
        sreg: Be32 = NFTA_CT_SREG 4,
    }
}

/// The values that can be loaded, by `enum nft_ct_keys`.
pub(crate) const KEYS: &[Key] = keys! {
    host NFT_CT_STATE "state" CT_STATE 4;
    host NFT_CT_DIRECTION "direction" CT_DIR 1;
    host NFT_CT_STATUS "status" CT_STATUS 4;
    host NFT_CT_MARK "mark" MARK 4;
    host NFT_CT_SECMARK "secmark" INTEGER 4;
    host NFT_CT_EXPIRATION "expiration" TIME 4;
    net NFT_CT_HELPER "helper" STRING 16;
    host NFT_CT_L3PROTOCOL "l3proto" NF_PROTO 1;
    // Of rules from before the key contained the family.
    net NFT_CT_SRC "saddr" IPV4_ADDR 0;
    net NFT_CT_DST "daddr" IPV4_ADDR 0;
    host NFT_CT_PROTOCOL "protocol" INET_PROTO 1;
    net NFT_CT_PROTO_SRC "proto-src" INET_SERVICE 2;
    net NFT_CT_PROTO_DST "proto-dst" INET_SERVICE 2;
    host NFT_CT_LABELS "label" CT_LABEL 16;
    host NFT_CT_PKTS "packets" INTEGER 8;
    host NFT_CT_BYTES "bytes" INTEGER 8;
    host NFT_CT_AVGPKT "avgpkt" INTEGER 8;
    host NFT_CT_ZONE "zone" INTEGER 2;
    host NFT_CT_EVENTMASK "event" CT_EVENT 4;
    net NFT_CT_SRC_IP "ip saddr" IPV4_ADDR 4;
    net NFT_CT_DST_IP "ip daddr" IPV4_ADDR 4;
    net NFT_CT_SRC_IP6 "ip6 saddr" IPV6_ADDR 16;
    net NFT_CT_DST_IP6 "ip6 daddr" IPV6_ADDR 16;
    net NFT_CT_ID "id" INTEGER 4;
};

/// `ct [original|reply] KEY`, with the family of an address where the key does not have it
pub(crate) fn text(key: u32, direction: Option<CtDirection>, family: &str) -> String {
    let Some(key) = find_key(KEYS, key) else {
        return format!("ct {key}");
    };
    match direction {
        None => format!("ct {family}{}", key.word),
        Some(CtDirection::Original) => format!("ct original {family}{}", key.word),
        Some(CtDirection::Reply) => format!("ct reply {family}{}", key.word),
    }
}

impl Instruction for Ct {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let (number, direction) = (self.key?, ct_direction(self.direction)?);
        let key = find_key(KEYS, number)?;
        let Some(register) = self.sreg else {
            let term = l.context.term(&Selector::Ct(number.into(), direction));
            return l.load(self.dreg, term);
        };
        let source = l.term(Some(register))?.typed(key.data_type, key.host_order);
        let source = match source.kind {
            // nft 1.0.6 lists events like a list of flags.
            Kind::Value(_) => l.text(&source).replace(" | ", ","),
            _ => l.text(&source),
        };
        l.say(format!("{} set {source}", text(number, direction, "")))
    }
}
