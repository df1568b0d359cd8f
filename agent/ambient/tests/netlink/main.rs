//! The messages that write the rules, against those of the real `nft`.
//!
//! Each golden case contains the expressions that nft generated from the input of Istio's agent. Unlike listings, expressions show how a
//! match is encoded. They are compared with the expressions as weir has them, with those in the kernel as nft decodes and prints them, and
//! the messages with those that nft sends for the same input, byte for byte.
// matrix: needs WEIR_GOLDEN
// Helpers are part of the tests: clippy.toml grants them the same exceptions.
#![cfg(test)]

mod bytes;
mod text;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use text::text;
use weir_ambient::host::{Host, apply};
use weir_ambient::{Redirect, Request};
use weir_cni::compile::{Engine, Rules};
use weir_cni::redirection::Desired;
use weir_netfilter::nft::{Chain, NftEngine, Ruleset, TableId};
use weir_netlink::Netns;
use weir_testing::namespace_or_skip;
use weir_testing::tool::tool;

/// The cases of nf_tables. Prints a skip and returns none without the golden cases.
fn cases() -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("WEIR_GOLDEN").map(PathBuf::from) else {
        println!("skipped: WEIR_GOLDEN does not name the directory of the golden cases");
        return Vec::new();
    };
    let files = std::fs::read_dir(root.join("ambient")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|e| e == "netlink"))
        .collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    files
}

