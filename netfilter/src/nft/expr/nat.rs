//! Source or destination NAT (`NFTA_NAT_*`). Since 3.13, in `inet` tables since 5.2.

use super::prelude::*;
use crate::nft::display::numbers;
use crate::nft::listing::addresses;
use crate::nft::model::{self, NatKind};

weir_netlink::attributes! {
    /// `enum nft_nat_attributes`
    pub struct Nat {
        /// `enum nft_nat_types`
        kind: Be32 = NFTA_NAT_TYPE 1,
        /// `NFPROTO_IPV4` or `NFPROTO_IPV6`
        family: Be32 = NFTA_NAT_FAMILY 2,
        /// register of the first address
        reg_addr_min: Be32 = NFTA_NAT_REG_ADDR_MIN 3,
        /// register of the last address
        reg_addr_max: Be32 = NFTA_NAT_REG_ADDR_MAX 4,
        /// register of the first port
        reg_proto_min: Be32 = NFTA_NAT_REG_PROTO_MIN 5,
        /// register of the last port
        reg_proto_max: Be32 = NFTA_NAT_REG_PROTO_MAX 6,
        /// `NF_NAT_RANGE_*`
        flags: Be32 = NFTA_NAT_FLAGS 7,
    }
}

/// ` random,persistent`
pub(super) fn flags(flags: Option<u32>) -> String {
    let names = [
        (raw::NF_NAT_RANGE_PROTO_RANDOM, "random"),
        (raw::NF_NAT_RANGE_PROTO_RANDOM_FULLY, "fully-random"),
        (raw::NF_NAT_RANGE_PERSISTENT, "persistent"),
    ];
    numbers::listed(" ", &names, flags.unwrap_or(0))
}

/// The family, where the table does not fix it.
pub(super) fn family_word(of: TableFamily, table: TableFamily) -> &'static str {
    match (table, of) {
        (TableFamily::Inet, TableFamily::Ip) => " ip",
        (TableFamily::Inet, TableFamily::Ip6) => " ip6",
        _ => "",
    }
}

/// The ports in these registers; `Some(None)` without a register.
#[allow(clippy::option_option)]
pub(super) fn ports(
    l: &mut Listing<'_>,
    min: Option<u32>,
    max: Option<u32>,
) -> Option<Option<String>> {
    if min.is_none() {
        return Some(None);
    }
    // As in nft, the key of a map to ports does not imply the protocol.
    l.keep_matches();
    let first = l.term(min)?.typed(DataType::INET_SERVICE, false);
    let text = l.text(&first);
    let last = match max.filter(|_| max != min) {
        Some(_) => l.term(max)?.typed(DataType::INET_SERVICE, false),
        None => return Some(Some(text)),
    };
    let last = l.text(&last);
    Some(Some(match text == last {
        true => text,
        false => format!("{text}-{last}"),
    }))
}

/// The address or addresses in these registers; IPv6 addresses are in brackets if a port may follow.
pub(super) fn address(
    l: &mut Listing<'_>,
    min: Option<u32>,
    max: Option<u32>,
    data_type: DataType,
    brackets: bool,
) -> Option<String> {
    let first = l.term(min)?.typed(data_type, false);
    let brackets =
        brackets && data_type == DataType::IPV6_ADDR && matches!(first.kind, Kind::Value(_));
    let bracketed = |text: String| if brackets { format!("[{text}]") } else { text };
    let text = bracketed(l.text(&first));
    let Some(last) = max.filter(|_| max != min) else {
        return Some(text);
    };
    let last = l.term(Some(last))?.typed(data_type, false);
    if let (Kind::Value(a), Kind::Value(b)) = (&first.kind, &last.kind)
        && let text = addresses(a, b, data_type)
        && (!brackets || text.contains('/'))
    {
        return Some(text);
    }
    Some(format!("{text}-{}", bracketed(l.text(&last))))
}

/// The flags of a statement; with ports, `NF_NAT_RANGE_PROTO_SPECIFIED` follows from them.
pub(super) fn flags_with(flags: u32, ports: Option<u32>) -> Option<u32> {
    let specified = ports.map_or(0, |_| raw::NF_NAT_RANGE_PROTO_SPECIFIED);
    Some(flags | specified).filter(|flags| *flags != 0)
}

