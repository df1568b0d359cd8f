//! Loads from or stores into the conntrack entry (`NFTA_CT_*`). Since 3.13, store since 3.16, zone since 4.11.

use super::prelude::*;

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

keys! {
    nft_ct_keys CtKey "" {
        /// bits, see `NF_CT_STATE_BIT`
        host State = NFT_CT_STATE "state" CT_STATE 4;
        host Direction = NFT_CT_DIRECTION "direction" CT_DIR 1;
        host Status = NFT_CT_STATUS "status" CT_STATUS 4;
        host Mark = NFT_CT_MARK "mark" MARK 4;
        host Secmark = NFT_CT_SECMARK "secmark" INTEGER 4;
        /// remaining lifetime in milliseconds
        host Expiration = NFT_CT_EXPIRATION "expiration" TIME 4;
        net Helper = NFT_CT_HELPER "helper" STRING 16;
        host L3protocol = NFT_CT_L3PROTOCOL "l3proto" NF_PROTO 1;
        /// of rules from before the key contained the family
        net Src = NFT_CT_SRC "saddr" IPV4_ADDR 0;
        /// of rules from before the key contained the family
        net Dst = NFT_CT_DST "daddr" IPV4_ADDR 0;
        host Protocol = NFT_CT_PROTOCOL "protocol" INET_PROTO 1;
        net ProtoSrc = NFT_CT_PROTO_SRC "proto-src" INET_SERVICE 2;
        net ProtoDst = NFT_CT_PROTO_DST "proto-dst" INET_SERVICE 2;
        host Label = NFT_CT_LABELS "label" CT_LABEL 16;
        host Packets = NFT_CT_PKTS "packets" INTEGER 8;
        host Bytes = NFT_CT_BYTES "bytes" INTEGER 8;
        host Avgpkt = NFT_CT_AVGPKT "avgpkt" INTEGER 8;
        host Zone = NFT_CT_ZONE "zone" INTEGER 2;
        host Event = NFT_CT_EVENTMASK "event" CT_EVENT 4;
        net SrcIp = NFT_CT_SRC_IP "ip saddr" IPV4_ADDR 4;
        net DstIp = NFT_CT_DST_IP "ip daddr" IPV4_ADDR 4;
        net SrcIp6 = NFT_CT_SRC_IP6 "ip6 saddr" IPV6_ADDR 16;
        net DstIp6 = NFT_CT_DST_IP6 "ip6 daddr" IPV6_ADDR 16;
        net Id = NFT_CT_ID "id" INTEGER 4;
    }
}

open_enum! {
    /// The direction of a conntrack entry (`enum ip_conntrack_dir`).
    CtDirection: u8, "" {
        /// Of the first packet
        Original = IP_CT_DIR_ORIGINAL "original",
        /// Of the answers
        Reply = IP_CT_DIR_REPLY "reply",
    }
}

/// `ct [original|reply] KEY`, with the family of an address where the key does not have it
pub(crate) fn text(key: CtKey, direction: Option<CtDirection>, nfproto: Option<u8>) -> String {
    let direction = direction.map_or_else(String::new, |d| format!("{d} "));
    let family = match (key, nfproto) {
        (CtKey::Src | CtKey::Dst, Some(raw::NFPROTO_IPV4)) => "ip ",
        (CtKey::Src | CtKey::Dst, Some(raw::NFPROTO_IPV6)) => "ip6 ",
        _ => "",
    };
    format!("ct {direction}{family}{key}")
}

impl Instruction for Ct {
    const NUMBERS: Numbers = constants::CONSTANTS;

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let number = CtKey::from(self.key?);
        let direction = self.direction.map(CtDirection::from);
        let Some(register) = self.sreg else {
            let term = l.context.term(&Selector::Ct(number, direction))?;
            return l.load(self.dreg, term);
        };
        let source = l.term(Some(register))?.typed_by(number.key()?);
        let source = match source.kind {
            // nft 1.0.6 lists events like a list of flags.
            Kind::Value(_) => l.text(&source).replace(" | ", ","),
            _ => l.text(&source),
        };
        l.say(format!("{} set {source}", text(number, direction, None)))
    }
}