fn read(case: &Path, extension: &str) -> String {
    let file = case.with_extension(extension);
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// The contents of a ruleset: the hooks of its base chains, in order, and the rules of each chain as text.
#[derive(Debug, Default, PartialEq, Eq)]
struct Messages {
    hooks: Vec<String>,
    rules: BTreeMap<String, Vec<String>>,
}

/// Parses what nft prints of its messages (`--debug=netlink`).
///
/// A block begins with the family, the table and the chain of a rule; a chain is one line without its name.
fn golden(case: &Path) -> Messages {
    let mut all = Messages::default();
    for block in read(case, "netlink").split("\n\n") {
        let mut rule = Vec::new();
        let mut place = None;
        for line in block.lines().filter(|line| !line.is_empty()) {
            match line.strip_prefix("inet (null) (null) use 0") {
                Some(hook) => {
                    let hook = hook.trim().strip_suffix(" packets 0 bytes 0");
                    all.hooks.extend(hook.map(str::to_owned));
                }
                None if line.starts_with("  [") => rule.push(line.trim()),
                None => place = Some(line.trim().to_owned()),
            }
        }
        if let Some(place) = place {
            all.rules.entry(place).or_default().push(rule.join("\n"));
        }
    }
    assert!(!all.hooks.is_empty() && !all.rules.is_empty());
    all
}

fn messages(ruleset: &Ruleset) -> Messages {
    let mut all = Messages::default();
    for table in &ruleset.tables {
        for chain in &table.chains {
            all.hooks.extend(hook(chain));
            for rule in &chain.rules {
                let place = format!("{} {} {}", table.family, table.name, chain.name);
                let lines = rule.expressions(table.family);
                let lines: Vec<String> = lines.iter().map(|e| format!("[ {} ]", text(e))).collect();
                all.rules.entry(place).or_default().push(lines.join("\n"));
            }
        }
    }
    all
}

fn hook(chain: &Chain) -> Option<String> {
    let base = chain.base.as_ref()?;
    let kind = base.chain_type.as_str();
    Some(format!(
        "type {kind} hook {} prio {}",
        base.hook, base.priority
    ))
}

/// The rules of the namespace as weir decodes them.
fn read_back(netns: &Netns) -> Messages {
    let snapshot = netns.run(|| NftEngine::open().unwrap().read().unwrap());
    messages(&snapshot.unwrap().ruleset)
}

/// Runs the real `nft` in a namespace.
fn nft(netns: &Netns, args: &[&str], input: &str) -> String {
    tool(netns, "nft", args, input).unwrap_or_else(|e| panic!("nft {args:?}: {e}"))
}

/// Loads a text with the real `nft`.
fn loaded(netns: &Netns, text: &str) {
    nft(netns, &["-f", "-"], text);
}

/// The rules of the namespace as nft decodes them. It prints no chains.
fn read_by_nft(netns: &Netns) -> BTreeMap<String, Vec<String>> {
    let listed = nft(netns, &["--debug=netlink", "list", "ruleset"], "");
    let mut rules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for block in listed.split("\n\n") {
        // The listing of the ruleset as text follows in the last block.
        let lines = block.lines().skip_while(|line| !line.starts_with("inet "));
        let mut lines = lines.take_while(|line| !line.starts_with("table "));
        // Family, table, chain, handle, and the handle of the rule before.
        let Some(place) = lines.next() else { continue };
        let place: Vec<&str> = place.split(' ').take(3).collect();
        let rule = lines.filter(|line| line.starts_with("  [")).map(str::trim);
        let rule: Vec<&str> = rule.collect();
        let of_chain = rules.entry(place.join(" ")).or_default();
        of_chain.push(as_sent(&rule.join("\n")));
    }
    rules
}

/// A listed rule as it was sent. The kernel adds the upper end of a range of one port or address.
fn as_sent(rule: &str) -> String {
    let without = |kind: &str, rule: String| match rule.split_once(kind) {
        Some((before, after)) => {
            let (_, after) = after.split_once(" flags").unwrap_or_default();
            format!("{before} flags{after}")
        }
        None => rule,
    };
    without(" proto_max reg", rule.to_owned())
}

fn is_of_a_pod(case: &Path) -> bool {
    let about: Value = serde_json::from_str(&read(case, "json")).unwrap();
    about["scope"] == "in_pod"
}

/// The rules for the input of a case.
fn of_a_pod(case: &Path) -> Ruleset {
    let name = case.display().to_string();
    let request = Request::from_json(&read(case, "json"), &name).unwrap();
    let redirect = Redirect::new(request.config, &request.pod_overrides).unwrap();
    match redirect.compile(Engine::Nft).rules {
        Rules::Nft(ruleset) => ruleset,
        Rules::Xtables(_) => panic!("{name}: other rules"),
    }
}

// matrix: none: compiles rules, and asks no kernel
#[test]
fn the_messages_for_a_pod_are_those_of_nft() {
    for case in cases().iter().filter(|case| is_of_a_pod(case)) {
        assert_eq!(
            messages(&of_a_pod(case)),
            golden(case),
            "{}",
            case.display()
        );
    }
}

#[test]
fn the_messages_for_the_host_are_those_of_nft() {
    drop(namespace_or_skip!());
    for case in cases().iter().filter(|case| !is_of_a_pod(case)) {
        let text = read(case, "json");
        let about: Value = serde_json::from_str(&text).unwrap();
        let uid = about["assumptions"]["kubelet_uid"].as_str();
        let host = Host {
            config: Request::from_json(&text, "-").unwrap().config,
            addresses: BTreeMap::new(),
            users: uid
                .map(|uid| uid.parse().unwrap())
                .map(|uid: u32| uid..=uid),
        };
        let netns = Netns::create().unwrap();
        netns.run(|| apply(&host, Engine::Nft)).unwrap().unwrap();
        assert_eq!(read_back(&netns), golden(case), "{}", case.display());
    }
}

/// The rules in the kernel are the golden ones, also for a reader of other authors.
#[test]
fn nft_reads_the_rules_of_a_pod_as_its_own() {
    drop(namespace_or_skip!());
    for case in cases().iter().filter(|case| is_of_a_pod(case)) {
        let name = case.display().to_string();
        let ruleset = of_a_pod(case);
        let netns = Netns::create().unwrap();
        let apply = || NftEngine::open().unwrap().apply(&ruleset, &owned(&ruleset));
        netns.run(apply).unwrap().unwrap();
        let listed = read_by_nft(&netns);
        assert_eq!(listed, golden(case).rules, "{name}");
    }
}

fn owned(ruleset: &Ruleset) -> Vec<TableId> {
    let tables = ruleset.tables.iter();
    tables.map(|t| (t.family, t.name.clone())).collect()
}

/// weir decodes the rules of nft to the expressions that nft has sent.
#[test]
fn rules_that_nft_wrote_are_read_as_its_messages() {
    drop(namespace_or_skip!());
    for case in cases() {
        let netns = Netns::create().unwrap();
        // The rules of the host need their sets, which this transaction does not create.
        let text = match is_of_a_pod(&case) {
            true => read(&case, "golden"),
            false => read(&case, "ruleset"),
        };
        loaded(&netns, &text);
        assert_eq!(read_back(&netns), golden(&case), "{}", case.display());
    }
}