/// The flags of a statement that do not follow from its ports.
pub(super) fn own_flags(flags: Option<u32>) -> u32 {
    flags.unwrap_or(0) & !raw::NF_NAT_RANGE_PROTO_SPECIFIED
}

impl model::Nat {
    pub(crate) fn linearize(&self, r: &mut Registers) -> Expr {
        let addrs = self
            .addrs
            .map(|(first, last)| (Data::addr(first), Data::addr(last)));
        let (reg_addr_min, reg_addr_max) = r.put_range(addrs);
        let (reg_proto_min, reg_proto_max) = r.put_ports(self.ports.as_ref());
        let kind = match self.kind {
            NatKind::Snat => raw::NFT_NAT_SNAT,
            NatKind::Dnat => raw::NFT_NAT_DNAT,
        };
        expr!(Nat {
            kind,
            family: u32::from(self.family.number()),
            reg_addr_min,
            reg_addr_max,
            reg_proto_min,
            reg_proto_max,
            flags: flags_with(self.flags, reg_proto_min),
        })
    }

    pub(crate) fn delinearize(x: &Nat, r: &Registers) -> Option<Self> {
        Some(Self {
            kind: match x.kind? {
                raw::NFT_NAT_SNAT => NatKind::Snat,
                raw::NFT_NAT_DNAT => NatKind::Dnat,
                _ => return None,
            },
            family: u8::try_from(x.family?).ok()?.into(),
            addrs: match x.reg_addr_min {
                None => None,
                min => Some((r.addr(min)?, r.addr(x.reg_addr_max.or(min))?)),
            },
            ports: r.ports(x.reg_proto_min, x.reg_proto_max)?,
            flags: own_flags(x.flags),
        })
    }
}

impl Instruction for Nat {
    fn normalize(&mut self) {
        super::same(self.reg_addr_min, &mut self.reg_addr_max);
        super::same(self.reg_proto_min, &mut self.reg_proto_max);
        // Implied by the address registers; the kernel sets it.
        self.flags = self.flags.map(|f| f & !raw::NF_NAT_RANGE_MAP_IPS);
        super::drop_if(&mut self.flags, 0);
    }

    fn list(&self, l: &mut Listing<'_>) -> Option<()> {
        let kind = match self.kind? {
            raw::NFT_NAT_SNAT => "snat",
            raw::NFT_NAT_DNAT => "dnat",
            _ => return None,
        };
        let family = TableFamily::from(u8::try_from(self.family?).ok()?);
        let data_type = match family {
            TableFamily::Ip6 => DataType::IPV6_ADDR,
            _ => DataType::IPV4_ADDR,
        };
        // The value of a map may be an address and a port, or two of each: the other registers are parts of it. The length
        // of the values of a named map is not known here.
        let address_len = match data_type {
            DataType::IPV6_ADDR => 16,
            _ => 4,
        };
        let others = [self.reg_addr_max, self.reg_proto_min];
        let is_part = others.into_iter().flatten().any(|r| l.is_spent(r));
        let first = l.term(self.reg_addr_min);
        let is_map = first.as_ref().is_some_and(|t| {
            let is_longer = t.len > address_len || (t.len == 0 && is_part);
            matches!(t.kind, Kind::Map(..)) && is_longer
        });
        let word = match (is_map, family) {
            (true, TableFamily::Ip) => " ip",
            (true, TableFamily::Ip6) => " ip6",
            _ => family_word(family, l.family),
        };
        let prefix = match self.flags.unwrap_or(0) & raw::NF_NAT_RANGE_NETMAP {
            0 => "",
            _ => " prefix",
        };
        let (addr, port) = match first.filter(|_| is_map) {
            Some(map) => (l.text(&map), None),
            None => {
                let brackets = self.reg_proto_min.is_some();
                let addr = match self.reg_addr_min {
                    Some(_) => {
                        address(l, self.reg_addr_min, self.reg_addr_max, data_type, brackets)?
                    }
                    None => String::new(),
                };
                (addr, ports(l, self.reg_proto_min, self.reg_proto_max)?)
            }
        };
        let to = match (addr.is_empty(), port) {
            (true, None) => String::new(),
            (_, Some(port)) => format!("{word}{prefix} to {addr}:{port}"),
            (false, None) => format!("{word}{prefix} to {addr}"),
        };
        l.say(format!("{kind}{to}{}", flags(self.flags)))
    }
}
