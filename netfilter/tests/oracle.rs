//! The real `nft` as oracle, both ways: we read what it wrote, it lists what we wrote.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{apply, assert_text, list, load, read, timeless};

fn both_ways(text: &str) {
    let theirs = namespace_or_skip!();
    load(&theirs, text);
    let listing = list(&theirs);
    let snapshot = read(&theirs);
    assert_text(&timeless(&snapshot.ruleset.to_string()), &timeless(&listing));
    let ours = namespace_or_skip!();
    let applied = apply(&ours, &snapshot.ruleset).unwrap();
    assert!(!applied.ops.is_empty());
    assert_text(&timeless(&list(&ours)), &timeless(&listing));
    // Nothing is left to do.
    assert_eq!(apply(&ours, &snapshot.ruleset).unwrap().ops, vec![]);
}

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
