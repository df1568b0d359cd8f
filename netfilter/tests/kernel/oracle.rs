//! The real `nft` as oracle in both directions: this crate reads what nft wrote, and nft lists what this crate wrote.
// matrix: smoke; variants no-xtables no-ipset 6.12-rt

use crate::common::{apply, both_ways, list, load, read};
use weir_netfilter::nft::{Chain, Limit, Rule, Ruleset, Statement, Table, TableFamily, raw};
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

/// Rules that nft 1.0.6 reads, but does not list in this form: it shifts bits of a header, and joins adjacent names.
const AS_ENTERED: &[&str] = &[
    "meta mark set ip version",
    "meta mark set tcp doff",
    "meta mark set vlan pcp",
    "ip saddr . ip dscp { 1.2.3.4 . 0x02 }",
    "ip version . ip saddr { 4 . 1.2.3.5 }",
    "tcp dport . tcp doff { 80 . 5 }",
    "ether saddr . vlan pcp { 02:00:00:00:00:01 . 5 }",
    "ip dscp & cs7 != cs1",
    "ip dscp | cs1 == 0x09",
    "vlan pcp & 4 == 4",
    "ip dscp vmap @verdicts",
    "meta mark set ip dscp map @marks",
    "meta mark set ip saddr . ip dscp map { 1.2.3.4 . cs1 : 0x00000001 }",
    "meta mark set jhash ip saddr . ip dscp mod 2",
    "update @codes { ip dscp timeout 5s }",
    "meta mark set @nh,8,8 & 0xfc",
    "iifname { \"a*\", \"b\" }",
    "iifname != { \"a*\", \"b*\", \"z\" }",
];

/// Read again, the listing is the same rules.
#[test]
fn rules_that_nft_lists_otherwise() {
    let sets = "set codes { typeof ip dscp; size 10; flags dynamic,timeout; }
        map verdicts { typeof ip dscp : verdict; }
        map marks { typeof ip dscp : meta mark; }";
    let chain = AS_ENTERED.join("\n");
    let (ns, again) = (namespace_or_skip!(), namespace_or_skip!());
    load(
        &ns,
        &format!("table inet t {{\n{sets}\nchain c {{\n{chain}\n}}\n}}"),
    );
    let first = read(&ns).ruleset;
    let rules = &first.tables[0].chains[0].rules;
    let texts: Vec<String> = rules.iter().map(Rule::to_string).collect();
    assert_eq!(texts, AS_ENTERED);
    load(&again, &first.to_string());
    assert_eq!(read(&again).ruleset, first);
}

/// The kernel lists its default burst, and the rule is in sync nevertheless.
#[test]
fn a_limit_without_a_burst() {
    let ns = namespace_or_skip!();
    let limit = |kind| {
        let limit = Limit {
            rate: Some(10),
            unit: Some(1),
            kind,
            ..Limit::default()
        };
        Rule::builder().push(Statement::Limit(limit)).build()
    };
    let mut table = Table::new(TableFamily::Inet, "t");
    table.chains.push(Chain {
        rules: vec![limit(None), limit(Some(raw::NFT_LIMIT_PKT_BYTES))],
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
