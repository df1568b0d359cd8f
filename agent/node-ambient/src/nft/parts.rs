//! Parts of rules that more than one table uses.

use super::SET;
use crate::node::Family;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_netfilter::nft::{
    CmpOp, CtKey, Data, DataType, Element, ElementKey, Extra, L4Proto, Match, MetaKey, Operand,
    PayloadBase, Rule, RuleBuilder, Selector, Set, Source, Statement, TableFamily, Verdict, raw,
};

/// `linux/tcp.h`: flags of a segment.
pub(crate) const SYN: u8 = 2;
/// See [`SYN`].
pub(crate) const ACK: u8 = 16;

/// Returns the name of the set for a family.
pub(crate) fn set_name(family: Family) -> String {
    format!("{SET}{}", if family.is_v6 { "-v6" } else { "" })
}

pub(crate) const MARK: Selector = Selector::Meta(MetaKey::Mark);
pub(crate) const CT_MARK: Selector = Selector::Ct(CtKey::Mark, None);
pub(crate) const CT_STATUS: Selector = Selector::Ct(CtKey::Status, None);
/// `linux/netfilter/nf_conntrack_common.h`: the destination is translated.
pub(crate) const IPS_DST_NAT: u32 = 1 << 5;

pub(crate) fn rule() -> RuleBuilder {
    Rule::builder()
}

/// `SELECTOR OP OPERAND`
pub(crate) fn matching(
    rule: RuleBuilder,
    selector: Selector,
    op: CmpOp,
    operand: Operand,
) -> RuleBuilder {
    rule.push(Statement::Match(Match {
        selector,
        mask: None,
        op,
        operand,
    }))
}

/// `SELECTOR & MASK == VALUE`
pub(crate) fn masked(rule: RuleBuilder, selector: Selector, value: u32, mask: u32) -> RuleBuilder {
    rule.push(Statement::Match(Match {
        selector,
        mask: Some(Data::ne32(mask)),
        op: CmpOp::Eq,
        operand: Operand::Value(Data::ne32(value)),
    }))
}

pub(crate) fn has(rule: RuleBuilder, selector: Selector, bits: u32) -> RuleBuilder {
    masked(rule, selector, bits, bits)
}

/// `SELECTOR & BITS != BITS`
pub(crate) fn lacks(rule: RuleBuilder, selector: Selector, bits: u32) -> RuleBuilder {
    rule.push(Statement::Match(Match {
        selector,
        mask: Some(Data::ne32(bits)),
        op: CmpOp::Neq,
        operand: Operand::Value(Data::ne32(bits)),
    }))
}

/// `(selector & !mask) ^ value`: the other bits are kept.
pub(crate) fn keeping(selector: Selector, value: u32, mask: u32) -> Source {
    Source::Bitwise {
        selector,
        mask: Data::ne32(!mask),
        xor: Data::ne32(value),
    }
}

pub(crate) fn mark(rule: RuleBuilder, bits: u32) -> RuleBuilder {
    rule.counter()
        .push(Statement::MetaSet(MetaKey::Mark, keeping(MARK, bits, bits)))
}

/// Clears the bits of the mark.
pub(crate) fn clear(rule: RuleBuilder, bits: u32) -> RuleBuilder {
    let source = keeping(MARK, 0, bits);
    rule.counter()
        .push(Statement::MetaSet(MetaKey::Mark, source))
}

pub(crate) fn remember(rule: RuleBuilder, bits: u32) -> RuleBuilder {
    rule.push(Statement::CtSet(
        CtKey::Mark,
        None,
        keeping(CT_MARK, bits, bits),
    ))
}

pub(crate) fn stop(rule: RuleBuilder) -> Rule {
    rule.verdict(Verdict::Return)
}

pub(crate) fn of_family(rule: RuleBuilder, family: Family) -> RuleBuilder {
    let nfproto = match family.is_v6 {
        true => raw::NFPROTO_IPV6,
        false => raw::NFPROTO_IPV4,
    };
    let nfproto = Operand::Value(Data::u8(nfproto));
    matching(rule, Selector::Meta(MetaKey::Nfproto), CmpOp::Eq, nfproto)
}

