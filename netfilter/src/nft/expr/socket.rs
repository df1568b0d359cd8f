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

keys! {
    nft_socket_keys SocketKey "socket " {
        host Transparent = NFT_SOCKET_TRANSPARENT "socket transparent" INTEGER 1;
        host Mark = NFT_SOCKET_MARK "socket mark" MARK 4;
        host Wildcard = NFT_SOCKET_WILDCARD "socket wildcard" INTEGER 1;
        host Cgroupv2 = NFT_SOCKET_CGROUPV2 "socket cgroupv2" CGROUPV2 8;
    }
}

/// `socket KEY`, with the level of a cgroup
pub(crate) fn text(key: SocketKey, level: Option<u32>) -> String {
    match key {
        SocketKey::Cgroupv2 => format!("{key} level {}", level.unwrap_or(0)),
        key => key.to_string(),
    }
}

impl Instruction for Socket {
    const NUMBERS: Numbers = constants::CONSTANTS;

    fn normalize(&mut self) {
        super::drop_if(&mut self.level, 0);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let selector = Selector::Socket(self.key?.into(), self.level);
        let term = l.context.term(&selector)?;
        l.load(self.dreg, term)
    }
}
