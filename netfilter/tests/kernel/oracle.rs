//! The real `nft` as oracle, both ways: we read what it wrote, it lists what we wrote.
// matrix: smoke; variants no-xtables no-ipset 6.12-rt

use crate::common::both_ways;

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
