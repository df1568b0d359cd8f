//! The builder of rules, with the dependencies that `nft` adds.

use super::{
    CmpOp, Counter, CtKey, Data, Element, ElementKey, Match, MetaKey, Operand, PayloadBase,
    Redirect, Rule, Selector, Source, Statement, TableFamily, Tproxy, Verdict,
};
use crate::nft::raw;
use ipnet::IpNet;
use std::ops::RangeInclusive;

/// The transport protocols that the builder can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum L4Proto {
    /// 6
    Tcp,
    /// 17
    Udp,
}

impl L4Proto {
    /// `IPPROTO_*`
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => raw::IPPROTO_TCP,
            Self::Udp => raw::IPPROTO_UDP,
        }
    }
}

/// Writes a rule of an `inet` table from left to right.
///
/// A match on an address or a port needs a match on the family or the protocol before it. As `nft` does, the builder puts
/// `meta nfproto` and `meta l4proto` before the first match that needs them, once per rule.
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct RuleBuilder {
    rule: Rule,
    nfproto: Option<u8>,
    l4proto: Option<u8>,
}

impl RuleBuilder {
    /// Appends any statement.
    pub fn push(mut self, s: Statement) -> Self {
        self.rule.statements.push(s);
        self
    }

    fn matching(self, selector: Selector, op: CmpOp, operand: Operand) -> Self {
        self.push(Statement::Match(Match {
            selector,
            mask: None,
            op,
            operand,
        }))
    }

    fn meta(self, key: MetaKey, op: CmpOp, value: Data) -> Self {
        self.matching(Selector::Meta(key), op, Operand::Value(value))
    }

    fn need_nfproto(mut self, nfproto: u8) -> Self {
        if self.nfproto.replace(nfproto) == Some(nfproto) {
            return self;
        }
        self.meta(MetaKey::Nfproto, CmpOp::Eq, Data::u8(nfproto))
    }

    /// `meta l4proto tcp`, unless an earlier match implies it.
    pub fn l4proto(mut self, proto: L4Proto) -> Self {
        if self.l4proto.replace(proto.number()) == Some(proto.number()) {
            return self;
        }
        self.meta(MetaKey::L4proto, CmpOp::Eq, Data::u8(proto.number()))
    }

    fn address(self, net: IpNet, op: CmpOp, v4: u32, v6: u32) -> Self {
        let net = net.trunc();
        let (nfproto, offset, len) = match net {
            IpNet::V4(_) => (raw::NFPROTO_IPV4, v4, 4),
            IpNet::V6(_) => (raw::NFPROTO_IPV6, v6, 16),
        };
        let addr = Data::addr(net.addr());
        let operand = if net.prefix_len() == net.max_prefix_len() {
            Operand::Value(addr)
        } else {
            Operand::Prefix(addr, net.prefix_len())
        };
        let selector = Selector::Payload {
            base: PayloadBase::Network,
            offset,
            len,
        };
        self.need_nfproto(nfproto).matching(selector, op, operand)
    }

    /// `ip saddr NET` or `ip6 saddr NET`; host bits of the network are cleared.
    pub fn saddr(self, op: CmpOp, net: IpNet) -> Self {
        self.address(net, op, 12, 8)
    }

    /// `ip daddr NET` or `ip6 daddr NET`; host bits of the network are cleared.
    pub fn daddr(self, op: CmpOp, net: IpNet) -> Self {
        self.address(net, op, 16, 24)
    }

    fn port(self, proto: L4Proto, op: CmpOp, offset: u32, ports: RangeInclusive<u16>) -> Self {
        let (first, last) = (*ports.start(), *ports.end());
        let operand = if first == last {
            Operand::Value(Data::be16(first))
        } else {
            Operand::Range(Data::be16(first), Data::be16(last))
        };
        let selector = Selector::Payload {
            base: PayloadBase::Transport,
            offset,
            len: 2,
        };
        self.l4proto(proto).matching(selector, op, operand)
    }

    /// `tcp dport P` or `tcp dport P-Q`
    pub fn dport(self, proto: L4Proto, op: CmpOp, ports: RangeInclusive<u16>) -> Self {
        self.port(proto, op, 2, ports)
    }

    /// `tcp sport P` or `tcp sport P-Q`
    pub fn sport(self, proto: L4Proto, op: CmpOp, ports: RangeInclusive<u16>) -> Self {
        self.port(proto, op, 0, ports)
    }

    /// `tcp dport { P, Q }`; with [`CmpOp::Neq`] the port is none of them.
    pub fn dports(self, proto: L4Proto, op: CmpOp, ports: &[u16]) -> Self {
        let mut ports = ports.to_vec();
        ports.sort_unstable();
        ports.dedup();
        let elements = ports
            .into_iter()
            .map(|p| Element::value(Data::be16(p)))
            .collect();
        let selector = Selector::Payload {
            base: PayloadBase::Transport,
            offset: 2,
            len: 2,
        };
        self.l4proto(proto)
            .matching(selector, op, Operand::Anonymous(elements))
    }

    /// `iifname NAME`; a trailing `*` matches every name with this prefix.
    pub fn iifname(self, op: CmpOp, name: &str) -> Self {
        self.ifname(MetaKey::Iifname, op, name)
    }

    /// `oifname NAME`; a trailing `*` matches every name with this prefix.
    pub fn oifname(self, op: CmpOp, name: &str) -> Self {
        self.ifname(MetaKey::Oifname, op, name)
    }

    fn ifname(self, key: MetaKey, op: CmpOp, name: &str) -> Self {
        let operand = match name.strip_suffix('*') {
            Some(prefix) if !prefix.is_empty() => Operand::IfnamePrefix(prefix.to_owned()),
            _ => Operand::Value(Data::ifname(name)),
        };
        self.matching(Selector::Meta(key), op, operand)
    }

