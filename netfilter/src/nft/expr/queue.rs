//! Passes the packet to a program in user space (`NFTA_QUEUE_*`). Since 3.14, a register since 4.9.

use super::prelude::*;
use crate::nft::display::numbers;

weir_netlink::attributes! {
    /// `enum nft_queue_attributes`
    #[doc(alias = "nft_queue")]
    pub struct Queue {
        /// first queue
        num: Be16 = NFTA_QUEUE_NUM 1,
        /// number of queues
        total: Be16 = NFTA_QUEUE_TOTAL 2,
        /// `NFT_QUEUE_FLAG_*`
        flags: Be16 = NFTA_QUEUE_FLAGS 3,
        /// register with the number of the queue
        sreg_qnum: Be32 = NFTA_QUEUE_SREG_QNUM 4,
    }
}

impl Instruction for Queue {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let to = match (self.sreg_qnum, self.num, self.total.unwrap_or(1)) {
            (Some(register), ..) => {
                let term = l.term(Some(register))?.typed(DataType::INTEGER, true);
                l.text(&term)
            }
            (None, Some(num), 0 | 1) => num.to_string(),
            (None, Some(num), total) => format!("{num}-{}", num.checked_add(total - 1)?),
            (None, None, _) => return None,
        };
        let names = [
            (raw::NFT_QUEUE_FLAG_BYPASS.into(), "bypass"),
            (raw::NFT_QUEUE_FLAG_CPU_FANOUT.into(), "fanout"),
        ];
        let flags = numbers::listed(" flags ", &names, self.flags.unwrap_or(0).into());
        l.say(format!("queue{flags} to {to}"))
    }
}
