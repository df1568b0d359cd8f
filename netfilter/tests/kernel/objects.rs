//! Objects that weir does not create but lists: stateful objects, sets declared with `typeof`, concatenations, elements with more than a
//! key.
//!
//! The real `nft` writes them, and its listing is the oracle.

use weir_testing::lacks;
use weir_testing::namespace_or_skip;

use crate::common::{apply, assert_text, list, load, read, timeless, tool};

/// All of it is listed in nft's notation.
#[test]
fn what_is_not_made_here_is_listed_as_nft_lists_it() {
    let ns = namespace_or_skip!();
    load(&ns, include_str!("listing/objects.nft"));
    assert_text(&read(&ns).ruleset.to_string(), &list(&ns));
}

/// Statements of an element follow its key, and the object that it refers to comes last: `nft` loads this listing again.
#[test]
fn elements_with_statements_and_objects() {
    let ns = namespace_or_skip!();
    load(
        &ns,
        "table inet t { counter c { }
        map to { type ipv4_addr : counter; elements = { 1.2.3.4 comment \"x\" : \"c\" }; }
        set one { type ipv4_addr; counter; timeout 1h
            elements = { 1.2.3.4 counter packets 5 bytes 6 timeout 30m comment \"x\" }; }
        set ranges { type ipv4_addr; flags interval; auto-merge; counter; timeout 1h; }
        map to-verdict { type ipv4_addr : verdict; counter
            elements = { 1.2.3.4 counter packets 1 bytes 2 comment \"y\" : accept }; }
        map to-mark { type ipv4_addr : mark; counter
            elements = { 1.2.3.4 counter packets 1 bytes 2 : 0x00000005 }; }\n}\n",
    );
    let two = "table inet t { set two { type ipv4_addr; counter limit rate 5/second
            elements = { 1.2.3.4 counter packets 5 bytes 6 limit rate 5/second comment \"x\" }; }\n}\n";
    // The rest is compared nevertheless.
    if let Err(e) = tool(&ns, "nft", &["-f", "-"], two) {
        lacks::skip("set expressions", "5.11", e);
    }
    let listing = timeless(&read(&ns).ruleset.to_string());
    assert_text(&listing, &timeless(&list(&ns)));
    let again = namespace_or_skip!();
    load(&again, &listing);
    assert_text(&timeless(&list(&again)), &listing);
}

/// Objects of conntrack, and sets that belong to rules.
#[test]
fn objects_and_sets_of_rules_are_listed_as_nft_lists_them() {
    let ns = namespace_or_skip!();
    let objects = [
        ("ct helper", "h", "type \"ftp\" protocol tcp;"),
        (
            "ct timeout",
            "o",
            "protocol tcp; policy = { established : 130, close : 13 }\n",
        ),
        (
            "ct timeout",
            "p",
            "protocol udp; policy = { replied : 7 }\n",
        ),
        (
            "ct expectation",
            "e",
            "protocol udp; dport 9; timeout 2m; size 8; l3proto ip;",
        ),
        ("synproxy", "s", "mss 1460\nwscale 9\ntimestamp sack-perm\n"),
    ];
    load(&ns, "add table inet t");
    for (kind, name, body) in objects {
        load(
            &ns,
            &format!("table inet t {{ {kind} {name} {{ {body} }}\n}}\n"),
        );
    }
    load(
        &ns,
        "table inet t { set grown { type ipv4_addr; flags dynamic; }
         chain x { ip saddr . tcp dport { 1.1.1.1 . 5, 2.2.2.2 . 6 } drop
            add @grown { ip saddr }\n}\n}\n",
    );
    let others = "table inet t { map others { type ipv4_addr : verdict
            elements = { 1.1.1.1 : drop, * : accept }\n}\n}\n";
    let has_catch_all = match tool(&ns, "nft", &["-f", "-"], others) {
        Ok(_) => true,
        Err(e) => {
            lacks::skip("set catch-all", "5.13", e);
            false
        }
    };
    let text = read(&ns).ruleset.to_string();
    assert_text(&text, &list(&ns));
    assert_eq!(text.contains("* : accept"), has_catch_all, "{text}");
    for part in [
        "\t\tip saddr . tcp dport { 1.1.1.1 . 5, 2.2.2.2 . 6 } drop\n",
        "\t\tadd @grown { ip saddr }\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Only a full listing shows such objects: a desired state does not contain them, and they are never deleted.
#[test]
fn objects_in_a_table_of_ours_stay() {
    use weir_netfilter::nft::{NftEngine, Ruleset, Table, TableFamily};
    let ns = namespace_or_skip!();
    let owned = [(TableFamily::Inet, "t".to_owned())];
    let desired = Ruleset {
        tables: vec![Table::new(TableFamily::Inet, "t")],
    };
    let apply = || {
        ns.run(|| NftEngine::open().unwrap().apply(&desired, &owned))
            .unwrap()
    };
    apply().unwrap();
    load(&ns, "add counter inet t c");
    assert_eq!(apply().unwrap().ops, vec![]);
    let found = read(&ns).ruleset;
    let names: Vec<&str> = found.tables[0]
        .objects
        .iter()
        .map(|o| o.name.as_str())
        .collect();
    assert_eq!(names, ["c"]);
}

/// A ruleset that was read is written with its objects, the statements of its sets and its object maps. Their counters make no difference.
// matrix: host: several objects and set statements are younger than the oldest kernels
#[test]
fn objects_and_statements_are_written_as_they_were_read() {
    crate::common::both_ways(include_str!("listing/stateful.nft"));
}

// matrix: host: needs nf_flow_table, which is not in every kernel
#[test]
fn flowtables_are_written_as_they_were_read() {
    let text = "table inet t {
            flowtable f { hook ingress priority 0; devices = { lo }; }
            chain c {
                type filter hook forward priority 0
                tcp dport 80 flow add @f
            }\n}\n";
    if let Err(e) = tool(&namespace_or_skip!(), "nft", &["-f", "-"], text) {
        lacks::skip("expression flow_offload", "4.16", e);
        return;
    }
    crate::common::both_ways(text);
}

/// The properties of a desired object count, and its counters do not.
#[test]
fn an_object_with_other_properties_is_replaced() {
    use weir_netfilter::nft::{NftOp, Object, ObjectKind};
    let ns = namespace_or_skip!();
    let text = |rate| {
        format!(
            "table inet t {{ counter c {{ }}\nlimit l {{ rate {rate}/second\n}}\nchain x {{ counter name \"c\"\n}}\n}}\n"
        )
    };
    load(&ns, &text(5));
    let mut desired = read(&ns).ruleset;
    load(&ns, "delete table inet t");
    load(&ns, &text(6));
    let replaced = |ops: &[NftOp]| match ops.first() {
        Some(NftOp::ReplaceTable(_, reasons)) => reasons.clone(),
        other => panic!("{other:?}"),
    };
    let ops = apply(&ns, &desired).unwrap().ops;
    assert_eq!(replaced(&ops), ["limit l has other properties"]);
    assert_eq!(apply(&ns, &desired).unwrap().ops, vec![]);
    // Another object is added beside the others.
    let kind = ObjectKind::Stateful(1);
    let d = Object {
        kind,
        name: "d".to_owned(),
        comment: None,
        data: Vec::new(),
    };
    desired.tables[0].objects.push(d);
    let applied = apply(&ns, &desired).unwrap();
    assert!(
        matches!(applied.ops[..], [NftOp::AddObject(..)]),
        "{:?}",
        applied.ops
    );
    assert_eq!(applied.kept, vec![]);
    // An object that is no longer desired stays and is reported.
    desired.tables[0].objects.pop();
    let applied = apply(&ns, &desired).unwrap();
    assert_eq!((applied.ops.len(), applied.kept.len()), (0, 1));
}

/// A missing object is not reported as a missing feature of the kernel.
#[test]
fn a_missing_object_is_not_a_missing_expression() {
    let ns = namespace_or_skip!();
    load(
        &ns,
        "table inet t { counter c { }\nchain x { counter name \"c\"\n}\n}\n",
    );
    let mut desired = read(&ns).ruleset;
    desired.tables[0].objects.clear();
    load(&ns, "delete table inet t");
    let error = apply(&ns, &desired).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert!(!error.to_string().contains("lacks"), "{error}");
}

/// Anonymous chains are listed inside their rules, as `nft` does, and are written with them.
// matrix: host: since 5.9
#[test]
fn anonymous_chains_are_listed_in_their_rules_and_written() {
    let text = "table inet t {
            set s { type ipv4_addr; elements = { 1.1.1.2 }; }
            chain first { drop\n}
            chain c {
                ip saddr 1.2.3.4 jump { ip daddr { 1.1.1.1, 1.1.1.3 } accept; } comment \"why\"
                goto { counter; jump first; }
                tcp dport { 5, 6 } jump { add @s { ip saddr }; ip daddr @s drop; limit rate 5/second accept comment \"in\"; }
                tcp dport 5 jump first
            }\n}\n";
    let ns = namespace_or_skip!();
    load(&ns, text);
    let found = read(&ns).ruleset;
    assert!(!found.to_string().contains("__chain"), "{found}");
    crate::common::both_ways(text);
}

/// The kernel adds no rule to a chain that is bound to a rule: after a change there, weir replaces that rule.
// matrix: host: since 5.9
#[test]
fn a_change_in_an_anonymous_chain_replaces_its_rule() {
    use weir_netfilter::nft::{NftOp, Rule};
    let ns = namespace_or_skip!();
    load(
        &ns,
        "table inet t { chain c { drop; }\nchain d { counter; jump { ct state new counter; accept; }; }\n}\n",
    );
    let mut desired = read(&ns).ruleset;
    load(&ns, "delete table inet t");
    apply(&ns, &desired).unwrap();
    assert_eq!(apply(&ns, &desired).unwrap().ops, vec![]);
    let inner = desired.tables[0].chains[1].rules[1].chain.as_mut().unwrap();
    inner.push(Rule::builder().jump("c"));
    let ops = apply(&ns, &desired).unwrap().ops;
    let texts: Vec<String> = ops.iter().map(ToString::to_string).collect();
    assert!(
        matches!(ops[..], [NftOp::DeleteRule(..), NftOp::AddRule(..)]),
        "{texts:?}"
    );
    let end = "jump { ct state new counter packets 0 bytes 0; accept; jump c; }";
    assert!(texts[1].ends_with(end), "{texts:?}");
    assert_text(&read(&ns).ruleset.to_string(), &list(&ns));
    // A rule with an anonymous chain must jump to it.
    desired.tables[0].chains[1].rules[1].statements.pop();
    let error = apply(&ns, &desired).unwrap_err().to_string();
    assert!(error.contains("a chain of its own"), "{error}");
}

/// Counters of the statements in a rule's elements make no difference.
// matrix: host: since 5.11
#[test]
fn elements_of_a_rule_that_count_are_no_change() {
    let with = |packets: u32| {
        format!(
            "table inet t {{ chain c {{
                ip saddr {{ 1.1.1.1 counter packets {packets} bytes 2, 1.1.1.2 }} accept
                jump {{ ip saddr {{ 1.1.1.1 counter packets {packets} bytes 2, 1.1.1.2 }} accept; }}\n}}\n}}\n"
        )
    };
    let (one, two) = (namespace_or_skip!(), namespace_or_skip!());
    load(&one, &with(0));
    load(&two, &with(7));
    let (found, others) = (read(&one).ruleset, read(&two).ruleset);
    assert!(
        others.to_string().contains("counter packets 7 bytes 2"),
        "{others}"
    );
    assert_eq!(apply(&one, &others).unwrap().ops, vec![]);
    assert_eq!(apply(&two, &found).unwrap().ops, vec![]);
    let listed = |r| weir_netfilter::nft::text_without_counters(r, found.tables[0].family);
    let rule = &others.tables[0].chains[0].rules[0];
    let zero = "ip saddr { 1.1.1.1 counter packets 0 bytes 0, 1.1.1.2 } accept";
    assert_eq!(listed(rule), zero);
}

