//! Statements whose values come from several registers.

use super::value;
use crate::nft::expr::Expr;
use crate::nft::model::{Data, Masquerade, Nat, NatKind, Redirect, Statement, TableFamily, Tproxy};
use crate::nft::raw;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The values that the immediate expressions before a statement loaded.
struct Registers(Vec<(u32, Data)>);

impl Registers {
    fn get(&self, reg: Option<u32>) -> Option<&Data> {
        self.0.iter().find(|(r, _)| Some(*r) == reg).map(|(_, d)| d)
    }

    /// The ports in these registers: `Some(None)` without a register, `None` if a register holds no port.
    #[allow(clippy::option_option)]
    fn ports(&self, min: Option<u32>, max: Option<u32>) -> Option<Option<RangeInclusive<u16>>> {
        if min.is_none() {
            return Some(None);
        }
        let port = |reg| {
            Some(u16::from_be_bytes(
                self.get(reg)?.0.as_slice().try_into().ok()?,
            ))
        };
        Some(Some(port(min)?..=port(max.or(min))?))
    }

    fn addr(&self, reg: Option<u32>) -> Option<IpAddr> {
        let data = self.get(reg)?.0.as_slice();
        match <[u8; 4]>::try_from(data) {
            Ok(v4) => Some(v4.into()),
            Err(_) => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
        }
    }
}

pub(super) fn statement(e: &[Expr]) -> Option<(Statement, usize)> {
    let mut registers = Registers(Vec::new());
    for (i, x) in e.iter().enumerate() {
        if let Expr::Immediate(imm) = x {
            registers.0.push((imm.dreg?, value(imm.data.as_ref())?));
            continue;
        }
        return Some((read(x, &registers)?, i + 1));
    }
    None
}

fn family(n: Option<u32>) -> Option<TableFamily> {
    Some(TableFamily::from(u8::try_from(n?).ok()?))
}

fn read(e: &Expr, r: &Registers) -> Option<Statement> {
    let flags = |flags: Option<u32>| flags.unwrap_or(0) & !raw::NF_NAT_RANGE_PROTO_SPECIFIED;
    Some(match e {
        Expr::Redir(x) => Statement::Redirect(Redirect {
            ports: r.ports(x.reg_proto_min, x.reg_proto_max)?,
            flags: flags(x.flags),
        }),
        Expr::Masq(x) => Statement::Masquerade(Masquerade {
            ports: r.ports(x.reg_proto_min, x.reg_proto_max)?,
            flags: flags(x.flags),
        }),
        Expr::Nat(x) => Statement::Nat(Nat {
            kind: match x.kind? {
                raw::NFT_NAT_SNAT => NatKind::Snat,
                raw::NFT_NAT_DNAT => NatKind::Dnat,
                _ => return None,
            },
            family: family(x.family)?,
            addrs: match x.reg_addr_min {
                None => None,
                min => Some((r.addr(min)?, r.addr(x.reg_addr_max.or(min))?)),
            },
            ports: r.ports(x.reg_proto_min, x.reg_proto_max)?,
            flags: flags(x.flags),
        }),
        Expr::Tproxy(x) => Statement::Tproxy(Tproxy {
            family: family(x.family)?,
            addr: match x.reg_addr {
                None => None,
                reg => Some(r.addr(reg)?),
            },
            port: r.ports(x.reg_port, None)?.map(|p| *p.start()),
        }),
        _ => return None,
    })
}
