//! Every revision of every match and target: encoding and decoding lose nothing.

use super::*;
use crate::xtables::sets::Interned;
use crate::xtables::structs::{written, zeroed};
use crate::xtables::{Match, Script, Snapshot, Target, plan_restore};
use std::collections::BTreeSet;

const TEXTS: [(XtFamily, &str); 2] = [
    (
        XtFamily::Ip,
        include_str!("../../../tests/kernel/xtables/rules-ip.txt"),
    ),
    (
        XtFamily::Ip6,
        include_str!("../../../tests/kernel/xtables/rules-ip6.txt"),
    ),
];

/// The matches and targets of the texts that the oracle tests use.
fn values(family: XtFamily, text: &str) -> (Vec<Match>, Vec<Target>) {
    let script = Script::parse(family, text).unwrap();
    let tables = plan_restore(&script, &Snapshot::default(), false)
        .unwrap()
        .tables()
        .tables;
    let rules = || tables.iter().flat_map(|t| &t.chains).flat_map(|c| &c.rules);
    let matches = rules().flat_map(|r| r.matches.clone()).collect();
    (matches, rules().filter_map(|r| r.target.clone()).collect())
}

/// Encodes each value in each revision that can represent it, decodes it again, and records the revision.
fn round_trips<V: PartialEq + fmt::Debug>(
    kinds: &[&Kind<V>],
    values: &[V],
    family: XtFamily,
    seen: &mut BTreeSet<String>,
) -> BTreeSet<String> {
    let sets = Interned::default();
    let cx = Context {
        family,
        sets: &sets,
        revisions: &All,
    };
    let mut all = BTreeSet::new();
    for kind in kinds {
        for form in (kind.forms)(family) {
            let label = format!("{family} {} {}", form.name, form.revision);
            all.insert(label.clone());
            for value in values {
                let Some(data) = (kind.encode)(value, *form, &cx).unwrap() else {
                    continue;
                };
                seen.insert(label.clone());
                let read = decode(kinds, form.name, form.revision, &data, &cx);
                assert_eq!(read.as_ref(), Some(value), "{form:?}");
                // No shorter structure is accepted.
                for len in 0..data.len() {
                    let cut = data.get(..len).unwrap();
                    assert_eq!(decode(kinds, form.name, form.revision, cut, &cx), None);
                }
            }
        }
    }
    all
}

#[test]
fn every_revision_comes_back() {
    let (mut seen, mut all) = (BTreeSet::new(), BTreeSet::new());
    for (family, text) in TEXTS {
        let (matches, targets) = values(family, text);
        all.extend(round_trips(matches::KINDS, &matches, family, &mut seen));
        all.extend(round_trips(targets::KINDS, &targets, family, &mut seen));
    }
    let missing: Vec<_> = all.difference(&seen).collect();
    assert!(missing.is_empty(), "no text has {missing:?}");
    assert!(all.len() > 55, "{all:?}");
}

/// iptables prints only the names it knows: the text would restore another rule.
#[test]
fn a_bit_without_a_name_is_not_lost() {
    let sets = Interned::default();
    let cx = Context {
        family: XtFamily::Ip,
        sets: &sets,
        revisions: &All,
    };
    let target = |ct_events, exp_events| {
        let data = written(&structs::XtCtTargetInfoV1 {
            ct_events,
            exp_events,
            ..zeroed()
        });
        read_target("CT", 2, &data, &cx)
    };
    assert_eq!(
        target(3, 1).to_string(),
        " -j CT --ctevents new,related --expevents new"
    );
    for unnamed in [target(1 << 11, 0), target(0, 2)] {
        assert!(matches!(unnamed, Target::Unknown(_)), "{unnamed}");
    }
}
