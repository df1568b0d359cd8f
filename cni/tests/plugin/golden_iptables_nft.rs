//! Reads rules of another author that `iptables-nft` and `ip6tables-nft` have loaded.
//!
//! Each line of weir's listing is translated to options of iptables, which must equal the options of the tool's own
//! listing. A rule that the tool wrote without matches and targets of xtables must also be listed by `nft` word for
//! word as by weir.
// matrix: needs WEIR_GOLDEN

use crate::support::golden::{Case, cases};
use crate::support::oracle::{Bench, listed};
use crate::support::owners::{each_loadable, unmapped_owner};
use std::collections::BTreeSet;
use weir_netfilter::nft::{NftEngine, compat};

/// Options, unordered: `-p tcp`, `! --dport 53`, `-j RETURN`.
type Options = BTreeSet<String>;

/// The options of a line of `iptables-save` without its chain.
fn options(line: &str) -> Options {
    let mut options: Vec<String> = Vec::new();
    let mut begins = true;
    for word in line.split_whitespace() {
        // The option after "!" belongs to it.
        let negates = word == "!";
        match options.last_mut() {
            Some(last) if !begins && !negates && !word.starts_with('-') => {
                last.push(' ');
                last.push_str(word);
            }
            Some(last) if last == "!" => *last = format!("! {word}"),
            _ => options.push(word.to_owned()),
        }
        begins = negates;
    }
    options.into_iter().collect()
}

/// Translates a line of weir's listing to options of iptables. Unknown words fail the test.
fn as_options(line: &str) -> Options {
    let mut all = Options::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (found, left) = one(rest).unwrap_or_else(|| panic!("no option for {rest:?} in {line}"));
        all.extend(found);
        rest = left.trim_start();
    }
    all
}

/// The options of the first expression in a text, and the rest of the text.
fn one(text: &str) -> Option<(Options, &str)> {
    if let Some(xt) = text.strip_prefix("xt ") {
        let (inner, rest) = xt.split_once('[')?.1.split_once(']')?;
        return Some((options(inner), rest));
    }
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    let set = |all: &[String]| all.iter().cloned().collect::<Options>();
    let target = |name: &str| set(&[format!("-j {name}")]);
    Some(match first {
        "counter" => (Options::new(), rest),
        "return" => (target("RETURN"), rest),
        "accept" => (target("ACCEPT"), rest),
        "drop" => (target("DROP"), rest),
        "jump" => {
            let (chain, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            (target(chain), rest)
        }
        "meta" | "oifname" | "iifname" | "ip" | "ip6" | "tcp" | "udp" => {
            let (key, rest) = match first {
                "oifname" | "iifname" => ("", rest),
                _ => rest.split_once(' ')?,
            };
            let (not, rest) = match rest.strip_prefix("!= ") {
                Some(rest) => ("! ", rest),
                None => ("", rest),
            };
            let (value, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            (set(&selected(first, key, not, value)?), rest)
        }
        _ => return None,
    })
}

fn selected(header: &str, key: &str, not: &str, value: &str) -> Option<Vec<String>> {
    let bare = value.trim_matches('"');
    let network = |full| match value.contains('/') {
        true => value.to_owned(),
        false => format!("{value}/{full}"),
    };
    let full = if header == "ip6" { 128 } else { 32 };
    Some(match (header, key) {
        ("oifname", _) => vec![format!("{not}-o {bare}")],
        ("iifname", _) => vec![format!("{not}-i {bare}")],
        ("meta", "l4proto") => vec![format!("{not}-p {value}")],
        ("meta", "mark") => {
            let mark = u32::from_str_radix(value.strip_prefix("0x")?, 16).ok()?;
            vec!["-m mark".to_owned(), format!("{not}--mark {mark:#x}")]
        }
        ("ip" | "ip6", "saddr") => vec![format!("{not}-s {}", network(full))],
        ("ip" | "ip6", "daddr") => vec![format!("{not}-d {}", network(full))],
        ("tcp" | "udp", "dport" | "sport") => vec![
            format!("-p {header}"),
            format!("-m {header}"),
            format!("{not}--{key} {}", value.replace('-', ":")),
        ],
        _ => return None,
    })
}

fn check(case: &Case) {
    let bench = Bench::new();
    for (family, block) in case.blocks() {
        bench.restore_nft(family, &block);
    }
    let read = bench
        .netns()
        .run(|| NftEngine::open().unwrap().read().unwrap());
    let ruleset = read.unwrap().ruleset;
    for table in &ruleset.tables {
        let has_compat = table.to_string().contains("xt ");
        assert_eq!(compat::is_managed(table), has_compat, "{}", case.name);
    }
    let (weir, nft, saved) = (
        listed(&ruleset.to_string()),
        bench.nft_list(),
        bench.save_nft(),
    );
    let mut rules = 0;
    assert!(weir.keys().eq(nft.keys()), "{}", case.name);
    for (table, chains) in &weir {
        let (family, name) = table.split_once(' ').unwrap();
        let family = if family == "ip" { "ipv4" } else { "ipv6" };
        let tool = &saved[&format!("{family} {name}")];
        assert!(
            chains.keys().eq(nft[table].keys()),
            "{}: {table}",
            case.name
        );
        for (chain, lines) in chains {
            let place = format!("{}: {table} {chain}", case.name);
            let theirs = &nft[table][chain];
            assert_eq!(lines.len(), theirs.len(), "{place}");
            // nft lists the declaration of a base chain first, and the tool that of every chain.
            let based = usize::from(lines.first().is_some_and(|l| l.starts_with("type ")));
            assert_eq!(lines[..based], theirs[..based], "{place}");
            let (lines, theirs, tools) = (&lines[based..], &theirs[based..], &tool[chain][1..]);
            assert_eq!(lines.len(), tools.len(), "{place}");
            for ((line, nft), tool) in lines.iter().zip(theirs).zip(tools) {
                assert_eq!(as_options(line), options(tool), "{place}: {line}");
                if !line.contains("xt ") {
                    assert_eq!(line, nft, "{place}");
                }
                rules += 1;
            }
        }
    }
    let tools = saved.values().flatten();
    let of_tools: usize = tools.map(|(_, lines)| lines.len() - 1).sum();
    assert_eq!((rules, rules > 0), (of_tools, true), "{}", case.name);
}

#[test]
fn iptables_cases_loaded_by_iptables_nft_are_read_as_the_tool_lists_them() {
    let cases = cases("iptables").unwrap_or_default();
    let with_reasons = cases.iter().map(|case| {
        let rules = case.blocks().into_iter().map(|(_, block)| block);
        (case, unmapped_owner(&rules.collect::<String>()))
    });
    each_loadable(with_reasons, check);
}

#[test]
fn options_are_told_apart() {
    let line = "! -d 127.0.0.1/32 -o lo -p tcp -m multiport ! --dports 53,15008 -j X";
    let found: Vec<String> = options(line).into_iter().collect();
    let want = [
        "! --dports 53,15008",
        "! -d 127.0.0.1/32",
        "-j X",
        "-m multiport",
        "-o lo",
        "-p tcp",
    ];
    assert_eq!(found, want);
}
