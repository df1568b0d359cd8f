//! Property tests that need no kernel: conversions between values, expressions and bytes lose nothing, and no bytes cause a panic.

use super::context::Context;
use super::engine::plan;
use super::expr::{Expr, ExprElem};
use super::linearize;
use super::model::{Element, ElementKey, Ruleset, Statement, TableFamily, arbitrary};
use super::set;
use super::wire::{
    ChainAttrs, ElemAttrs, ElemListAttrs, GenAttrs, HookAttrs, RuleAttrs, SetAttrs, SetDescAttrs,
    TableAttrs,
};
use super::{Data, Snapshot, delinearize};
use proptest::prelude::*;
use std::fmt::Debug;
use weir_netlink::attr::{AttrSet, Target, Writer};

fn encoded(set: &impl AttrSet) -> Vec<u8> {
    let mut w = Writer::new();
    set.encode(&mut w);
    w.finish().unwrap()
}

/// Checks that `decode(encode(x)) == x`, and that encoding again gives the same bytes.
fn survives<A: AttrSet + PartialEq + Debug>(set: &A) -> Result<(), TestCaseError> {
    let bytes = encoded(set);
    let back = A::decode(&bytes).map_err(|e| TestCaseError::fail(e.to_string()))?;
    prop_assert_eq!(&back, set);
    prop_assert_eq!(encoded(&back), bytes);
    Ok(())
}

macro_rules! round_trips {
    ($($test:ident: $set:ty,)*) => {
        fn listed(attrs: &[ElemAttrs], interval: bool, host_order: bool) -> Vec<Element> {
    let mut listed = set::Listed::default();
    listed.add(attrs);
    listed.finish(interval, host_order, super::DataType::INTEGER).0
}

proptest! {$(
            #[test]
            fn $test(set in <$set>::arbitrary()) {
                survives(&set)?;
            }
        )*}
    };
}

round_trips! {
    generations: GenAttrs,
    tables: TableAttrs,
    chains: ChainAttrs,
    hooks: HookAttrs,
    rules: RuleAttrs,
    sets: SetAttrs,
    set_descriptions: SetDescAttrs,
    element_lists: ElemListAttrs,
    expressions: ExprElem,
}

/// The expressions of generated rules, some of them removed, duplicated, exchanged or replaced with arbitrary expressions. They
/// are similar enough to valid rules to reach deep into the decoder.
fn nonsense() -> BoxedStrategy<Vec<Expr>> {
    let linear = arbitrary::table("x").prop_map(|t| {
        let rules = t.chains.iter().flat_map(|c| &c.rules);
        rules
            .flat_map(|r| linearize::rule(r, Context::of(TableFamily::Inet)).exprs)
            .collect::<Vec<_>>()
    });
    let changes = (
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        Expr::arbitrary(),
        0..5,
    );
    (linear, proptest::collection::vec(changes, 0..8))
        .prop_map(|(mut exprs, changes)| {
            for (a, b, e, what) in changes {
                if exprs.is_empty() {
                    exprs.push(e);
                    continue;
                }
                let (a, b) = (a.index(exprs.len()), b.index(exprs.len()));
                match what {
                    0 => exprs.swap(a, b),
                    1 => exprs.insert(a, exprs[b].clone()),
                    2 => exprs[a] = e,
                    3 => exprs.insert(a, e),
                    _ => drop(exprs.remove(a)),
                }
            }
            exprs
        })
        .boxed()
}

/// Expressions in canonical form; an expression that refers to an anonymous set has no set name.
fn comparable(exprs: Vec<Expr>, anonymous: bool) -> Vec<Expr> {
    let nameless = |mut e: Expr| {
        Expr::normalize(&mut e);
        if let Some((name, id)) = e.set().filter(|_| anonymous) {
            (*name, *id) = (None, None);
        }
        e
    };
    exprs.into_iter().map(nameless).collect()
}

