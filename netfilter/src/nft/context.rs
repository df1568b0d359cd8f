//! What the preceding matches of a rule imply about the packet, and the header fields that follow from it.

use super::model::FibResult;
use super::model::{
    CmpOp, CtKey, DataType, Match, MetaKey, Operand, PayloadBase, Selector, SocketKey, TableFamily,
};
use super::raw;

/// The headers that the packet is known to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// `NFPROTO_IPV4` or `NFPROTO_IPV6`
    pub(crate) nfproto: Option<u8>,
    /// `IPPROTO_*`
    pub(crate) l4proto: Option<u8>,
}

/// A header field that has a name.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) header: &'static str,
    pub(crate) name: &'static str,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    pub(crate) data_type: DataType,
    /// Header and field number in nft's `typeof` userdata.
    pub(crate) type_of: Option<(u32, u32)>,
}

const fn field(
    header: &'static str,
    name: &'static str,
    (offset, len): (u32, u32),
    data_type: DataType,
    type_of: Option<(u32, u32)>,
) -> Field {
    Field {
        header,
        name,
        offset,
        len,
        data_type,
        type_of,
    }
}

const IP: &[Field] = &[
    field("ip", "length", (2, 2), DataType::INTEGER, None),
    field("ip", "id", (4, 2), DataType::INTEGER, None),
    field("ip", "ttl", (8, 1), DataType::INTEGER, None),
    field("ip", "protocol", (9, 1), DataType::INET_PROTO, None),
    field("ip", "checksum", (10, 2), DataType::INTEGER, None),
    field("ip", "saddr", (12, 4), DataType::IPV4_ADDR, Some((12, 11))),
    field("ip", "daddr", (16, 4), DataType::IPV4_ADDR, Some((12, 12))),
];
const IP6: &[Field] = &[
    field("ip6", "length", (4, 2), DataType::INTEGER, None),
    field("ip6", "nexthdr", (6, 1), DataType::INET_PROTO, None),
    field("ip6", "hoplimit", (7, 1), DataType::INTEGER, None),
    field("ip6", "saddr", (8, 16), DataType::IPV6_ADDR, Some((13, 8))),
    field("ip6", "daddr", (24, 16), DataType::IPV6_ADDR, Some((13, 9))),
];
const TCP: &[Field] = &[
    field("tcp", "sport", (0, 2), DataType::INET_SERVICE, Some((8, 1))),
    field("tcp", "dport", (2, 2), DataType::INET_SERVICE, Some((8, 2))),
    field("tcp", "sequence", (4, 4), DataType::INTEGER, None),
    field("tcp", "ackseq", (8, 4), DataType::INTEGER, None),
    field("tcp", "flags", (13, 1), DataType::TCP_FLAG, None),
    field("tcp", "window", (14, 2), DataType::INTEGER, None),
    field("tcp", "checksum", (16, 2), DataType::INTEGER, None),
    field("tcp", "urgptr", (18, 2), DataType::INTEGER, None),
];
const UDP: &[Field] = &[
    field("udp", "sport", (0, 2), DataType::INET_SERVICE, Some((6, 1))),
    field("udp", "dport", (2, 2), DataType::INET_SERVICE, Some((6, 2))),
    field("udp", "length", (4, 2), DataType::INTEGER, None),
    field("udp", "checksum", (6, 2), DataType::INTEGER, None),
];
const TH: &[Field] = &[
    field("th", "sport", (0, 2), DataType::INET_SERVICE, Some((11, 1))),
    field("th", "dport", (2, 2), DataType::INET_SERVICE, Some((11, 2))),
];
const ICMP: &[Field] = &[
    field("icmp", "type", (0, 1), DataType::ICMP_TYPE, None),
    field("icmp", "code", (1, 1), DataType::INTEGER, None),
];
const ICMP6: &[Field] = &[
    field("icmpv6", "type", (0, 1), DataType::ICMPV6_TYPE, None),
    field("icmpv6", "code", (1, 1), DataType::INTEGER, None),
];

/// The field with these numbers in nft's `typeof` userdata.
pub(crate) fn named_field(header: u32, field: u32) -> Option<&'static Field> {
    let mut all = [IP, IP6, TCP, UDP, TH].into_iter().flatten();
    all.find(|f| f.type_of == Some((header, field)))
}

impl Context {
    /// What the family of the table implies.
    pub(crate) fn of(family: TableFamily) -> Self {
        let nfproto = match family {
            TableFamily::Ip => Some(raw::NFPROTO_IPV4),
            TableFamily::Ip6 => Some(raw::NFPROTO_IPV6),
            _ => None,
        };
        Self {
            nfproto,
            l4proto: None,
        }
    }

    /// The protocol that a match establishes, as the base of its header.
    pub(crate) fn establishes(self, m: &Match) -> Option<PayloadBase> {
        let Match {
            selector,
            mask: None,
            op: CmpOp::Eq,
            operand: Operand::Value(v),
        } = m
        else {
            return None;
        };
        match selector {
            Selector::Meta(MetaKey::Nfproto) if v.0.len() == 1 => Some(PayloadBase::Network),
            Selector::Meta(MetaKey::L4proto) if v.0.len() == 1 => Some(PayloadBase::Transport),
            // ARPHRD_ETHER
            Selector::Meta(MetaKey::Iiftype) if v.to_ne() == Some(1) => {
                Some(PayloadBase::LinkLayer)
            }
            _ => None,
        }
    }

