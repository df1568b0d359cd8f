//! The real legacy tools as oracle, both ways: we read what they wrote, they list what we wrote.
// matrix: variants no-nftables

use crate::common::assert_text;
use crate::xtables::*;
use weir_netfilter::xtables::{Ownership, XtFamily};
use weir_netlink::Netns;

fn namespace_with_sets() -> Option<Netns> {
    let ns = namespace()?;
    make_sets(&ns);
    Some(ns)
}

fn both_ways(family: XtFamily, text: &str) {
    let Some(theirs) = namespace_with_sets() else {
        return;
    };
    load(&theirs, family, text, &[]);
    let listing = save(&theirs, family);
    assert_text(&ours(&theirs, family), &listing);
    let shown = ours(&theirs, family);
    assert!(
        !shown.contains("revision") && !shown.contains("[header"),
        "weir cannot decode one of these"
    );

    // The same input to our parser.
    let restored = namespace_with_sets().unwrap();
    restore(&restored, family, text, false);
    assert_text(&save(&restored, family), &listing);
    // And the tool's listing; what is kept is added to.
    let again = namespace_with_sets().unwrap();
    restore(&again, family, &listing, true);
    assert_text(&save(&again, family), &listing);

    let applied = namespace_with_sets().unwrap();
    let desired = read(&theirs).ruleset;
    let first = engine(&applied, |e| e.apply(&desired, &Ownership::default())).unwrap();
    assert!(first.replaced > 0);
    assert_text(&save(&applied, family), &listing);
    let second = engine(&applied, |e| e.apply(&desired, &Ownership::default())).unwrap();
    assert_eq!((second.ops, second.replaced), (vec![], 0));
}

#[test]
fn every_match_and_target_of_ipv4() {
    both_ways(XtFamily::Ip, include_str!("xtables/rules-ip.txt"));
}

#[test]
fn every_match_and_target_of_ipv6() {
    both_ways(XtFamily::Ip6, include_str!("xtables/rules-ip6.txt"));
}

/// They are kept beside ours, and restored after a mishap.
#[test]
fn the_rules_of_docker() {
    both_ways(XtFamily::Ip, include_str!("xtables/docker.txt"));
}

#[test]
fn the_rules_of_calico() {
    both_ways(XtFamily::Ip, include_str!("xtables/calico.txt"));
}
