//! Looks up a register in a set or map (`NFTA_LOOKUP_*`). Since 3.13, inverted since 4.8.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_lookup_attributes`
    #[doc(alias = "nft_lookup")]
    pub struct Lookup {
        /// key register
        sreg: Be32 = NFTA_LOOKUP_SREG 2,
        /// destination register of a map's value
        dreg: Be32 = NFTA_LOOKUP_DREG 3,
        /// name of the set
        set: Str = NFTA_LOOKUP_SET 1,
        /// id of a set that is created in the same batch
        set_id: Be32 = NFTA_LOOKUP_SET_ID 4,
        /// `NFT_LOOKUP_F_INV`
        flags: Be32 = NFTA_LOOKUP_FLAGS 5,
    }
}

impl Instruction for Lookup {
    fn normalize(&mut self) {
        super::drop_if(&mut self.flags, 0);
        self.set_id = None;
    }

    fn set(&mut self) -> Option<SetName<'_>> {
        Some((&mut self.set, &mut self.set_id))
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let set = self.set.clone()?;
        let attrs = l.anonymous(self.set_id).map(|s| s.attrs.clone());
        let key_len = attrs.as_ref().and_then(|a| a.key_len);
        let key = l.key(self.sreg, key_len, None)?;
        let op = match self.flags.unwrap_or(0) & raw::NFT_LOOKUP_F_INV {
            0 => CmpOp::Eq,
            _ => CmpOp::Neq,
        };
        match self.dreg {
            None => l.relation(&key, op, &Right::Set(set, self.set_id)),
            Some(raw::NFT_REG_VERDICT) => {
                let text = l.key_text(&key, self.set_id);
                let elements = l.map_text(&set, self.set_id, &key);
                l.say_map(format!("{text} vmap {elements}"))
            }
            dreg => {
                let (data_type, len) = match attrs {
                    Some(a) => (DataType(a.data_type.unwrap_or(0)), a.data_len.unwrap_or(0)),
                    None => (DataType::INTEGER, 0),
                };
                let kind = Kind::Map(Box::new(key), set, self.set_id);
                l.load(
                    dreg,
                    Term {
                        kind,
                        data_type,
                        host_order: true,
                        len,
                    },
                )
            }
        }
    }
}