/// `meta l4proto != tcp`
pub(crate) fn not_tcp(rule: RuleBuilder) -> RuleBuilder {
    let tcp = Operand::Value(Data::u8(L4Proto::Tcp.number()));
    matching(rule, Selector::Meta(MetaKey::L4proto), CmpOp::Neq, tcp)
}

/// `tcp flags & (syn | ack) != syn`: the segment does not open a connection.
pub(crate) fn not_first(rule: RuleBuilder) -> RuleBuilder {
    rule.l4proto(L4Proto::Tcp).push(Statement::Match(Match {
        selector: Selector::Payload {
            base: PayloadBase::Transport,
            offset: 13,
            len: 1,
        },
        mask: Some(Data::u8(SYN | ACK)),
        op: CmpOp::Neq,
        operand: Operand::Value(Data::u8(SYN)),
    }))
}

/// Selects the source address if `is_source`, otherwise the destination address.
pub(crate) fn address(family: Family, is_source: bool) -> Selector {
    let (offset, len) = match (family.is_v6, is_source) {
        (false, true) => (12, 4),
        (false, false) => (16, 4),
        (true, true) => (8, 16),
        (true, false) => (24, 16),
    };
    Selector::Payload {
        base: PayloadBase::Network,
        offset,
        len,
    }
}

/// Matches if the source (`is_source`) or the destination is an address of an enrolled pod.
pub(crate) fn of_pods(rule: RuleBuilder, family: Family, is_source: bool) -> RuleBuilder {
    let (rule, pods) = (of_family(rule, family), named(&set_name(family)));
    matching(rule, address(family, is_source), CmpOp::Eq, pods)
}

/// Matches if the source (`is_source`) or the destination is not an address of an enrolled pod.
pub(crate) fn not_of_pods(rule: RuleBuilder, family: Family, is_source: bool) -> RuleBuilder {
    let (rule, pods) = (of_family(rule, family), named(&set_name(family)));
    matching(rule, address(family, is_source), CmpOp::Neq, pods)
}

/// Returns a set of pods' addresses, each with the UID of its pod.
pub(crate) fn set(name: &str, family: Family, pods: BTreeMap<IpAddr, &str>) -> Set {
    let (key_type, key_len) = match family.is_v6 {
        true => (DataType::IPV6_ADDR, 16),
        false => (DataType::IPV4_ADDR, 4),
    };
    let element = |(address, uid): (IpAddr, &str)| {
        Element::new(ElementKey::Value(Data::addr(address))).with(Extra {
            comment: Some(uid.to_owned()),
            ..Extra::default()
        })
    };
    Set {
        elements: pods.into_iter().map(element).collect(),
        ..Set::new(name, key_type, key_len)
    }
}

/// Returns a set of link names.
pub(crate) fn links<'a>(name: &str, links: impl IntoIterator<Item = &'a str>) -> Set {
    let links: BTreeSet<&str> = links.into_iter().collect();
    let elements = links.into_iter().map(|l| Element::value(Data::ifname(l)));
    Set {
        elements: elements.collect(),
        ..Set::new(name, DataType::IFNAME, 16)
    }
}

/// `iifname @SET` if `is_source`, otherwise `oifname @SET`
pub(crate) fn at_links(rule: RuleBuilder, set: &str, is_source: bool) -> RuleBuilder {
    let key = match is_source {
        true => MetaKey::Iifname,
        false => MetaKey::Oifname,
    };
    matching(rule, Selector::Meta(key), CmpOp::Eq, named(set))
}

pub(crate) fn named(set: &str) -> Operand {
    Operand::Named {
        set: set.to_owned(),
        turned: false,
    }
}

pub(crate) fn nat_of(family: Family) -> TableFamily {
    match family.is_v6 {
        true => TableFamily::Ip6,
        false => TableFamily::Ip,
    }
}
