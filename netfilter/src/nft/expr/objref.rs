//! Refers to a stateful object, by its name or by a map (`NFTA_OBJREF_*`). Since 4.10.

use super::prelude::*;
use crate::nft::model::ObjectKind;

weir_netlink::attributes! {
    /// `enum nft_objref_attributes`
    #[doc(alias = "nft_objref")]
    pub struct Objref {
        /// `NFT_OBJECT_*`
        kind: Be32 = NFTA_OBJREF_IMM_TYPE 1,
        /// name of the object
        name: Str = NFTA_OBJREF_IMM_NAME 2,
        /// key register of a map
        sreg: Be32 = NFTA_OBJREF_SET_SREG 3,
        /// name of the map
        set: Str = NFTA_OBJREF_SET_NAME 4,
        /// id of a map that is created in the same batch
        set_id: Be32 = NFTA_OBJREF_SET_ID 5,
    }
}

impl Instruction for Objref {
    fn normalize(&mut self) {
        self.set_id = None;
    }

    fn set(&mut self) -> Option<SetName<'_>> {
        self.set
            .is_some()
            .then_some((&mut self.set, &mut self.set_id))
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let (kind, what) = match &self.name {
            Some(name) => (self.kind?, format!("\"{name}\"")),
            None => {
                let attrs = l.anonymous(self.set_id).map(|s| s.attrs.clone());
                let key = l.key(self.sreg, attrs.as_ref().and_then(|a| a.key_len), None)?;
                let text = l.text(&key);
                let map = l.map_text(self.set.as_deref()?, self.set_id, &key);
                // For a named map, the kind is that of the map.
                let kind = attrs
                    .and_then(|a| a.obj_type)
                    .or(self.kind)
                    .or_else(|| l.named(self.set.as_deref()?)?.object())
                    .unwrap_or(raw::NFT_OBJECT_COUNTER);
                (kind, format!("{text} map {map}"))
            }
        };
        let word = match kind {
            raw::NFT_OBJECT_CT_HELPER => "ct helper set".to_owned(),
            raw::NFT_OBJECT_CT_TIMEOUT => "ct timeout set".to_owned(),
            raw::NFT_OBJECT_CT_EXPECT => "ct expectation set".to_owned(),
            raw::NFT_OBJECT_SECMARK => "meta secmark set".to_owned(),
            kind => format!("{} name", ObjectKind::Stateful(kind).word()),
        };
        l.say(format!("{word} {what}"))
    }
}
