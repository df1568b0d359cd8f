//! What the preceding matches of a rule imply about the packet, and the header fields that follow from it.

use super::expr::{self, Key};
use super::headers::{self, Field};
use super::listing::{Kind, Term};
use super::model::{
    AnonymousSet, CmpOp, CtDirection, CtKey, Data, DataType, Match, MetaKey, Operand, PayloadBase,
    Selector, TableFamily,
};
use super::raw;
use super::wire::ElemAttrs;

/// The headers that the preceding matches imply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// `NFPROTO_IPV4` or `NFPROTO_IPV6`
    pub(crate) nfproto: Option<u8>,
    /// The table sees packets of both families, so that `ct l3proto` determines the network header.
    pub(crate) inet: bool,
    /// `IPPROTO_*`
    pub(crate) l4proto: Option<u8>,
    /// The link-layer header is that of Ethernet.
    pub(crate) ether: bool,
    /// ARP follows the link-layer header.
    pub(crate) arp: bool,
    /// Number of VLAN headers.
    pub(crate) vlans: u8,
    /// The type of an ICMP or ICMPv6 message.
    pub(crate) icmp_type: Option<u8>,
}

/// A header, or a type of message, that a match establishes: a later keyword implies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Implied {
    /// Ethernet
    Link,
    /// A VLAN header after the Ethernet header
    Vlan,
    /// IPv4, IPv6 or ARP
    Network,
    /// A transport protocol
    Transport,
    /// The same, by a field of the network header in a family with several of them: only TCP options imply it
    Protocol,
    /// A type of ICMP message
    IcmpType,
}

/// `ETH_P_*`
const ETH_P_IP: u64 = 0x0800;
const ETH_P_ARP: u64 = 0x0806;
const ETH_P_IPV6: u64 = 0x86dd;
const ETH_P_8021Q: u64 = 0x8100;
const ETH_P_8021AD: u64 = 0x88a8;
const ARPHRD_ETHER: u64 = 1;
/// Lengths of the Ethernet and the VLAN header in bits.
const ETHER_LEN: u32 = 14 * 8;
const VLAN_LEN: u32 = 4 * 8;

impl Context {
    /// The headers that the family of a table implies.
    pub(crate) fn of(family: TableFamily) -> Self {
        let nfproto = match family {
            TableFamily::Ip => Some(raw::NFPROTO_IPV4),
            TableFamily::Ip6 => Some(raw::NFPROTO_IPV6),
            _ => None,
        };
        Self {
            nfproto,
            inet: family == TableFamily::Inet,
            ether: family == TableFamily::Bridge,
            arp: family == TableFamily::Arp,
            ..Self::default()
        }
    }