    fn id(self, key: MetaKey, op: CmpOp, ids: RangeInclusive<u32>) -> Self {
        let (first, last) = (*ids.start(), *ids.end());
        let operand = if first == last {
            Operand::Value(Data::ne32(first))
        } else {
            Operand::Range(Data::ne32(first), Data::ne32(last))
        };
        self.matching(Selector::Meta(key), op, operand)
    }

    /// `meta skuid U` or `meta skuid U-V`. A packet without a socket matches neither this nor its negation.
    pub fn skuid(self, op: CmpOp, uids: RangeInclusive<u32>) -> Self {
        self.id(MetaKey::Skuid, op, uids)
    }

    /// `meta skgid G` or `meta skgid G-H`
    pub fn skgid(self, op: CmpOp, gids: RangeInclusive<u32>) -> Self {
        self.id(MetaKey::Skgid, op, gids)
    }

    /// `meta skgid { G, H-I }`; with [`CmpOp::Neq`] the group is none of them.
    ///
    /// Ranges that overlap or touch are merged, as `nft` does in an anonymous set: the kernel refuses overlapping
    /// elements.
    pub fn skgids(self, op: CmpOp, gids: impl IntoIterator<Item = RangeInclusive<u32>>) -> Self {
        let element = |(first, last)| match first == last {
            true => Element::value(Data::ne32(first)),
            false => Element::new(ElementKey::range(Data::ne32(first), Data::ne32(last))),
        };
        let elements = joined(gids).into_iter().map(element).collect();
        let operand = Operand::Anonymous(elements);
        self.matching(Selector::Meta(MetaKey::Skgid), op, operand)
    }

    /// `meta mark M`
    pub fn mark(self, op: CmpOp, mark: u32) -> Self {
        self.meta(MetaKey::Mark, op, Data::ne32(mark))
    }

    /// `ct mark M`
    pub fn ct_mark(self, op: CmpOp, mark: u32) -> Self {
        let operand = Operand::Value(Data::ne32(mark));
        self.matching(Selector::Ct(CtKey::Mark, None), op, operand)
    }

    /// `ct state A,B`: any of the bits (`NF_CT_STATE_*`).
    pub fn ct_state(self, bits: u32) -> Self {
        let operand = Operand::AnyBit(Data::ne32(bits));
        self.matching(Selector::Ct(CtKey::State, None), CmpOp::Eq, operand)
    }

    /// `counter`
    pub fn counter(self) -> Self {
        self.push(Statement::Counter(Counter::default()))
    }

    /// `meta mark set M`
    pub fn set_mark(self, mark: u32) -> Self {
        self.push(Statement::MetaSet(
            MetaKey::Mark,
            Source::Value(Data::ne32(mark)),
        ))
    }

    /// `meta mark set ct mark`
    pub fn set_mark_from_ct(self) -> Self {
        let source = Source::Selector(Selector::Ct(CtKey::Mark, None));
        self.push(Statement::MetaSet(MetaKey::Mark, source))
    }

    /// `ct mark set meta mark`
    pub fn set_ct_mark_from_mark(self) -> Self {
        let source = Source::Selector(Selector::Meta(MetaKey::Mark));
        self.push(Statement::CtSet(CtKey::Mark, None, source))
    }

    /// `ct zone set Z`: the conntrack zone, which must be set before conntrack sees the packet: at a priority below -200.
    pub fn set_ct_zone(self, zone: u16) -> Self {
        self.push(Statement::CtSet(
            CtKey::Zone,
            None,
            Source::Value(Data::ne16(zone)),
        ))
    }

    /// `redirect to :PORT`
    pub fn redirect(self, port: u16) -> Self {
        self.push(Statement::Redirect(Redirect {
            ports: Some(port..=port),
            flags: 0,
        }))
    }

    /// `tproxy ip to :PORT` or `tproxy ip6 to :PORT`
    pub fn tproxy(self, family: TableFamily, port: u16) -> Self {
        self.push(Statement::Tproxy(Tproxy {
            family,
            addr: None,
            port: Some(port),
        }))
    }

    /// Ends the rule with a verdict.
    #[must_use]
    pub fn verdict(self, v: Verdict) -> Rule {
        self.push(Statement::Verdict(v)).rule
    }

    /// Ends the rule with `jump CHAIN`.
    #[must_use]
    pub fn jump(self, chain: &str) -> Rule {
        self.verdict(Verdict::Jump(chain.to_owned()))
    }

    /// Ends the rule without a verdict.
    #[must_use]
    pub fn build(self) -> Rule {
        self.rule
    }
}

/// First and last number of each merged range, in ascending order.
fn joined(ranges: impl IntoIterator<Item = RangeInclusive<u32>>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<_> = ranges.into_iter().map(RangeInclusive::into_inner).collect();
    ranges.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(run) if first <= run.1.saturating_add(1) => run.1 = run.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_overlap_or_touch_are_one() {
        let of = |ranges: &[(u32, u32)]| joined(ranges.iter().map(|(a, b)| *a..=*b));
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[(7, 7), (3, 5)]), [(3, 5), (7, 7)]);
        assert_eq!(of(&[(6, 6), (3, 5), (6, 6)]), [(3, 6)]);
        assert_eq!(of(&[(1, 9), (2, 3), (10, 10)]), [(1, 10)]);
        let all = [(5, u32::MAX), (u32::MAX, u32::MAX), (0, 3)];
        assert_eq!(of(&all), [(0, 3), (5, u32::MAX)]);
    }
}
