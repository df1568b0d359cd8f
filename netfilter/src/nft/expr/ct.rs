//! Loads from or stores into the conntrack entry (`NFTA_CT_*`). Since 3.13, store since 3.16, zone since 4.11.

use super::Instruction;
use crate::nft::listing::{Key, Kind, Listing, find_key};
use crate::nft::model::{CtDirection, DataType, Selector};
use crate::nft::raw;
use weir_netlink::attr::{Be32, U8};

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

/// What can be loaded, by `enum nft_ct_keys`.
pub(crate) const KEYS: &[Key] = &[
    Key::host(raw::NFT_CT_STATE, "state", DataType::CT_STATE, 4),
    Key::host(raw::NFT_CT_DIRECTION, "direction", DataType::CT_DIR, 1),
    Key::host(raw::NFT_CT_STATUS, "status", DataType::CT_STATUS, 4),
    Key::host(raw::NFT_CT_MARK, "mark", DataType::MARK, 4),
    Key::host(raw::NFT_CT_SECMARK, "secmark", DataType::INTEGER, 4),
    Key::host(raw::NFT_CT_EXPIRATION, "expiration", DataType::TIME, 4),
    Key::net(raw::NFT_CT_HELPER, "helper", DataType::STRING, 16),
    Key::host(raw::NFT_CT_L3PROTOCOL, "l3proto", DataType::NF_PROTO, 1),
    // From before the family was part of the key.
    Key::net(raw::NFT_CT_SRC, "saddr", DataType::IPV4_ADDR, 0),
    Key::net(raw::NFT_CT_DST, "daddr", DataType::IPV4_ADDR, 0),
    Key::host(raw::NFT_CT_PROTOCOL, "protocol", DataType::INET_PROTO, 1),
    Key::net(
        raw::NFT_CT_PROTO_SRC,
        "proto-src",
        DataType::INET_SERVICE,
        2,
    ),
    Key::net(
        raw::NFT_CT_PROTO_DST,
        "proto-dst",
        DataType::INET_SERVICE,
        2,
    ),
    Key::host(raw::NFT_CT_LABELS, "label", DataType::CT_LABEL, 16),
    Key::host(raw::NFT_CT_PKTS, "packets", DataType::INTEGER, 8),
    Key::host(raw::NFT_CT_BYTES, "bytes", DataType::INTEGER, 8),
    Key::host(raw::NFT_CT_AVGPKT, "avgpkt", DataType::INTEGER, 8),
    Key::host(raw::NFT_CT_ZONE, "zone", DataType::INTEGER, 2),
    Key::host(raw::NFT_CT_EVENTMASK, "event", DataType::CT_EVENT, 4),
    Key::net(raw::NFT_CT_SRC_IP, "ip saddr", DataType::IPV4_ADDR, 4),
    Key::net(raw::NFT_CT_DST_IP, "ip daddr", DataType::IPV4_ADDR, 4),
    Key::net(raw::NFT_CT_SRC_IP6, "ip6 saddr", DataType::IPV6_ADDR, 16),
    Key::net(raw::NFT_CT_DST_IP6, "ip6 daddr", DataType::IPV6_ADDR, 16),
    Key::net(raw::NFT_CT_ID, "id", DataType::INTEGER, 4),
];

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

impl Ct {
    fn direction(&self) -> Option<Option<CtDirection>> {
        match self.direction {
            None => Some(None),
            Some(raw::IP_CT_DIR_ORIGINAL) => Some(Some(CtDirection::Original)),
            Some(raw::IP_CT_DIR_REPLY) => Some(Some(CtDirection::Reply)),
            Some(_) => None,
        }
    }
}

impl Instruction for Ct {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let (number, direction) = (self.key?, self.direction()?);
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
