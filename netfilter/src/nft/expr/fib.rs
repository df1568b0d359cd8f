//! Looks up a route (`NFTA_FIB_*`). Since 4.10.

use super::prelude::*;
use crate::nft::model::FibResult;

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

/// `fib saddr . iif type`
pub(crate) fn text(flags: u32, result: FibResult) -> String {
    let names: Vec<&str> = [
        (raw::NFTA_FIB_F_SADDR, "saddr"),
        (raw::NFTA_FIB_F_DADDR, "daddr"),
        (raw::NFTA_FIB_F_MARK, "mark"),
        (raw::NFTA_FIB_F_IIF, "iif"),
        (raw::NFTA_FIB_F_OIF, "oif"),
    ]
    .into_iter()
    .filter_map(|(bit, name)| (flags & bit != 0).then_some(name))
    .collect();
    let result = match result {
        FibResult::Oif => "oif".to_owned(),
        FibResult::Oifname => "oifname".to_owned(),
        FibResult::Type => "type".to_owned(),
        FibResult::Other(n) => n.to_string(),
    };
    format!("fib {} {result}", names.join(" . "))
}

/// The type of the result.
pub(crate) fn data_type(flags: u32, result: FibResult) -> DataType {
    match result {
        _ if flags & raw::NFTA_FIB_F_PRESENT != 0 => DataType::BOOLEAN,
        FibResult::Oif => DataType::IFINDEX,
        FibResult::Oifname => DataType::IFNAME,
        _ => DataType::FIB_ADDR,
    }
}

/// Number of bytes of the result.
pub(crate) fn width(flags: u32, result: FibResult) -> u32 {
    match result {
        _ if flags & raw::NFTA_FIB_F_PRESENT != 0 => 1,
        FibResult::Oifname => 16,
        _ => 4,
    }
}

impl Instruction for Fib {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let (flags, result) = (self.flags?, self.result?.into());
        let term = l.context.term(&Selector::Fib { flags, result });
        l.load(self.dreg, term)
    }
}
