//! Random rulesets in a real namespace: what is applied equals what is read and what `nft` lists, and a second apply has nothing to do.

use weir_testing::effort;
use weir_testing::namespace_or_skip;

use crate::common::{apply, list, owned_of, read, timeless};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use weir_netfilter::nft::arbitrary;
use weir_netfilter::nft::{NftEngine, Ruleset, Snapshot};
use weir_netlink::Netns;

/// PROPTEST_CASES overrides the number of cases.
fn config(cases: u32) -> ProptestConfig {
    let cases = effort::cases(cases);
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/proptest-regressions/random.txt"
    );
    ProptestConfig {
        cases,
        max_shrink_iters: 2000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(file))),
        ..ProptestConfig::default()
    }
}

/// Returns `None` if this user may not create a namespace; the first test that needs one prints that.
fn namespace() -> Option<Netns> {
    match Netns::create() {
        Ok(ns) => Some(ns),
        Err(e) if e.is_permission() => None,
        Err(e) => panic!("{e}"),
    }
}

/// Without the remaining times of elements, which change on their own.
fn settled(mut snapshot: Snapshot) -> Ruleset {
    for t in &mut snapshot.ruleset.tables {
        for e in t.sets.iter_mut().flat_map(|s| &mut s.elements) {
            e.extra_mut().expires = None;
        }
    }
    snapshot.ruleset
}

/// Fails with the lines that differ.
fn same_text(got: &str, want: &str) -> Result<(), TestCaseError> {
    if got == want {
        return Ok(());
    }
    let only = |a: &str, b: &str, sign| -> String {
        let b: Vec<&str> = b.lines().collect();
        a.lines()
            .filter(|l| !b.contains(l))
            .map(|l| format!("{sign}{l}\n"))
            .collect()
    };
    let difference = only(want, got, "- ") + &only(got, want, "+ ");
    Err(TestCaseError::fail(format!(
        "the listings differ (- expected, + found)\n{difference}"
    )))
}

/// Fails with the lines of text or of structure that differ.
fn same(got: &Ruleset, want: &Ruleset) -> Result<(), TestCaseError> {
    same_text(&got.to_string(), &want.to_string())?;
    same_text(&format!("{got:#?}"), &format!("{want:#?}"))
}

#[test]
fn random_rulesets_need_a_namespace() {
    let _probe = namespace_or_skip!();
}

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn what_is_applied_is_read_and_listed(desired in arbitrary::ruleset()) {
        let Some(ns) = namespace() else { return Ok(()) };
        let applied = apply(&ns, &desired).map_err(|e| TestCaseError::fail(format!("{e}\n{desired}")))?;
        prop_assert_eq!(applied.ops.is_empty(), desired.tables.is_empty());
        let found = read(&ns);
        same_text(&timeless(&found.ruleset.to_string()), &timeless(&list(&ns)))?;
        same(&settled(found), &desired)?;
        prop_assert_eq!(apply(&ns, &desired).unwrap().ops, vec![]);
    }

    #[test]
    fn any_ruleset_leads_to_any_other(a in arbitrary::ruleset(), b in arbitrary::ruleset()) {
        let Some(ns) = namespace() else { return Ok(()) };
        apply(&ns, &a).unwrap();
        let owned = [owned_of(&a), owned_of(&b)].concat();
        let change = |to: &Ruleset| ns.run(|| NftEngine::open().unwrap().apply(to, &owned)).unwrap();
        change(&b).map_err(|e| TestCaseError::fail(format!("{e}\nfrom\n{a}to\n{b}")))?;
        let mut found = settled(read(&ns));
        // The kernel lists tables in the order of their creation.
        found.tables.sort_by_key(|t| b.tables.iter().position(|w| w.name == t.name));
        for t in &mut found.tables {
            let desired = &b.tables.iter().find(|w| w.name == t.name).unwrap();
            t.chains.sort_by_key(|c| desired.chains.iter().position(|w| w.name == c.name));
            t.sets.sort_by_key(|s| desired.sets.iter().position(|w| w.name == s.name));
        }
        same(&found, &b)?;
        prop_assert_eq!(change(&b).unwrap().ops, vec![]);
    }
}