    /// The header that the equality of a selector and a value establishes.
    pub(crate) fn establishes(self, selector: &Selector, v: &Data) -> Option<Implied> {
        match selector {
            Selector::Meta(MetaKey::Nfproto) if v.0.len() == 1 => Some(Implied::Network),
            Selector::Meta(MetaKey::L4proto) if v.0.len() == 1 => Some(Implied::Transport),
            Selector::Meta(MetaKey::Iiftype) if v.to_ne() == Some(ARPHRD_ETHER) => {
                Some(Implied::Link)
            }
            Selector::Meta(MetaKey::Protocol) => network(v.to_be()?),
            Selector::Payload { base, .. } => {
                let field = self.field(selector)?;
                match field.data_type {
                    DataType::ICMP_TYPE | DataType::ICMPV6_TYPE => Some(Implied::IcmpType),
                    DataType::ETHER_TYPE if *base == PayloadBase::LinkLayer => match v.to_be()? {
                        ETH_P_8021Q if field.header == "ether" => Some(Implied::Vlan),
                        n => network(n),
                    },
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Adds the headers that a match implies.
    pub(crate) fn note_match(&mut self, m: &Match) {
        if let (Operand::Value(v), None, CmpOp::Eq) = (&m.operand, &m.mask, m.op) {
            self.note(&m.selector, v);
        }
    }

    /// Adds the headers that the equality of a selector and a value implies.
    pub(crate) fn note(&mut self, selector: &Selector, v: &Data) {
        if let Some(parts) = self.split(selector, v) {
            return parts.iter().for_each(|(s, v)| self.note(s, v));
        }
        let value = v.0.first().copied();
        let field = self.field(selector);
        match (selector, field.map(|f| f.data_type)) {
            (Selector::Meta(MetaKey::Nfproto), _) if v.0.len() == 1 => self.nfproto = value,
            (Selector::Meta(MetaKey::L4proto), _) if v.0.len() == 1 => self.l4proto = value,
            (Selector::Ct(CtKey::L3protocol, _), _) if self.inet && v.0.len() == 1 => {
                self.nfproto = value
            }
            (Selector::Ct(CtKey::Protocol, _), _) if self.nfproto.is_some() && v.0.len() == 1 => {
                self.l4proto = value;
            }
            (Selector::Meta(MetaKey::Protocol), _) => self.note_ether_type(v),
            (Selector::Meta(MetaKey::Iiftype), _) => self.ether = v.to_ne() == Some(ARPHRD_ETHER),
            (Selector::Payload { base, .. }, Some(DataType::ETHER_TYPE))
                if *base == PayloadBase::LinkLayer =>
            {
                self.note_ether_type(v);
            }
            // `ip protocol tcp` implies the same as `meta l4proto tcp`.
            (Selector::Payload { base, .. }, Some(DataType::INET_PROTO))
                if *base == PayloadBase::Network =>
            {
                self.l4proto = value;
            }
            (_, Some(DataType::ICMP_TYPE | DataType::ICMPV6_TYPE)) => self.icmp_type = value,
            _ => {}
        }
    }

    /// Adds what the equality of a selector and one of these elements implies: the types of ICMPv6 messages that contain the
    /// same address.
    pub(crate) fn note_any(&mut self, selector: &Selector, set: &AnonymousSet) {
        let is_type = self.field(selector).map(|f| f.data_type) == Some(DataType::ICMPV6_TYPE);
        let types = [130, 131, 132, 135, 136, 137];
        let key = |e: &ElemAttrs| e.key.as_ref()?.value.as_deref()?.first().copied();
        let is_one =
            |e: &ElemAttrs| e.flags.is_none() && key(e).is_some_and(|n| types.contains(&n));
        if is_type
            && set.attrs.flags.unwrap_or(0) & raw::NFT_SET_INTERVAL == 0
            && set.elements.iter().all(is_one)
        {
            self.icmp_type = Some(131);
        }
    }

    fn note_ether_type(&mut self, v: &Data) {
        if v.to_be().and_then(network).is_some() {
            self.arp = false;
        }
        match v.to_be() {
            Some(ETH_P_IP) => self.nfproto = Some(raw::NFPROTO_IPV4),
            Some(ETH_P_IPV6) => self.nfproto = Some(raw::NFPROTO_IPV6),
            Some(ETH_P_ARP) => self.arp = true,
            Some(ETH_P_8021Q | ETH_P_8021AD) => self.vlans = self.vlans.saturating_add(1),
            _ => {}
        }
    }

    /// The comparisons that `nft` combined into one load, because their fields are adjacent.
    pub(crate) fn split(mut self, selector: &Selector, v: &Data) -> Option<Vec<(Selector, Data)>> {
        let Selector::Payload { base, offset, len } = selector else {
            return None;
        };
        if [false, true]
            .into_iter()
            .any(|front| self.own(selector, front).is_some())
        {
            return None;
        }
        let mut rest = v.0.as_slice();
        let mut at = *offset;
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let bits = u64::from(at) * 8;
            let longest = u32::try_from(rest.len()).ok()?.min(*len);
            let whole = |len: &u32| self.find(*base, bits, len * 8, false).is_some();
            // Only the last field may be compared in part, like the prefix of an address.
            let len = match (1..=longest).rev().find(whole) {
                Some(len) => len,
                None => {
                    let front = self.find(*base, bits, longest * 8, true);
                    front.map(|_| longest)?
                }
            };
            let (front, tail) = rest.split_at_checked(usize::try_from(len).ok()?)?;
            let part = Selector::Payload {
                base: *base,
                offset: at,
                len,
            };
            let value = Data::from(front);
            self.note(&part, &value);
            parts.push((part, value));
            (rest, at) = (tail, at.checked_add(len)?);
        }
        Some(parts)
    }

    fn fields(self, base: PayloadBase) -> [&'static [Field]; 2] {
        let only = |fields| [fields, &[] as &[_]];
        match (base, self.nfproto, self.l4proto) {
            (PayloadBase::Network, ..) if self.arp => only(headers::ARP),
            (PayloadBase::Network, Some(raw::NFPROTO_IPV4), _) => only(headers::IP),
            (PayloadBase::Network, Some(raw::NFPROTO_IPV6), _) => only(headers::IP6),
            (PayloadBase::Transport, _, Some(proto)) => match proto {
                raw::IPPROTO_TCP => only(headers::TCP),
                raw::IPPROTO_UDP => only(headers::UDP),
                raw::IPPROTO_UDPLITE => only(headers::UDPLITE),
                raw::IPPROTO_SCTP => only(headers::SCTP),
                raw::IPPROTO_DCCP => only(headers::DCCP),
                raw::IPPROTO_AH => only(headers::AH),
                raw::IPPROTO_ESP => only(headers::ESP),
                raw::IPPROTO_COMP => only(headers::COMP),
                raw::IPPROTO_IGMP => only(headers::IGMP),
                raw::IPPROTO_ICMP => match self.icmp_type {
                    Some(3) => [headers::ICMP_UNREACHABLE, headers::ICMP],
                    Some(5) => [headers::ICMP_REDIRECT, headers::ICMP],
                    _ => only(headers::ICMP),
                },
                raw::IPPROTO_ICMPV6 => match self.icmp_type {
                    Some(2) => [headers::ICMP6_TOO_BIG, headers::ICMP6],
                    Some(4) => [headers::ICMP6_PARAMETER, headers::ICMP6],
                    Some(130) => [headers::ICMP6_LISTENER, headers::ICMP6],
                    Some(131 | 132 | 135 | 136) => [headers::ICMP6_TARGET, headers::ICMP6],
                    Some(137) => [headers::ICMP6_REDIRECT, headers::ICMP6],
                    _ => only(headers::ICMP6),
                },
                _ => only(&[]),
            },
            _ => only(&[]),
        }
    }

    /// The field that has exactly these bits of a header; with `front`, the longer field that begins with them.
    fn find(self, base: PayloadBase, offset: u64, len: u32, front: bool) -> Option<&'static Field> {
        let offset = u32::try_from(offset).ok()?;
        let fits = |f: &Field| if front { f.len > len } else { f.len == len };
        let at = |fields: &'static [Field], offset: u32| {
            let mut fields = fields.iter();
            fields.find(|f| f.offset == offset && fits(f))
        };
        if base == PayloadBase::LinkLayer {
            let Some(offset) = offset.checked_sub(ETHER_LEN) else {
                return at(headers::ETHER, offset).filter(|_| self.ether);
            };
            let is_vlan = offset / VLAN_LEN < u32::from(self.vlans);
            return at(headers::VLAN, offset % VLAN_LEN).filter(|_| is_vlan);
        }
        let mut tables = self.fields(base).into_iter();
        tables.find_map(|fields| at(fields, offset))
    }

    /// The named field of the known headers that a payload selector loads; with `front`, the field whose first bytes it loads.
    fn own(self, selector: &Selector, front: bool) -> Option<&'static Field> {
        let Selector::Payload { base, offset, len } = selector else {
            return None;
        };
        let bits = len.checked_mul(8)?;
        self.find(*base, u64::from(*offset) * 8, bits, front)
    }

