//! Rules.

use super::sets::{FOUR, MARKS, NAMES, PORTS, SIX, UIDS};
use super::statements::{last, statement};
use super::{Kind, Place, comment, option, text};
use crate::nft::model::{
    CmpOp, CtDirection, CtKey, Data, Element, ElementKey, FibResult, Hook, L4Proto, Masquerade,
    Match, MetaKey, Nat, Operand, PayloadBase, Reject, Rule, RuleBuilder, Selector, Set, SocketKey,
    Source, Statement,
};
use crate::nft::raw;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// One step of a builder, as a printable value.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Iifname(CmpOp, String),
    Oifname(CmpOp, String),
    Saddr(CmpOp, IpNet),
    Daddr(CmpOp, IpNet),
    Sport(CmpOp, RangeInclusive<u16>),
    Dport(CmpOp, RangeInclusive<u16>),
    Dports(CmpOp, Vec<u16>),
    Skuid(CmpOp, RangeInclusive<u32>),
    Skgid(CmpOp, RangeInclusive<u32>),
    State(u32),
    Any(Statement),
}

/// A rule never has both families or both protocols: no packet has both.
pub(super) fn rule(place: Place, targets: Vec<String>, sets: Vec<Set>) -> BoxedStrategy<Rule> {
    let tcp = any::<bool>();
    let v6 = any::<bool>();
    (tcp, v6)
        .prop_flat_map(move |(tcp, v6)| {
            let proto = if tcp { L4Proto::Tcp } else { L4Proto::Udp };
            let matches = proptest::collection::vec(matching(v6, place, &sets), 0..4);
            let statements = proptest::collection::vec(statement(place, &sets), 0..2);
            let last = option(last(place, proto, v6, &targets, &sets));
            (matches, statements, last, option(comment())).prop_map(
                move |(matches, statements, last, comment)| {
                    let steps = matches
                        .into_iter()
                        .chain(statements.into_iter().map(Step::Any));
                    let mut b = steps.fold(Rule::builder(), |b, s| build(b, s, proto));
                    if let Some(s) = last {
                        b = build(b, s, proto);
                    }
                    let mut rule = Rule {
                        comment,
                        ..b.build()
                    };
                    let mut bounds = 0;
                    rule.statements.retain(|s| {
                        bounds += usize::from(is_bound(s));
                        bounds < 2 || !is_bound(s)
                    });
                    rule
                },
            )
        })
        .boxed()
}

/// Whether it is an ordering comparison. A rule has at most one: two comparisons of one value are read as one range, and
/// nft 1.0.6 lists even `skuid < 1 mark > 2` as a range of the mark.
fn is_bound(s: &Statement) -> bool {
    matches!(s, Statement::Match(m) if !matches!(m.op, CmpOp::Eq | CmpOp::Neq))
}

fn build(b: RuleBuilder, s: Step, proto: L4Proto) -> RuleBuilder {
    match s {
        Step::Iifname(op, name) => b.iifname(op, &name),
        Step::Oifname(op, name) => b.oifname(op, &name),
        Step::Saddr(op, net) => b.saddr(op, net),
        Step::Daddr(op, net) => b.daddr(op, net),
        Step::Sport(op, ports) => b.sport(proto, op, ports),
        Step::Dport(op, ports) => b.dport(proto, op, ports),
        Step::Dports(op, ports) => b.dports(proto, op, &ports),
        Step::Skuid(op, ids) => b.skuid(op, ids),
        Step::Skgid(op, ids) => b.skgid(op, ids),
        Step::State(bits) => b.ct_state(bits),
        Step::Any(
            s @ (Statement::Redirect(_)
            | Statement::Tproxy(_)
            | Statement::Vmap(..)
            | Statement::Nat(Nat { ports: Some(_), .. })
            | Statement::Masquerade(Masquerade { ports: Some(_), .. })
            | Statement::Reject(Reject {
                kind: Some(raw::NFT_REJECT_TCP_RST),
                ..
            })),
        ) => b.l4proto(proto).push(s),
        Step::Any(Statement::MetaSet(key, source @ Source::Map(..))) => {
            b.l4proto(proto).push(Statement::MetaSet(key, source))
        }
        Step::Any(Statement::Match(m)) if is_port(&m.selector) => {
            b.l4proto(proto).push(Statement::Match(m))
        }
        Step::Any(s) => b.push(s),
    }
}