/// Elements as a listing may contain them: sorted and disjoint.
fn elements() -> BoxedStrategy<Vec<Element>> {
    (
        proptest::collection::btree_set(any::<u16>(), 1..8),
        any::<bool>(),
    )
        .prop_map(|(points, ranges)| {
            let points: Vec<u16> = points.into_iter().collect();
            points
                .chunks(if ranges { 2 } else { 1 })
                .map(|c| match c {
                    [a, b] => Element::new(ElementKey::range(Data::be16(*a), Data::be16(*b))),
                    c => Element::value(Data::be16(c[0])),
                })
                .collect()
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Decoding expressions and linearizing the result gives all expressions again.
    #[test]
    fn reading_loses_no_expression(
        exprs in nonsense(),
        family in proptest::sample::select(vec![1u8, 2, 3, 5, 7, 10, 99]),
        known in proptest::option::of(elements()),
    ) {
        let context = Context::of(TableFamily::from(family));
        // In every second case all sets are anonymous.
        let known = known.map(|elements| {
            let port = super::Selector::Payload { base: super::PayloadBase::Transport, offset: 2, len: 2 };
            set::of_rule(&port, &elements, context)
        });
        let sets = |_: &str| known.as_ref();
        let rule = delinearize::rule(exprs.clone(), context, &sets);
        let linear = linearize::rule(&rule, context);
        let anonymous = known.is_some();
        let (got, want) = (comparable(linear.exprs, anonymous), comparable(exprs, anonymous));
        prop_assert_eq!(got.len(), want.len());
        for (got, want) in got.into_iter().zip(want) {
            prop_assert_eq!(got, want);
        }
        // Any result can be printed.
        let _ = rule.text(TableFamily::from(family));
    }

    /// Generated rules have no opaque statement when they are decoded.
    #[test]
    fn generated_rules_are_understood(table in arbitrary::table("x")) {
        for rule in table.chains.iter().flat_map(|c| &c.rules) {
            let read = super::engine::canonical(rule, TableFamily::Inet);
            prop_assert!(!read.statements.iter().any(|s| matches!(s, Statement::Opaque(_))), "{}", read);
            prop_assert_eq!(&read, rule);
        }
    }

    /// Elements survive encoding and decoding.
    #[test]
    fn elements_survive(elements in elements()) {
        for interval in [true, set::is_interval(&elements)] {
            let attrs = set::to_elem_attrs(&elements, set::Ranges::of(interval, super::DataType::INTEGER));
            prop_assert_eq!(listed(&attrs, interval, false), elements.clone());
        }
    }

    /// A plan for any two rulesets can be printed and encoded.
    #[test]
    fn every_plan_is_printed_and_written(a in arbitrary::ruleset(), b in arbitrary::ruleset()) {
        let owned: Vec<_> =
            a.tables.iter().chain(&b.tables).map(|t| (t.family, t.name.clone())).collect();
        let transaction = plan(&b, &snapshot(a), &owned);
        for op in &transaction.ops {
            prop_assert!(!op.to_string().contains('\n'), "{}", op);
        }
        prop_assert!(transaction.to_bytes().is_ok());
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..400) {
        let _ = RuleAttrs::path(&bytes, Target::byte(at));
        if let Ok(rule) = RuleAttrs::decode(&bytes) {
            let exprs: Vec<Expr> =
                rule.expressions.unwrap_or_default().into_iter().map(|e| e.0).collect();
            let _ = delinearize::rule(exprs.clone(), Context::of(TableFamily::Inet), &|_| None).to_string();
        }
        if let Ok(attrs) = SetAttrs::decode(&bytes) {
            let _ = set::is_host_order_key(&attrs);
            let _ = super::display::set_text(&super::Set::from_attrs(&attrs));
        }
        if let Ok(list) = ElemListAttrs::decode(&bytes) {
            for interval in [true, false] {
                listed(list.elements.as_deref().unwrap_or_default(), interval, true);
            }
        }
    }
}

fn snapshot(ruleset: Ruleset) -> Snapshot {
    Snapshot::with_numbered_rules(ruleset)
}
