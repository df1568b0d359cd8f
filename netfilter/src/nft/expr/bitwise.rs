//! `(register & mask) ^ xor` (`NFTA_BITWISE_*`). Since 3.13.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_bitwise_attributes`
    #[doc(alias = "nft_bitwise")]
    pub struct Bitwise {
        /// source register
        sreg: Be32 = NFTA_BITWISE_SREG 1,
        /// destination register
        dreg: Be32 = NFTA_BITWISE_DREG 2,
        /// `enum nft_bitwise_ops`; since 5.6: older kernels ignore it and support only mask and xor
        op: Be32 = NFTA_BITWISE_OP 6,
        /// length in bytes, 1 to 64
        len: Be32 = NFTA_BITWISE_LEN 3,
        /// bits that are kept
        mask: Nest<DataAttrs> = NFTA_BITWISE_MASK 4,
        /// bits that are inverted
        xor: Nest<DataAttrs> = NFTA_BITWISE_XOR 5,
        /// shift width; since 5.6
        data: Nest<DataAttrs> = NFTA_BITWISE_DATA 7,
    }
}

impl Instruction for Bitwise {
    fn normalize(&mut self) {
        // Since 5.6 the kernel lists the operation even if it was not given.
        super::drop_if(&mut self.op, raw::NFT_BITWISE_BOOL);
    }

    /// Lists `(value & mask) ^ xor`, split into bits that are kept, inverted and set, or a shift.
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let bytes = |d: &Option<DataAttrs>| Some(Data::from(d.as_ref()?.value.as_deref()?));
        let left = l.term(self.sreg)?;
        let term = match self.op.unwrap_or(raw::NFT_BITWISE_BOOL) {
            raw::NFT_BITWISE_BOOL => masked(left, &bytes(&self.mask)?, &bytes(&self.xor)?),
            raw::NFT_BITWISE_LSHIFT => left.binary(Binary::Lshift, bytes(&self.data)?),
            raw::NFT_BITWISE_RSHIFT => left.binary(Binary::Rshift, bytes(&self.data)?),
            _ => return None,
        };
        l.load(self.dreg, term)
    }
}

fn masked(left: Term, mask: &Data, xor: &Data) -> Term {
    let pairs = || mask.0.iter().zip(&xor.0);
    let or: Vec<u8> = pairs().map(|(m, x)| x & !m).collect();
    let flip: Vec<u8> = pairs().map(|(m, x)| x & m).collect();
    let keep: Vec<u8> = mask.0.iter().zip(&or).map(|(m, o)| m | o).collect();
    let mut term = left;
    if keep.iter().any(|b| *b != 0xff) {
        term = term.binary(Binary::And, keep.into());
    }
    if flip.iter().any(|b| *b != 0) {
        term = term.binary(Binary::Xor, flip.into());
    }
    if or.iter().any(|b| *b != 0) {
        term = term.binary(Binary::Or, or.into());
    }
    term
}
