//! Loads from or stores into the packet (`NFTA_PAYLOAD_*`). Since 3.13, store since 4.5.

use super::prelude::*;
use crate::nft::listing::LONGEST;

weir_netlink::attributes! {
    /// `enum nft_payload_attributes`
    #[doc(alias = "nft_payload")]
    pub struct Payload {
        /// destination register of a load
        dreg: Be32 = NFTA_PAYLOAD_DREG 1,
        /// source register of a store
        sreg: Be32 = NFTA_PAYLOAD_SREG 5,
        /// `enum nft_payload_bases`
        base: Be32 = NFTA_PAYLOAD_BASE 2,
        /// first byte
        offset: Be32 = NFTA_PAYLOAD_OFFSET 3,
        /// number of bytes
        len: Be32 = NFTA_PAYLOAD_LEN 4,
        /// `enum nft_payload_csum_types`: how a store updates the checksum
        csum_type: Be32 = NFTA_PAYLOAD_CSUM_TYPE 6,
        /// offset of the checksum from the base in bytes
        csum_offset: Be32 = NFTA_PAYLOAD_CSUM_OFFSET 7,
        /// `NFT_PAYLOAD_L4CSUM_PSEUDOHDR`: a store updates the transport checksum, too
        csum_flags: Be32 = NFTA_PAYLOAD_CSUM_FLAGS 8,
    }
}

impl Instruction for Payload {
    fn normalize(&mut self) {
        super::drop_if(&mut self.csum_flags, 0);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let selector = Selector::Payload {
            base: self.base?.into(),
            offset: self.offset?,
            len: self.len?,
        };
        let target = Some(l.context.term(&selector)).filter(|t| t.len <= LONGEST)?;
        let Some(register) = self.sreg else {
            return l.load(self.dreg, target);
        };
        let source = l.term(Some(register))?;
        let (target, source) = part(l, &target, &source).unwrap_or((target, source));
        let name = l.name(&target);
        let fields = l.fields(&target);
        let source = match (&source.kind, fields.as_slice()) {
            (Kind::Value(d), _) => l.typed_value(d, &target),
            (_, [f]) => l.text(&source.clone().typed(f.data_type, f.host_order)),
            _ => return None,
        };
        l.say(format!("{name} set {source}"))
    }
}

/// A store of some bits of a field: `nft` loads the bytes, replaces the bits and stores the bytes.
fn part(l: &Listing<'_>, target: &Term, source: &Term) -> Option<(Term, Term)> {
    let all = |byte: u8| Data::from(vec![byte; usize::try_from(target.len).unwrap_or(0)]);
    let (kept, set) = match &source.kind {
        Kind::Binary(of, Binary::Or, set) => match &of.kind {
            Kind::Binary(of, Binary::And, kept) if **of == *target => (kept.clone(), set.clone()),
            _ if **of == *target => (all(0xff), set.clone()),
            _ => return None,
        },
        Kind::Binary(of, Binary::And, kept) if **of == *target => (kept.clone(), all(0)),
        _ => return None,
    };
    // The replaced bits are those that the AND clears and those that the OR sets, which the AND may keep.
    let pairs = kept.0.iter().zip(&set.0);
    let mask = Data(pairs.map(|(kept, set)| !kept | set).collect());
    l.field_of(target, &mask)?;
    Some((target.clone().binary(Binary::And, mask), Term::value(set)))
}
