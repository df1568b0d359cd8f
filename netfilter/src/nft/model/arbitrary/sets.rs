//! Sets and maps.

use super::{comment, option, text};
use crate::nft::model::{Data, DataType, Element, ElementKey, Set, SetData, Verdict};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

/// The names that rules refer to, each with its type here.
pub(super) const PORTS: &str = "ports";
pub(super) const FOUR: &str = "four";
pub(super) const SIX: &str = "six";
pub(super) const MARKS: &str = "marks";
pub(super) const UIDS: &str = "uids";
pub(super) const NAMES: &str = "names";
pub(super) const VERDICTS: &str = "verdicts";
pub(super) const MARK_OF: &str = "mark-of";

/// A random selection of these sets.
pub(super) fn sets() -> BoxedStrategy<Vec<Set>> {
    let all = vec![
        intervals(PORTS, DataType::INET_SERVICE, 2),
        intervals(FOUR, DataType::IPV4_ADDR, 4),
        intervals(SIX, DataType::IPV6_ADDR, 16),
        intervals(MARKS, DataType::MARK, 4),
        intervals(UIDS, DataType::UID, 4),
        names(),
        map(VERDICTS, SetData::Verdict),
        map(MARK_OF, SetData::Value(DataType::MARK, 4)),
    ];
    (all, proptest::collection::vec(any::<bool>(), 8))
        .prop_map(|(sets, keep)| {
            sets.into_iter()
                .zip(keep)
                .filter_map(|(s, keep)| keep.then_some(s))
                .collect()
        })
        .boxed()
}

/// The sets without verdict maps.
pub(super) fn without_verdicts(sets: Vec<Set>) -> Vec<Set> {
    sets.into_iter()
        .filter(|s| s.data != SetData::Verdict)
        .collect()
}

/// Numbers of which many are adjacent or at the limits.
fn edge(bits: u32) -> BoxedStrategy<u128> {
    let max = u128::MAX >> (128 - bits);
    prop_oneof![
        3 => 0..=max.min(20),
        2 => (max - max.min(5))..=max,
        2 => Just(max / 2),
        3 => 0..=max,
    ]
    .boxed()
}

/// The key in network order, the byte order of interval sets.
fn bytes(n: u128, len: usize) -> Vec<u8> {
    n.to_be_bytes().into_iter().skip(16 - len).collect()
}

/// Single values and, if the set supports them, ranges; they touch but do not overlap.
fn intervals(name: &'static str, t: DataType, len: u32) -> BoxedStrategy<Set> {
    let points = proptest::collection::btree_set(edge(len * 8), 0..10);
    let seconds = option((1..1_000_000u64).boxed());
    let extras = (
        option(comment()),
        any::<bool>(),
        seconds,
        proptest::collection::vec(extra(), 10),
    );
    (points, any::<bool>(), extras)
        .prop_map(
            move |(points, interval, (comment, auto_merge, timeout, extras))| {
                let mut set = Set::new(name, t, len);
                set.interval = interval;
                set.auto_merge = interval && auto_merge;
                set.comment = comment;
                set.timeout = timeout.map(Duration::from_secs);
                set.timeouts = timeout.is_some();
                let host_order = t.is_host_order() && !interval;
                set.elements = keys(&points, interval, len as usize)
                    .into_iter()
                    .zip(extras)
                    .map(|(key, (comment, seconds))| {
                        let mut e = Element::new(key);
                        if host_order {
                            crate::nft::set::turn(&mut e);
                        }
                        e.extra_mut().comment = comment;
                        // The kernel lists the timeout of the set for an element without its own timeout.
                        let own = seconds.filter(|_| set.timeouts).map(Duration::from_secs);
                        e.extra_mut().timeout = own.filter(|t| Some(*t) != set.timeout);
                        e
                    })
                    .collect();
                set
            },
        )
        .boxed()
}

fn extra() -> BoxedStrategy<(Option<String>, Option<u64>)> {
    (option(comment()), option((1..1_000_000u64).boxed())).boxed()
}

fn keys(points: &BTreeSet<u128>, interval: bool, len: usize) -> Vec<ElementKey> {
    let points: Vec<u128> = points.iter().copied().collect();
    if !interval {
        return points
            .iter()
            .map(|n| ElementKey::Value(Data::from(bytes(*n, len))))
            .collect();
    }
    points
        .chunks(2)
        .map(|pair| match pair {
            [a, b] => ElementKey::range(bytes(*a, len).into(), bytes(*b, len).into()),
            pair => {
                let n = pair.first().copied().unwrap_or(0);
                ElementKey::Value(Data::from(bytes(n, len)))
            }
        })
        .collect()
}

fn names() -> BoxedStrategy<Set> {
    proptest::collection::btree_set(text("[a-z][a-z0-9.-]{0,14}"), 0..4)
        .prop_map(|names| {
            let mut set = Set::new(NAMES, DataType::IFNAME, 16);
            set.elements = names
                .iter()
                .map(|n| Element::value(Data::ifname(n)))
                .collect();
            // nft sorts names as numbers in host order.
            set.elements
                .sort_by_key(|e| e.key.first().0.iter().rev().copied().collect::<Vec<_>>());
            set
        })
        .boxed()
}

fn map(name: &'static str, data: SetData) -> BoxedStrategy<Set> {
    let keys = proptest::collection::btree_set(any::<u16>(), 0..4);
    let verdicts = proptest::collection::vec(verdict(), 4);
    let values = proptest::collection::vec(any::<u32>(), 4);
    (keys, verdicts, values)
        .prop_map(move |(keys, verdicts, values)| {
            let mut set = Set::new(name, DataType::INET_SERVICE, 2);
            let given = verdicts.into_iter().zip(values);
            set.elements = keys
                .into_iter()
                .zip(given)
                .map(|(key, (verdict, value))| {
                    let mut e = Element::value(Data::be16(key));
                    match data {
                        SetData::Verdict => e.extra_mut().verdict = Some(verdict),
                        _ => e.extra_mut().value = Some(Data::ne32(value)),
                    }
                    e
                })
                .collect();
            set.data = data.clone();
            set
        })
        .boxed()
}

fn verdict() -> BoxedStrategy<Verdict> {
    prop_oneof![
        Just(Verdict::Accept),
        Just(Verdict::Drop),
        Just(Verdict::Return),
        Just(Verdict::Continue),
        Just(Verdict::Jump("regular0".to_owned())),
        Just(Verdict::Goto("regular0".to_owned())),
    ]
    .boxed()
}
