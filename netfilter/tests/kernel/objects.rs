//! What weir does not make but shows: stateful objects, sets declared with `typeof`, concatenations, elements with
//! more than a key. The real `nft` writes it, and its listing is the oracle.

use weir_testing::lacks;
use weir_testing::namespace_or_skip;

use crate::common::{apply, assert_text, list, load, read, timeless, tool};

/// With words for all of it.
#[test]
fn what_is_not_made_here_is_listed_as_nft_lists_it() {
    let ns = namespace_or_skip!();
    load(&ns, include_str!("listing/objects.nft"));
    assert_text(&read(&ns).ruleset.to_string(), &list(&ns));
}

/// Statements of an element follow its key, the object that it refers to ends it: `nft` loads its listing again.
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
    // The rest is compared all the same.
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

/// Only who looks at everything is shown them: they are no part of a wish, and never go.
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

/// `nft` neither lists the version of a table nor loses it; a table without one is as good, with another one it is
/// replaced.
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