    /// The named field that a payload selector loads. `nft` names ports for any protocol.
    pub(crate) fn field(self, selector: &Selector) -> Option<&'static Field> {
        let port = || match selector {
            Selector::Payload {
                base: PayloadBase::Transport,
                offset,
                len: 2,
            } => headers::TH.iter().find(|f| f.offset / 8 == *offset),
            _ => None,
        };
        self.own(selector, false).or_else(port)
    }

    /// The longer field whose first bytes a payload selector loads: a comparison with one value is one with a prefix.
    pub(crate) fn front(self, selector: &Selector) -> Option<&'static Field> {
        self.own(selector, true)
    }

    /// The field that a comparison of a payload selector with one value refers to.
    pub(crate) fn compared(self, selector: &Selector) -> Option<&'static Field> {
        let own = |front| self.own(selector, front);
        own(false)
            .or_else(|| own(true))
            .or_else(|| self.field(selector))
    }

    /// The named field that a mask selects from the loaded bytes, and the number of bits to its right.
    pub(crate) fn masked(self, selector: &Selector, mask: &Data) -> Option<(&'static Field, u32)> {
        let Selector::Payload { base, offset, len } = selector else {
            return None;
        };
        let bits = len.checked_mul(8)?;
        let mask = mask.to_be().filter(|n| *n != 0 && bits <= 64)?;
        let left = (mask.leading_zeros() + bits).checked_sub(64)?;
        let right = mask.trailing_zeros();
        let field_len = bits.checked_sub(left + right)?;
        let is_one_run = mask.count_ones() == field_len;
        let first = u64::from(*offset) * 8 + u64::from(left);
        let field = self.find(*base, first, field_len, false)?;
        is_one_run.then_some((field, right))
    }

    /// The mask of the named field among the loaded bytes, not all of them, to which these bits belong, and the number of bits
    /// to its right. Bits beyond the loaded bytes are ignored.
    pub(crate) fn around(self, selector: &Selector, bits: u64) -> Option<(Data, u32)> {
        let len = key(selector)?.len;
        let unused = 64_u32.checked_sub(len.checked_mul(8)?)?;
        let bits = bits & u64::MAX.checked_shr(unused)?;
        let ends = (0..=bits.trailing_zeros().min(63)).rev();
        let masks = ends.flat_map(|right| {
            let starts = (unused..=bits.leading_zeros().min(63)).rev();
            starts.map(move |left| (u64::MAX << right) & (u64::MAX >> left))
        });
        let mut masks = masks.filter(|mask| mask.count_ones() < len * 8);
        let named = |mask| {
            let mask = be(mask, len)?;
            let (_, right) = self.masked(selector, &mask)?;
            Some((mask, right))
        };
        masks.find_map(named).filter(|_| bits != 0)
    }

    /// What a selector loads, with the type that the preceding matches imply.
    pub(crate) fn key(self, selector: &Selector) -> Option<Key> {
        let data_type = match selector {
            Selector::Payload { .. } => self.field(selector).map(|f| f.data_type),
            Selector::Ct(CtKey::Src | CtKey::Dst, _) if self.nfproto == Some(raw::NFPROTO_IPV6) => {
                Some(DataType::IPV6_ADDR)
            }
            _ => None,
        };
        let key = key(selector)?;
        Some(Key {
            data_type: data_type.unwrap_or(key.data_type),
            ..key
        })
    }

    /// The content of a register after a load of the selector.
    pub(crate) fn term(self, selector: &Selector) -> Option<Term> {
        let key = self.key(selector)?;
        Some(Term {
            kind: Kind::Selector(selector.clone()),
            data_type: key.data_type,
            host_order: key.host_order,
            len: key.len,
        })
    }
}

