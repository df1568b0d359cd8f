//! Destination NAT to this machine (`NFTA_REDIR_*`). Since 3.19, in `inet` tables since 5.2.

use super::nat::{flags_with, own_flags};
use super::prelude::*;
use crate::nft::model::Redirect;

weir_netlink::attributes! {
    /// `enum nft_redir_attributes`
    #[doc(alias = "nft_redir")]
    pub struct Redir {
        /// register of the first port
        reg_proto_min: Be32 = NFTA_REDIR_REG_PROTO_MIN 1,
        /// register of the last port
        reg_proto_max: Be32 = NFTA_REDIR_REG_PROTO_MAX 2,
        /// `NF_NAT_RANGE_*`
        flags: Be32 = NFTA_REDIR_FLAGS 3,
    }
}

impl Redirect {
    pub(crate) fn linearize(&self, r: &mut Registers) -> Expr {
        let (reg_proto_min, reg_proto_max) = r.put_ports(self.ports.as_ref());
        expr!(Redir {
            reg_proto_min,
            reg_proto_max,
            flags: flags_with(self.flags, reg_proto_min),
        })
    }

    pub(crate) fn delinearize(x: &Redir, r: &Registers) -> Option<Self> {
        Some(Self {
            ports: r.ports(x.reg_proto_min, x.reg_proto_max)?,
            flags: own_flags(x.flags),
        })
    }
}

impl Instruction for Redir {
    fn normalize(&mut self) {
        // For a single port a dump repeats the first register as the last.
        super::same(self.reg_proto_min, &mut self.reg_proto_max);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let ports = super::nat::ports(l, self.reg_proto_min, self.reg_proto_max)?;
        let to = ports.map_or_else(String::new, |p| format!(" to :{p}"));
        l.say(format!("redirect{to}{}", super::nat::flags(self.flags)))
    }
}
