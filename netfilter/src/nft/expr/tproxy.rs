//! Delivers the packet to a local socket (`NFTA_TPROXY_*`). Since 4.19.

use super::prelude::*;
use crate::nft::model;

weir_netlink::attributes! {
    /// `enum nft_tproxy_attributes`
    pub struct Tproxy {
        /// `NFPROTO_IPV4`, `NFPROTO_IPV6` or `NFPROTO_UNSPEC`
        family: Be32 = NFTA_TPROXY_FAMILY 1,
        /// register of the address
        reg_addr: Be32 = NFTA_TPROXY_REG_ADDR 2,
        /// register of the port
        reg_port: Be32 = NFTA_TPROXY_REG_PORT 3,
    }
}

impl model::Tproxy {
    pub(crate) fn linearize(&self, r: &mut Registers) -> Expr {
        let reg_addr = self.addr.map(|a| r.put(Data::addr(a)));
        let reg_port = self.port.map(|p| r.put(Data::be16(p)));
        let family = match self.family {
            TableFamily::Inet => TableFamily::Unspec,
            family => family,
        };
        expr!(Tproxy {
            family: u32::from(family.number()),
            reg_addr,
            reg_port,
        })
    }

    pub(crate) fn delinearize(x: &Tproxy, r: &Registers) -> Option<Self> {
        Some(Self {
            family: u8::try_from(x.family?).ok()?.into(),
            addr: match x.reg_addr {
                None => None,
                register => Some(r.addr(register)?),
            },
            port: r.ports(x.reg_port, None)?.map(|p| *p.start()),
        })
    }
}

impl Instruction for Tproxy {
    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let family = TableFamily::from(u8::try_from(self.family?).ok()?);
        let data_type = match family {
            TableFamily::Ip6 => DataType::IPV6_ADDR,
            _ => DataType::IPV4_ADDR,
        };
        let addr = match self.reg_addr {
            Some(_) => super::nat::address(l, self.reg_addr, None, data_type, true)?,
            None => String::new(),
        };
        let port = super::nat::ports(l, self.reg_port, None)?;
        let port = port.map_or_else(String::new, |p| format!(":{p}"));
        let word = super::nat::family_word(family, l.family);
        l.say(format!("tproxy{word} to {addr}{port}"))
    }
}
