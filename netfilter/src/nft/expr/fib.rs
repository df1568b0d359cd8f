//! Looks up a route (`NFTA_FIB_*`). Since 4.10.

use super::prelude::*;
use crate::nft::display::numbers;

weir_netlink::attributes! {
    /// `enum nft_fib_attributes`
    #[doc(alias = "nft_fib")]
    pub struct Fib {
        /// `enum nft_fib_flags`: the inputs of the lookup
        flags: Be32 = NFTA_FIB_FLAGS 3,
        /// `enum nft_fib_result`
        result: Be32 = NFTA_FIB_RESULT 2,
        /// destination register
        dreg: Be32 = NFTA_FIB_DREG 1,
    }
}

keys! {
    nft_fib_result FibResult "" {
        /// The index of the interface
        host Oif = NFT_FIB_RESULT_OIF (1) "oif" IFINDEX 4;
        /// The name of the interface
        net Oifname = NFT_FIB_RESULT_OIFNAME "oifname" IFNAME 16;
        /// Local, broadcast and so on
        host Type = NFT_FIB_RESULT_ADDRTYPE "type" FIB_ADDR 4;
    }
}

/// `fib saddr . iif type`
pub(crate) fn text(flags: u32, result: FibResult) -> String {
    let names = [
        (raw::NFTA_FIB_F_SADDR, "saddr"),
        (raw::NFTA_FIB_F_DADDR, "daddr"),
        (raw::NFTA_FIB_F_MARK, "mark"),
        (raw::NFTA_FIB_F_IIF, "iif"),
        (raw::NFTA_FIB_F_OIF, "oif"),
    ];
    let inputs = numbers::of_bits(&names, flags).join(" . ");
    format!("fib {inputs} {result}")
}

/// The result, or whether there is one.
pub(crate) fn key(flags: u32, result: FibResult) -> Option<Key> {
    let key = result.key()?;
    Some(match flags & raw::NFTA_FIB_F_PRESENT {
        0 => key,
        _ => Key {
            data_type: DataType::BOOLEAN,
            len: 1,
            ..key
        },
    })
}

impl Instruction for Fib {
    const NUMBERS: Numbers = constants::CONSTANTS;

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let (flags, result) = (self.flags?, self.result?.into());
        let term = l.context.term(&Selector::Fib { flags, result })?;
        l.load(self.dreg, term)
    }
}
