//! Compares ipset's numbers and names with the system's headers.
// matrix: none: asks a C compiler about the system's headers, and no kernel
use weir_testing::c;

use std::collections::BTreeSet;
use weir_netfilter::ipset::{error, raw, wire};

const INCLUDES: &str = "\
#include <stdio.h>
#include <linux/version.h>
#include <linux/in.h>
#include <linux/netfilter.h>
#include <linux/netfilter/ipset/ip_set.h>
#include <linux/netfilter/ipset/ip_set_hash.h>
#include <linux/netfilter/ipset/ip_set_bitmap.h>
#include <linux/netfilter/ipset/ip_set_list.h>
";

#[test]
fn every_number_is_the_headers() {
    // Names that are newer than the oldest supported headers (6.2).
    let attributes = wire::constants()
        .into_iter()
        .filter(|(name, _)| *name != "IPSET_ATTR_BITMASK");
    let attributes = attributes.map(|(name, n)| (name, i64::from(n)));
    let ours: Vec<(&str, i64)> = raw::CONSTANTS.iter().copied().chain(attributes).collect();
    assert!(ours.len() > 100, "only {} numbers are declared", ours.len());
    let names: Vec<&str> = ours.iter().map(|(name, _)| *name).collect();
    let theirs = c::values_in_c(INCLUDES, &names);
    let wrong: Vec<String> = ours
        .iter()
        .filter(|(name, n)| theirs.get(*name) != Some(n))
        .map(|(name, n)| format!("{name}: {n}, the header says {:?}", theirs.get(*name)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Names of the header that are not declared, each with the reason.
const NOT_DECLARED: &[&str] = &[
    // ranges, which weir sends as single entries
    "IPSET_ATTR_IP_TO",
    "IPSET_ATTR_IP2_TO",
    // of types that are listed as opaque
    "IPSET_ATTR_MARK",
    "IPSET_ATTR_IFACE",
    // never used by a known type
    "IPSET_ATTR_RESIZE",
];

#[test]
fn no_attribute_and_no_error_of_the_header_is_forgotten() {
    let mut words = BTreeSet::new();
    for file in [
        "ip_set.h",
        "ip_set_hash.h",
        "ip_set_bitmap.h",
        "ip_set_list.h",
    ] {
        let path = format!("/usr/include/linux/netfilter/ipset/{file}");
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| {
            panic!("{path}: {e}; install linux-libc-dev (Debian)");
        });
        // Only lines of enums, which begin with the name; aliases contain `=`.
        for line in text
            .lines()
            .map(str::trim_start)
            .filter(|l| l.starts_with("IPSET_"))
        {
            let name: String = line
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            let is_alias = line.contains("= IPSET_ATTR_");
            if !is_alias {
                words.insert(name);
            }
        }
    }
    let declared: BTreeSet<&str> = wire::constants().into_iter().map(|(n, _)| n).collect();
    let translated: BTreeSet<&str> = error::constants().into_iter().collect();
    let commands: BTreeSet<&str> = raw::CONSTANTS.iter().map(|(n, _)| *n).collect();
    let mut attributes = 0;
    for word in &words {
        let word = word.as_str();
        let filler = ["_UNSPEC", "_MAX", "_TYPE_SPECIFIC"]
            .iter()
            .any(|s| word.ends_with(s));
        if word.starts_with("IPSET_ATTR_") && !filler {
            attributes += 1;
            assert!(
                declared.contains(word) || NOT_DECLARED.contains(&word),
                "{word}"
            );
        }
        if word.starts_with("IPSET_ERR_") && !filler {
            assert!(translated.contains(word), "{word}");
            assert!(commands.contains(word), "{word}");
        }
    }
    assert!(attributes > 35, "{words:?}");
}