fn is_port(s: &Selector) -> bool {
    matches!(
        s,
        Selector::Payload {
            base: PayloadBase::Transport,
            ..
        }
    )
}

fn equal() -> BoxedStrategy<CmpOp> {
    prop_oneof![Just(CmpOp::Eq), Just(CmpOp::Neq)].boxed()
}

fn order() -> BoxedStrategy<CmpOp> {
    prop_oneof![
        Just(CmpOp::Lt),
        Just(CmpOp::Lte),
        Just(CmpOp::Gt),
        Just(CmpOp::Gte)
    ]
    .boxed()
}

fn name() -> BoxedStrategy<String> {
    prop_oneof![text("[a-z][a-z0-9.-]{0,14}"), text("[a-z][a-z0-9]{0,5}[*]")].boxed()
}

fn net(v6: bool) -> BoxedStrategy<IpNet> {
    if v6 {
        (any::<[u8; 16]>(), 0..=128u8)
            .prop_map(|(a, len)| IpNet::V6(Ipv6Net::new_assert(a.into(), len).trunc()))
            .boxed()
    } else {
        (any::<[u8; 4]>(), 0..=32u8)
            .prop_map(|(a, len)| IpNet::V4(Ipv4Net::new_assert(a.into(), len).trunc()))
            .boxed()
    }
}

pub(super) fn range<T: Copy + Ord + std::fmt::Debug + 'static>(
    s: BoxedStrategy<T>,
) -> BoxedStrategy<RangeInclusive<T>> {
    let one = s.clone().prop_map(|n| n..=n);
    prop_oneof![one, (s.clone(), s).prop_map(|(a, b)| a.min(b)..=a.max(b))].boxed()
}

fn matching(v6: bool, place: Place, sets: &[Set]) -> BoxedStrategy<Step> {
    let ports = || range(prop_oneof![any::<u16>(), Just(0), Just(65_535)].boxed());
    let ids = || range(prop_oneof![any::<u32>(), Just(0), Just(u32::MAX)].boxed());
    let mut any_of: Vec<BoxedStrategy<Step>> = vec![
        step(equal(), name(), Step::Iifname),
        step(equal(), name(), Step::Oifname),
        step(equal(), net(v6), Step::Saddr),
        step(equal(), net(v6), Step::Daddr),
        step(equal(), ports(), Step::Sport),
        step(equal(), ports(), Step::Dport),
        step(order(), any::<u16>().prop_map(|p| p..=p), Step::Dport),
        step(equal(), vec(any::<u16>(), 1..8), Step::Dports),
        step(equal(), ids(), Step::Skuid),
        step(equal(), ids(), Step::Skgid),
        step(order(), any::<u32>().prop_map(|i| i..=i), Step::Skuid),
        proptest::sample::select(vec![1u32, 2, 4, 8, 64, 6, 14])
            .prop_map(Step::State)
            .boxed(),
        value(),
        anonymous(),
        named(v6, sets),
    ];
    if let Place::Base(Kind::Filter, Hook::Prerouting) = place {
        any_of.push(local());
    }
    proptest::strategy::Union::new(any_of).boxed()
}

fn step<T: std::fmt::Debug + 'static>(
    op: BoxedStrategy<CmpOp>,
    value: impl Strategy<Value = T> + 'static,
    of: fn(CmpOp, T) -> Step,
) -> BoxedStrategy<Step> {
    (op, value).prop_map(move |(op, v)| of(op, v)).boxed()
}

fn is(selector: Selector, mask: Option<Data>, op: CmpOp, operand: Operand) -> Step {
    Step::Any(Statement::Match(Match {
        selector,
        mask,
        op,
        operand,
    }))
}