    /// Adds what follows from a match that holds.
    pub(crate) fn note(&mut self, m: &Match) {
        let value = match &m.operand {
            Operand::Value(v) => v.0.first().copied(),
            _ => None,
        };
        match self.establishes(m) {
            Some(PayloadBase::Network) => self.nfproto = value,
            Some(PayloadBase::Transport) => self.l4proto = value,
            _ => {
                // `ip protocol tcp` implies the same as `meta l4proto tcp`.
                let is_protocol = self
                    .field(&m.selector)
                    .is_some_and(|f| f.data_type == DataType::INET_PROTO);
                if is_protocol && m.op == CmpOp::Eq && m.mask.is_none() && value.is_some() {
                    self.l4proto = value;
                }
            }
        }
    }

    fn fields(self, base: PayloadBase) -> &'static [Field] {
        match (base, self.nfproto, self.l4proto) {
            (PayloadBase::Network, Some(raw::NFPROTO_IPV4), _) => IP,
            (PayloadBase::Network, Some(raw::NFPROTO_IPV6), _) => IP6,
            (PayloadBase::Transport, _, Some(raw::IPPROTO_TCP)) => TCP,
            (PayloadBase::Transport, _, Some(raw::IPPROTO_UDP)) => UDP,
            (PayloadBase::Transport, _, Some(raw::IPPROTO_ICMP)) => ICMP,
            (PayloadBase::Transport, _, Some(raw::IPPROTO_ICMPV6)) => ICMP6,
            (PayloadBase::Transport, _, None) => TH,
            _ => &[],
        }
    }

    /// The named field that a payload selector loads, or whose first bytes it loads.
    pub(crate) fn field(self, selector: &Selector) -> Option<&'static Field> {
        let Selector::Payload { base, offset, len } = selector else {
            return None;
        };
        let whole = |f: &&Field| f.offset == *offset && f.len == *len;
        let front = |f: &&Field| f.offset == *offset && f.len > *len && f.is_address();
        let fields = self.fields(*base);
        fields
            .iter()
            .find(whole)
            .or_else(|| fields.iter().find(front))
    }

    /// The type of a selector's value.
    pub(crate) fn data_type(self, selector: &Selector) -> DataType {
        match selector {
            Selector::Payload { .. } => self
                .field(selector)
                .map_or(DataType::INTEGER, |f| f.data_type),
            Selector::Meta(key) => meta_type(*key),
            Selector::Ct(key, _) => self.ct_type(*key),
            Selector::Socket(SocketKey::Mark, _) => DataType::MARK,
            Selector::Socket(SocketKey::Cgroupv2, _) => DataType::CGROUPV2,
            Selector::Socket(..) => DataType::INTEGER,
            Selector::Fib { flags, .. } if flags & raw::NFTA_FIB_F_PRESENT != 0 => {
                DataType::BOOLEAN
            }
            Selector::Fib {
                result: FibResult::Oif,
                ..
            } => DataType::IFINDEX,
            Selector::Fib {
                result: FibResult::Oifname,
                ..
            } => DataType::IFNAME,
            Selector::Fib { .. } => DataType::FIB_ADDR,
        }
    }

    fn ct_type(self, key: CtKey) -> DataType {
        match key {
            CtKey::State => DataType::CT_STATE,
            CtKey::Direction => DataType::CT_DIR,
            CtKey::Status => DataType::CT_STATUS,
            CtKey::Mark => DataType::MARK,
            CtKey::L3protocol => DataType::NF_PROTO,
            CtKey::Protocol => DataType::INET_PROTO,
            CtKey::ProtoSrc | CtKey::ProtoDst => DataType::INET_SERVICE,
            CtKey::SrcIp | CtKey::DstIp => DataType::IPV4_ADDR,
            CtKey::SrcIp6 | CtKey::DstIp6 => DataType::IPV6_ADDR,
            CtKey::Src | CtKey::Dst if self.nfproto == Some(raw::NFPROTO_IPV6) => {
                DataType::IPV6_ADDR
            }
            CtKey::Src | CtKey::Dst => DataType::IPV4_ADDR,
            _ => DataType::INTEGER,
        }
    }
}

impl Field {
    pub(crate) fn is_address(&self) -> bool {
        matches!(self.data_type, DataType::IPV4_ADDR | DataType::IPV6_ADDR)
    }
}

fn meta_type(key: MetaKey) -> DataType {
    match key {
        MetaKey::Mark => DataType::MARK,
        MetaKey::Iif | MetaKey::Oif => DataType::IFINDEX,
        MetaKey::Iifname | MetaKey::Oifname | MetaKey::Ibrname | MetaKey::Obrname => {
            DataType::IFNAME
        }
        MetaKey::Iiftype | MetaKey::Oiftype => DataType::ARPHRD,
        MetaKey::Skuid => DataType::UID,
        MetaKey::Skgid => DataType::GID,
        MetaKey::Nfproto => DataType::NF_PROTO,
        MetaKey::L4proto => DataType::INET_PROTO,
        MetaKey::Protocol => DataType::ETHER_TYPE,
        MetaKey::Pkttype => DataType::PKT_TYPE,
        _ => DataType::INTEGER,
    }
}

/// Whether a selector's value is in host order.
pub(crate) fn is_host_order(selector: &Selector) -> bool {
    match selector {
        Selector::Payload { .. } => false,
        // Bytes of the packet, a number in network order, and names, which are not numbers.
        Selector::Meta(
            MetaKey::Protocol
            | MetaKey::Random
            | MetaKey::Iifname
            | MetaKey::Oifname
            | MetaKey::Ibrname
            | MetaKey::Obrname,
        ) => false,
        Selector::Ct(
            CtKey::Src
            | CtKey::Dst
            | CtKey::SrcIp
            | CtKey::DstIp
            | CtKey::SrcIp6
            | CtKey::DstIp6
            | CtKey::ProtoSrc
            | CtKey::ProtoDst,
            _,
        ) => false,
        _ => true,
    }
}
