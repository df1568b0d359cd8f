//! Computes a hash of a register, or of the addresses and ports of the packet (`NFTA_HASH_*`). Since 4.9, `symhash`
//! since 4.12.

use super::numgen::offset;
use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_hash_attributes`
    #[doc(alias = "nft_jhash")]
    pub struct Hash {
        /// source register of `jhash`
        sreg: Be32 = NFTA_HASH_SREG 1,
        /// destination register
        dreg: Be32 = NFTA_HASH_DREG 2,
        /// length of the source in bytes
        len: Be32 = NFTA_HASH_LEN 3,
        /// one more than the highest result
        modulus: Be32 = NFTA_HASH_MODULUS 4,
        /// initial value
        seed: Be32 = NFTA_HASH_SEED 5,
        /// added to the result
        offset: Be32 = NFTA_HASH_OFFSET 6,
        /// `enum nft_hash_types`
        kind: Be32 = NFTA_HASH_TYPE 7,
    }
}

impl Instruction for Hash {
    fn normalize(&mut self) {
        super::drop_if(&mut self.offset, 0);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let rest = format!("mod {}", self.modulus?);
        let offset = offset(self.offset);
        let term = match self.kind.unwrap_or(raw::NFT_HASH_JENKINS) {
            raw::NFT_HASH_JENKINS => {
                let key = l.key(self.sreg, self.len, None)?;
                let seed = self
                    .seed
                    .map_or_else(String::new, |n| format!(" seed 0x{n:x}"));
                let kind = Kind::Hash(Box::new(key), format!("{rest}{seed}{offset}"));
                Term {
                    kind,
                    data_type: DataType::INTEGER,
                    host_order: true,
                    len: 4,
                }
            }
            raw::NFT_HASH_SYM => Term::named(
                format!("symhash {rest}{offset}"),
                Key::host(DataType::INTEGER, 4),
            ),
            _ => return None,
        };
        l.load(self.dreg, term)
    }
}