/// A mark or another value that is compared as a number.
fn value() -> BoxedStrategy<Step> {
    let mark = prop_oneof![
        Just(Selector::Meta(MetaKey::Mark)),
        Just(Selector::Ct(CtKey::Mark, None)),
    ];
    let masked = (mark.clone(), equal(), any::<u32>(), 1..u32::MAX).prop_map(|(s, op, n, mask)| {
        is(
            s,
            Some(Data::ne32(mask)),
            op,
            Operand::Value(Data::ne32(n & mask)),
        )
    });
    let whole = (mark, prop_oneof![equal(), order()], any::<u32>())
        .prop_map(|(s, op, n)| is(s, None, op, Operand::Value(Data::ne32(n))));
    let direction = equal().prop_map(|op| {
        is(
            Selector::Ct(CtKey::Direction, None),
            None,
            op,
            Operand::Value(Data::u8(1)),
        )
    });
    let port = (equal(), any::<u16>()).prop_map(|(op, p)| {
        let s = Selector::Ct(CtKey::Zone, Some(CtDirection::Original));
        is(s, None, op, Operand::Value(Data::ne16(p)))
    });
    let random = (order(), any::<u32>()).prop_map(|(op, n)| {
        is(
            Selector::Meta(MetaKey::Random),
            None,
            op,
            Operand::Value(Data::be32(n)),
        )
    });
    prop_oneof![masked, whole, direction, port, random].boxed()
}

/// Matches on the local socket or a route.
fn local() -> BoxedStrategy<Step> {
    let transparent = any::<bool>().prop_map(|b| {
        let s = Selector::Socket(SocketKey::Transparent, None);
        is(s, None, CmpOp::Eq, Operand::Value(Data::u8(u8::from(b))))
    });
    let mark = (equal(), any::<u32>()).prop_map(|(op, n)| {
        is(
            Selector::Socket(SocketKey::Mark, None),
            None,
            op,
            Operand::Value(Data::ne32(n)),
        )
    });
    let fib = (equal(), 1..9u32).prop_map(|(op, n)| {
        let s = Selector::Fib {
            flags: raw::NFTA_FIB_F_DADDR,
            result: FibResult::Type,
        };
        is(s, None, op, Operand::Value(Data::ne32(n)))
    });
    prop_oneof![transparent, mark, fib].boxed()
}

/// Anonymous sets: user ids, with and without ranges, and marks.
fn anonymous() -> BoxedStrategy<Step> {
    let ids = proptest::collection::btree_set(any::<u32>(), 1..6);
    (equal(), ids, any::<bool>(), any::<bool>())
        .prop_map(|(op, ids, ranges, mark)| {
            let key = if mark { MetaKey::Mark } else { MetaKey::Skgid };
            is(
                Selector::Meta(key),
                None,
                op,
                Operand::Anonymous(elements(&ids, ranges)),
            )
        })
        .boxed()
}

fn elements(ids: &BTreeSet<u32>, ranges: bool) -> Vec<Element> {
    let ids: Vec<u32> = ids.iter().copied().collect();
    let step = if ranges { 2 } else { 1 };
    ids.chunks(step)
        .map(|c| match c {
            [a, b] => Element::new(ElementKey::range(Data::ne32(*a), Data::ne32(*b))),
            c => Element::value(Data::ne32(c.first().copied().unwrap_or(0))),
        })
        .collect()
}

pub(super) fn port_selector() -> Selector {
    Selector::Payload {
        base: PayloadBase::Transport,
        offset: 2,
        len: 2,
    }
}

/// A lookup in one of the table's sets, if one has a matching type.
fn named(v6: bool, sets: &[Set]) -> BoxedStrategy<Step> {
    let mut any_of: Vec<BoxedStrategy<Step>> = vec![
        equal()
            .prop_map(|op| Step::Iifname(op, "lo".to_owned()))
            .boxed(),
    ];
    for s in sets {
        let selector = match s.name.as_str() {
            PORTS => port_selector(),
            MARKS => Selector::Meta(MetaKey::Mark),
            UIDS => Selector::Meta(MetaKey::Skuid),
            NAMES => Selector::Meta(MetaKey::Oifname),
            // These require a match on the family before them, which only the builder writes.
            FOUR if !v6 => Selector::Payload {
                base: PayloadBase::Network,
                offset: 16,
                len: 4,
            },
            SIX if v6 => Selector::Payload {
                base: PayloadBase::Network,
                offset: 24,
                len: 16,
            },
            _ => continue,
        };
        let turned = s.interval && crate::nft::context::host_width(&selector).is_some();
        let operand = Operand::Named {
            set: s.name.clone(),
            turned,
        };
        any_of.push(
            equal()
                .prop_map(move |op| is(selector.clone(), None, op, operand.clone()))
                .boxed(),
        );
    }
    proptest::strategy::Union::new(any_of).boxed()
}
