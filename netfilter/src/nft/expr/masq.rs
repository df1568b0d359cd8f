//! Source NAT to the address of the outgoing interface (`NFTA_MASQ_*`). Since 3.18.

use super::nat::{flags_with, own_flags};
use super::prelude::*;
use crate::nft::model::Masquerade;

weir_netlink::attributes! {
    /// `enum nft_masq_attributes`
    #[doc(alias = "nft_masq")]
    pub struct Masq {
        /// `NF_NAT_RANGE_*`
        flags: Be32 = NFTA_MASQ_FLAGS 1,
        /// register of the first port
        reg_proto_min: Be32 = NFTA_MASQ_REG_PROTO_MIN 2,
        /// register of the last port
        reg_proto_max: Be32 = NFTA_MASQ_REG_PROTO_MAX 3,
    }
}

impl Masquerade {
    pub(crate) fn linearize(&self, r: &mut Registers) -> Expr {
        let (reg_proto_min, reg_proto_max) = r.put_ports(self.ports.as_ref());
        expr!(Masq {
            reg_proto_min,
            reg_proto_max,
            flags: flags_with(self.flags, reg_proto_min),
        })
    }

    pub(crate) fn delinearize(x: &Masq, r: &Registers) -> Option<Self> {
        Some(Self {
            ports: r.ports(x.reg_proto_min, x.reg_proto_max)?,
            flags: own_flags(x.flags),
        })
    }
}

impl Instruction for Masq {
    fn normalize(&mut self) {
        super::same(self.reg_proto_min, &mut self.reg_proto_max);
        super::drop_if(&mut self.flags, 0);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let ports = super::nat::ports(l, self.reg_proto_min, self.reg_proto_max)?;
        let to = ports.map_or_else(String::new, |p| format!(" to :{p}"));
        l.say(format!("masquerade{to}{}", super::nat::flags(self.flags)))
    }
}
