//! Loads from the local socket of the packet (`NFTA_SOCKET_*`). Since 4.18, `mark` since 4.19, `wildcard` since 5.10, `cgroupv2`
//! since 5.13.

use super::prelude::*;

weir_netlink::attributes! {
    /// `enum nft_socket_attributes`
    #[doc(alias = "nft_socket")]
    pub struct Socket {
        /// `enum nft_socket_keys`
        key: Be32 = NFTA_SOCKET_KEY 1,
        /// destination register
        dreg: Be32 = NFTA_SOCKET_DREG 2,
        /// depth of the cgroup; since 5.13
        level: Be32 = NFTA_SOCKET_LEVEL 3,
    }
}

/// The values that can be loaded, by `enum nft_socket_keys`.
pub(crate) const KEYS: &[Key] = keys! {
    host NFT_SOCKET_TRANSPARENT "transparent" INTEGER 1;
    host NFT_SOCKET_MARK "mark" MARK 4;
    host NFT_SOCKET_WILDCARD "wildcard" INTEGER 1;
    host NFT_SOCKET_CGROUPV2 "cgroupv2" CGROUPV2 8;
};

impl Instruction for Socket {
    fn normalize(&mut self) {
        super::drop_if(&mut self.level, 0);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let term = l
            .context
            .term(&Selector::Socket(self.key?.into(), self.level));
        l.load(self.dreg, term)
    }
}