/// The lowest bytes of a number, in network order.
pub(crate) fn be(n: u64, len: u32) -> Option<Data> {
    let bytes = n.to_be_bytes();
    let first = bytes.len().checked_sub(usize::try_from(len).ok()?)?;
    bytes.get(first..).map(Data::from)
}

/// The header that an EtherType announces, unless it is a VLAN header.
fn network(ether_type: u64) -> Option<Implied> {
    matches!(ether_type, ETH_P_IP | ETH_P_IPV6 | ETH_P_ARP).then_some(Implied::Network)
}

/// What a selector loads; `None` if this version does not know its key.
pub(crate) fn key(selector: &Selector) -> Option<Key> {
    match selector {
        Selector::Meta(key) => key.key(),
        Selector::Ct(_, Some(CtDirection::Other(_))) => None,
        Selector::Ct(key, _) => key.key(),
        Selector::Socket(key, _) => key.key(),
        Selector::Fib { flags, result } => expr::fib::key(*flags, *result),
        Selector::Payload { len, .. } => Some(Key::net(DataType::INTEGER, *len)),
    }
}

/// The number of bytes of a selector's value, if it is a number in host order: comparisons of its order need it in network
/// order.
pub(crate) fn host_width(selector: &Selector) -> Option<u32> {
    let key = key(selector)?;
    (key.host_order && key.len > 1).then_some(key.len)
}