/// `nft` neither lists nor loses the version of a table. A table without a version is in sync, and one with another version is replaced.
#[test]
fn a_table_keeps_the_version_of_its_rules() {
    use weir_netfilter::nft::{Chain, NftOp, Ruleset, Table, TableFamily};
    let ns = namespace_or_skip!();
    let with = |version: Option<u32>| Ruleset {
        tables: vec![Table {
            version,
            comment: Some("why".to_owned()),
            chains: vec![Chain::regular("c")],
            ..Table::new(TableFamily::Inet, "t")
        }],
    };
    let reasons = |version: Option<u32>| {
        let applied = apply(&ns, &with(version)).unwrap();
        let replaced = applied.ops.into_iter().find_map(|op| match op {
            NftOp::ReplaceTable(_, reasons) => Some(reasons),
            _ => None,
        });
        replaced.unwrap_or_default()
    };
    let listing = "table inet t {\n\tcomment \"why\"\n\tchain c {\n\t}\n}\n";
    load(&ns, listing);
    assert_eq!(apply(&ns, &with(Some(3))).unwrap().ops, vec![]);
    load(&ns, "delete table inet t");
    apply(&ns, &with(Some(3))).unwrap();
    assert_text(&list(&ns), listing);
    load(
        &ns,
        "add chain inet t d; add table inet t { comment \"other\"; }",
    );
    assert_eq!(read(&ns).ruleset.tables[0].version, Some(3));
    assert_eq!(reasons(Some(3)), [""; 0]);
    assert_eq!(reasons(Some(4)), ["its rules are of version 3, not 4"]);
    assert_eq!(
        reasons(None),
        ["its rules are of version 4, and are to have none"]
    );
    assert_eq!(read(&ns).ruleset.tables[0].version, None);
}
