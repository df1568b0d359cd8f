//! The real `nft` as oracle in both directions: this crate reads what nft wrote, and nft lists what this crate wrote.
// matrix: smoke; variants no-xtables no-ipset 6.12-rt

use crate::common::{apply, both_ways, list};
use weir_netfilter::nft::{Chain, Limit, LimitUnit, Rule, Ruleset, Statement, Table, TableFamily};
use weir_testing::namespace_or_skip;

#[test]
fn matches() {
    both_ways(include_str!("listing/matches.nft"));
}

#[test]
fn statements() {
    both_ways(include_str!("listing/statements.nft"));
}

#[test]
fn sets() {
    both_ways(include_str!("listing/sets.nft"));
}

#[test]
fn anonymous_sets() {
    both_ways(include_str!("listing/anonymous.nft"));
}

/// The kernel lists its default burst, and the rule is in sync nevertheless.
#[test]
fn a_limit_without_a_burst() {
    let ns = namespace_or_skip!();
    let limit = |unit| {
        let limit = Limit {
            rate: 10,
            per: 1,
            burst: 0,
            unit,
            over: false,
        };
        Rule::builder().push(Statement::Limit(limit)).build()
    };
    let mut table = Table::new(TableFamily::Inet, "t");
    table.chains.push(Chain {
        rules: vec![limit(LimitUnit::Packets), limit(LimitUnit::Bytes)],
        ..Chain::regular("c")
    });
    let desired = Ruleset {
        tables: vec![table],
    };
    apply(&ns, &desired).unwrap();
    assert_eq!(apply(&ns, &desired).unwrap().ops, vec![]);
    let text = list(&ns);
    for rule in ["limit rate 10/second\n", "limit rate 10 bytes/second\n"] {
        assert!(text.contains(rule), "{text}");
    }
}
