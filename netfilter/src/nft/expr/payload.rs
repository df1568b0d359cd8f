//! Loads from or stores into the packet (`NFTA_PAYLOAD_*`). Since 3.13, store since 4.5.

use super::prelude::*;
use crate::nft::context::be;
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
        let target = l.context.term(&selector).filter(|t| t.len <= LONGEST)?;
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

/// A store of some bits: `nft` loads the bytes, changes the bits of one field and stores the bytes. The field, and its new
/// value or the operations that change it.
fn part(l: &Listing<'_>, target: &Term, source: &Term) -> Option<(Term, Term)> {
    let Kind::Selector(selector) = &target.kind else {
        return None;
    };
    let (mut of, mut operations) = (source, Vec::new());
    while let Kind::Binary(left, op, data) = &of.kind {
        operations.insert(0, (*op, data.to_be()?));
        of = left;
    }
    let result = |loaded: u64| {
        let mut operations = operations.iter();
        operations.try_fold(loaded, |n, (op, data)| match op {
            Binary::And => Some(n & data),
            Binary::Or => Some(n | data),
            Binary::Xor => Some(n ^ data),
            Binary::Lshift | Binary::Rshift => None,
        })
    };
    let (zeros, ones) = (result(0)?, result(u64::MAX)?);
    let found = l.context.around(selector, zeros | !ones);
    let (mask, right) = found.filter(|_| of == target)?;
    let bits = mask.to_be()?;
    let part = |n: u64| be((n & bits) >> right, bits.count_ones().div_ceil(8));
    let mut field = target.clone().binary(Binary::And, mask);
    if right > 0 {
        field = field.binary(Binary::Rshift, Data::ne32(right));
    }
    if (zeros ^ ones) & bits == 0 {
        return Some((field, Term::value(part(zeros)?)));
    }
    let changed = operations
        .iter()
        .try_fold(field.clone(), |t, (op, n)| Some(t.binary(*op, part(*n)?)))?;
    Some((field, changed))
}
