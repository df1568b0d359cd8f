//! Loads from or stores into the packet (`NFTA_PAYLOAD_*`). Since 3.13, store since 4.5.

use weir_netlink::attr::Be32;

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
        /// how a store updates the checksum
        csum_type: Be32 = NFTA_PAYLOAD_CSUM_TYPE 6,
        /// offset of the checksum
        csum_offset: Be32 = NFTA_PAYLOAD_CSUM_OFFSET 7,
        /// whether the transport checksum is updated too
        csum_flags: Be32 = NFTA_PAYLOAD_CSUM_FLAGS 8,
    }
}
