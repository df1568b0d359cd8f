//! Compares every retyped number with the system's headers: a C program prints the compiler's value of each name.
// matrix: none: asks a C compiler about the system's headers, and no kernel
use weir_testing::c;

use c::REMEDY;
use std::collections::{BTreeMap, BTreeSet};
use weir_netfilter::conntrack;
use weir_netfilter::nft::{expr::Expr, priority, raw, wire};

const INCLUDES: &str = "\
#include <stddef.h>
#include <stdio.h>
#include <limits.h>
#include <linux/version.h>
#include <linux/in.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/if_addr.h>
#include <linux/fib_rules.h>
#include <linux/neighbour.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netfilter/nf_log.h>
#include <linux/types.h>
#include <linux/netfilter/nf_synproxy.h>
";

fn values_in_c(expressions: &[&str]) -> BTreeMap<String, i64> {
    c::values_in_c(INCLUDES, expressions)
}

/// Attributes of messages and of expressions, by name and number.
fn attributes() -> Vec<(&'static str, u16)> {
    [wire::constants(), Expr::constants()].concat()
}

fn ours() -> Vec<(&'static str, i64)> {
    let attributes = attributes()
        .into_iter()
        .map(|(name, n)| (name, i64::from(n)));
    let states = [
        ("NF_CT_STATE_INVALID_BIT", raw::ct_state::INVALID),
        (
            "NF_CT_STATE_BIT(IP_CT_ESTABLISHED)",
            raw::ct_state::ESTABLISHED,
        ),
        ("NF_CT_STATE_BIT(IP_CT_RELATED)", raw::ct_state::RELATED),
        ("NF_CT_STATE_BIT(IP_CT_NEW)", raw::ct_state::NEW),
        ("NF_CT_STATE_UNTRACKED_BIT", raw::ct_state::UNTRACKED),
    ];
    let states = states.into_iter().map(|(name, n)| (name, i64::from(n)));
    let priorities = [
        ("NF_IP_PRI_RAW", priority::RAW),
        ("NF_IP_PRI_MANGLE", priority::MANGLE),
        ("NF_IP_PRI_NAT_DST", priority::DSTNAT),
        ("NF_IP_PRI_FILTER", priority::FILTER),
        ("NF_IP_PRI_SECURITY", priority::SECURITY),
        ("NF_IP_PRI_NAT_SRC", priority::SRCNAT),
    ];
    let priorities = priorities.into_iter().map(|(name, n)| (name, i64::from(n)));
    [raw::CONSTANTS, &Expr::numbers()]
        .concat()
        .into_iter()
        .chain(priorities)
        .chain(weir_netlink::nfnetlink::constants())
        .chain(conntrack::constants())
        .chain(attributes)
        .chain(states)
        .collect()
}

#[test]
fn every_number_is_the_headers() {
    let ours = ours();
    assert!(ours.len() > 300, "only {} numbers are declared", ours.len());
    let names: Vec<&str> = ours.iter().map(|(name, _)| *name).collect();
    let theirs = values_in_c(&names);
    let wrong: Vec<String> = ours
        .iter()
        .filter(|(name, n)| theirs.get(*name) != Some(n))
        .map(|(name, n)| format!("{name}: {n}, the header says {:?}", theirs.get(*name)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The members of each `enum NAME { ... }` of a header, without the closing `__..._MAX`.
fn enums(header: &str) -> Vec<(String, Vec<String>)> {
    let path = format!("/usr/include/{header}");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}; {REMEDY}"));
    let mut found = Vec::new();
    for part in text.split("\nenum ").skip(1) {
        let (Some((name, body)), Some(end)) = (part.split_once('{'), part.find("};")) else {
            continue;
        };
        let body = &body[..end - name.len() - 1];
        let members = body
            .split(['\n', ','])
            .filter_map(|line| line.trim().split([' ', '\t', '=', '/']).next())
            .filter(|word| word.starts_with("NF") || word.starts_with("NLMSGERR"))
            .map(str::to_owned)
            .collect();
        found.push((name.trim().to_owned(), members));
    }
    found
}

/// Attributes of the header that are not declared, each with the reason.
const NOT_DECLARED: &[(&str, &str)] = &[
    (
        "NFTA_CHAIN_COUNTERS",
        "counters of a base chain's policy, which weir has no use for",
    ),
    (
        "NFTA_RULE_ID",
        "lets a batch place a rule next to a new one; weir places by handle",
    ),
    ("NFTA_RULE_POSITION_ID", "the same"),
    ("NFTA_NG_SET_NAME", "deprecated"),
    ("NFTA_NG_SET_ID", "deprecated"),
    ("NFTA_HASH_SET_NAME", "deprecated"),
    ("NFTA_HASH_SET_ID", "deprecated"),
];

#[test]
fn no_attribute_of_the_header_is_forgotten() {
    let version = values_in_c(&["LINUX_VERSION_CODE"])["LINUX_VERSION_CODE"];
    let is_6_1 = version >> 8 == 6 << 8 | 1;
    let known: BTreeSet<&str> = ours().into_iter().map(|(name, _)| name).collect();
    let mut excused: BTreeSet<&str> = NOT_DECLARED.iter().map(|(name, _)| *name).collect();
    let mut forgotten = Vec::new();
    let mut declared = 0;
    let headers = ["linux/netfilter/nf_tables.h", "linux/netlink.h"];
    for (name, members) in headers.iter().flat_map(|h| enums(h)) {
        if !members.iter().any(|m| known.contains(m.as_str())) || !is_attributes(&name) {
            continue;
        }
        declared += 1;
        for member in members {
            let filler = ["_UNSPEC", "_PAD", "_UNUSED", "_MAX"]
                .iter()
                .any(|s| member.ends_with(s));
            if !filler && !known.contains(member.as_str()) && !excused.remove(member.as_str()) {
                forgotten.push(format!("{member} of enum {name}"));
            }
        }
    }
    // Tables, chains, hooks, rules, sets, set descriptions, elements, element lists, generations, data, verdicts, expressions, expression
    // lists, acknowledgements, objects, four kinds of objects, flowtables, their hooks, and one for every expression with attributes.
    assert_eq!(declared, 21 + Expr::KNOWN.len() - 1);
    if is_6_1 {
        assert!(forgotten.is_empty(), "{forgotten:#?}");
        assert!(
            excused.is_empty(),
            "excused, but declared or not in the header: {excused:?}"
        );
    } else if !forgotten.is_empty() {
        eprintln!(
            "headers of {}.{} also have {forgotten:?}",
            version >> 16,
            version >> 8 & 0xff
        );
    }
}

/// Whether an enum numbers attributes; the other enums number values, which are open.
fn is_attributes(name: &str) -> bool {
    name.ends_with("_attributes") || name.ends_with("_attrs")
}
