//! Linearizes statements that redirect or translate a packet: their values are loaded into registers 1, 2 and so on.

use super::{Linear, immediate};
use crate::nft::expr::expr;
use crate::nft::model::{Data, Masquerade, Nat, NatKind, Redirect, TableFamily, Tproxy};
use crate::nft::raw;
use std::ops::RangeInclusive;

/// Loads values into the next free registers.
struct Registers<'a> {
    out: &'a mut Linear,
    next: u32,
}

impl<'a> Registers<'a> {
    fn new(out: &'a mut Linear) -> Self {
        Self {
            out,
            next: raw::NFT_REG_1,
        }
    }

    fn put(&mut self, data: &Data) -> u32 {
        let reg = self.next;
        self.out.exprs.push(immediate(reg, &data.0));
        self.next += 1;
        reg
    }

    /// Loads the first and, if it differs, the last value.
    fn put_range(&mut self, first: &Data, last: &Data) -> (Option<u32>, Option<u32>) {
        let min = self.put(first);
        (Some(min), (first != last).then(|| self.put(last)))
    }

    fn ports(&mut self, ports: Option<&RangeInclusive<u16>>) -> (Option<u32>, Option<u32>) {
        match ports {
            Some(p) => self.put_range(&Data::be16(*p.start()), &Data::be16(*p.end())),
            None => (None, None),
        }
    }
}

fn flags(flags: u32, ports: bool) -> Option<u32> {
    let flags = if ports {
        flags | raw::NF_NAT_RANGE_PROTO_SPECIFIED
    } else {
        flags
    };
    (flags != 0).then_some(flags)
}

pub(super) fn redirect(r: &Redirect, out: &mut Linear) {
    let (reg_proto_min, reg_proto_max) = Registers::new(out).ports(r.ports.as_ref());
    out.exprs.push(expr!(Redir {
        reg_proto_min,
        reg_proto_max,
        flags: flags(r.flags, r.ports.is_some()),
    }));
}

pub(super) fn masquerade(m: &Masquerade, out: &mut Linear) {
    let (reg_proto_min, reg_proto_max) = Registers::new(out).ports(m.ports.as_ref());
    out.exprs.push(expr!(Masq {
        flags: flags(m.flags, m.ports.is_some()),
        reg_proto_min,
        reg_proto_max,
    }));
}

pub(super) fn nat(n: &Nat, out: &mut Linear) {
    let mut registers = Registers::new(out);
    let (reg_addr_min, reg_addr_max) = match n.addrs {
        Some((first, last)) => registers.put_range(&Data::addr(first), &Data::addr(last)),
        None => (None, None),
    };
    let (reg_proto_min, reg_proto_max) = registers.ports(n.ports.as_ref());
    let kind = match n.kind {
        NatKind::Snat => raw::NFT_NAT_SNAT,
        NatKind::Dnat => raw::NFT_NAT_DNAT,
    };
    out.exprs.push(expr!(Nat {
        kind,
        family: u32::from(n.family.number()),
        reg_addr_min,
        reg_addr_max,
        reg_proto_min,
        reg_proto_max,
        flags: flags(n.flags, n.ports.is_some()),
    }));
}

pub(super) fn tproxy(t: &Tproxy, out: &mut Linear) {
    let mut registers = Registers::new(out);
    let reg_addr = t.addr.map(|a| registers.put(&Data::addr(a)));
    let reg_port = t.port.map(|p| registers.put(&Data::be16(p)));
    let family = match t.family {
        TableFamily::Inet => TableFamily::Unspec,
        family => family,
    };
    out.exprs.push(expr!(Tproxy {
        family: u32::from(family.number()),
        reg_addr,
        reg_port,
    }));
}
