//! Guesses the operating system that sent the packet (`NFTA_OSF_*`). Since 4.19, `ttl` and `version` since 5.2.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_osf_attributes`
    #[doc(alias = "nft_osf")]
    pub struct Osf {
        /// destination register
        dreg: Be32 = NFTA_OSF_DREG 1,
        /// how the TTL is compared: 0 exactly, 1 `loose`, 2 `skip`
        ttl: U8 = NFTA_OSF_TTL 2,
        /// `NFT_OSF_F_VERSION`
        flags: Be32 = NFTA_OSF_FLAGS 3,
    }
}

impl Instruction for Osf {
    fn normalize(&mut self) {
        // The kernel lists 0, and refuses it in a request.
        super::drop_if(&mut self.flags, 0);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let ttl = match self.ttl.unwrap_or(0) {
            0 => "",
            1 => "ttl loose ",
            2 => "ttl skip ",
            _ => return None,
        };
        let what = match self.flags.unwrap_or(0) & raw::NFT_OSF_F_VERSION {
            0 => "name",
            _ => "version",
        };
        let key = Key::host(DataType::STRING, raw::NFT_OSF_MAXGENRELEN);
        l.load(self.dreg, Term::named(format!("osf {ttl}{what}"), key))
    }
}
