//! The rules of iptables' own tests (`extensions/*.t`): each that the legacy tool accepts is listed as
//! `iptables-legacy-save` lists it, and restored from that listing to the same bytes in the kernel.
//!
//! `ci/fetch-sources` gets them; without it the test is skipped. Of some 2,780 rules that iptables 1.8.9 accepts on Linux
//! 6.18 all are.
// matrix: host: reads iptables' own tests from target/

use crate::common::tool;
use crate::xtables::{load, namespace, ours, save};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use weir_netfilter::xtables::raw::*;
use weir_netfilter::xtables::{Script, XtEngine, XtFamily, XtSockets, XtTransport};
use weir_netlink::Netns;

/// The least number of rules that are accepted, of 1,354 and 1,429 on Linux 6.18: kernels with fewer options accept fewer.
const fn least(family: XtFamily) -> usize {
    match family {
        XtFamily::Ip => 1_300,
        XtFamily::Ip6 => 1_375,
    }
}

/// Rules that weir lists or restores otherwise, with the reason; there are none.
const EXCEPTIONS: [(&str, &str); 0] = [];

/// One rule of a file: its table, its chain, its options.
struct Line {
    table: String,
    chain: String,
    rule: String,
}

/// The rules and the preparing commands (`@`, `%`) of one file, in their order.
enum Step {
    Command(String),
    Rule(Line),
}

fn steps(text: &str) -> Vec<Step> {
    let (mut table, mut chains) = ("filter".to_owned(), Vec::new());
    let mut steps = Vec::new();
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let (first, rest) = line.split_at(1);
        match first {
            "#" => {}
            ":" => chains = rest.trim().split(',').map(str::to_owned).collect(),
            "*" => table = rest.trim().to_owned(),
            "@" | "%" => steps.push(Step::Command(rest.to_owned())),
            _ => {
                let rule = line.split(';').next().unwrap_or_default();
                steps.extend(chains.iter().map(|chain| {
                    Step::Rule(Line {
                        table: table.clone(),
                        chain: chain.clone(),
                        rule: rule.to_owned(),
                    })
                }));
            }
        }
    }
    steps
}

fn is_of(file: &str, family: XtFamily) -> bool {
    match family {
        XtFamily::Ip => !["libip6t_", "libarpt_", "libebt_"]
            .iter()
            .any(|p| file.starts_with(p)),
        XtFamily::Ip6 => !["libipt_", "libarpt_", "libebt_"]
            .iter()
            .any(|p| file.starts_with(p)),
    }
}

/// A table's rules by chain, one line each, without `-A CHAIN `.
type Listing = BTreeMap<(String, String), Vec<String>>;

fn listing(text: &str) -> Listing {
    let mut table = "";
    let mut all = Listing::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some((chain, rule)) = line
            .strip_prefix("-A ")
            .map(|r| r.split_once(' ').unwrap_or((r, "")))
        {
            let key = (table.to_owned(), chain.to_owned());
            all.entry(key).or_default().push(rule.to_owned());
        }
    }
    all
}

/// The entries of a table as the kernel has them, without counters; in the order of the chains.
fn entries(ns: &Netns, family: XtFamily, table: &str) -> Vec<Vec<u8>> {
    let entry = match family {
        XtFamily::Ip => "struct ipt_entry",
        XtFamily::Ip6 => "struct ip6t_entry",
    };
    let layouts: BTreeMap<String, usize> = layouts().into_iter().collect();
    let at = |field: &str| layouts[&format!("offsetof({entry}, {field})")];
    let (next, counters) = (at("next_offset"), at("counters"));
    let blob = ns.run(|| {
        let mut sockets = XtSockets::open().unwrap();
        let mut info = vec![0; 84];
        info[..table.len()].copy_from_slice(table.as_bytes());
        let _ = sockets.get(family, IPT_SO_GET_INFO, &mut info).unwrap();
        let size = info[80..84].to_vec();
        let mut all =
            vec![
                0;
                40 + usize::try_from(u32::from_ne_bytes(size.clone().try_into().unwrap())).unwrap()
            ];
        all[..table.len()].copy_from_slice(table.as_bytes());
        all[32..36].copy_from_slice(&size);
        let _ = sockets.get(family, IPT_SO_GET_ENTRIES, &mut all).unwrap();
        all.split_off(40)
    });
    let mut rest = &blob.unwrap()[..];
    let mut entries = Vec::new();
    while !rest.is_empty() {
        let len = u16::from_ne_bytes([rest[next], rest[next + 1]]);
        let (entry, after) = rest.split_at(usize::from(len));
        let mut entry = entry.to_vec();
        entry[counters..counters + 16].fill(0);
        entries.push(entry);
        rest = after;
    }
    entries
}

/// What was found of one file.
#[derive(Default)]
struct Found {
    accepted: usize,
    /// `FILE: RULE` with the reason.
    listed_otherwise: Vec<String>,
    restored_otherwise: Vec<String>,
}

/// The commands before the rules; those that end what they began are left out, because the rules stay.
fn prepare(ns: &Netns, steps: &[Step]) {
    for step in steps {
        if let Step::Command(command) = step
            && !command.contains(" -D ")
        {
            // Those of other programs, nfacct and nfct, which may be missing: the tool then refuses the rule.
            drop(tool(ns, "sh", &["-c", command], ""));
        }
    }
}

fn check(family: XtFamily, file: &str, text: &str, found: &mut Found) {
    let program = if family == XtFamily::Ip {
        "iptables-legacy"
    } else {
        "ip6tables-legacy"
    };
    let steps = steps(text);
    let theirs = namespace().unwrap();
    let mut tables = BTreeSet::new();
    for step in &steps {
        match step {
            Step::Command(command) => drop(tool(&theirs, "sh", &["-c", command], "")),
            Step::Rule(l) => {
                let command = format!(
                    "exec {program} -w 60 -t {} -A {} {}",
                    l.table, l.chain, l.rule
                );
                if tool(&theirs, "sh", &["-c", &command], "").is_ok() {
                    tables.insert(l.table.clone());
                    found.accepted += 1;
                }
            }
        }
    }
    let text = save(&theirs, family);
    let (expected, shown) = (listing(&text), listing(&ours(&theirs, family)));
    let mut kept = String::new();
    for table in &tables {
        kept += &format!("*{table}\n");
        for ((_, chain), lines) in expected.iter().filter(|((t, _), _)| t == table) {
            let got = shown
                .get(&(table.clone(), chain.clone()))
                .map_or(&[][..], Vec::as_slice);
            for (n, line) in lines.iter().enumerate() {
                let got = got.get(n).map_or("", String::as_str);
                if got != line {
                    found
                        .listed_otherwise
                        .push(format!("{file}: {line}\n      {got}"));
                }
                let rule = format!("-A {chain} {line}\n");
                match Script::parse(family, &format!("*{table}\n{rule}COMMIT\n")) {
                    Ok(_) => kept += &rule,
                    Err(e) => found
                        .restored_otherwise
                        .push(format!("{file}: {line}\n      {e}")),
                }
            }
        }
        kept += "COMMIT\n";
    }
    restored(family, file, &kept, &steps, found);
}

/// The text again, by weir and in another namespace: the same entries as those of the tool.
fn restored(family: XtFamily, file: &str, text: &str, steps: &[Step], found: &mut Found) {
    let ns = namespace().unwrap();
    prepare(&ns, steps);
    let script = Script::parse(family, text).unwrap();
    let done = ns
        .run(|| XtEngine::open().unwrap().restore(&script, false))
        .unwrap();
    if let Err(e) = done {
        let lines = text.lines().filter(|l| l.starts_with("-A"));
        found
            .restored_otherwise
            .extend(lines.map(|l| format!("{file}: {l}\n      {e}")));
        return;
    }
    // The tool's own reading of its listing: bytes that have no meaning differ from those of the first rules.
    let theirs = namespace().unwrap();
    prepare(&theirs, steps);
    load(&theirs, family, text, &[]);
    for (table, _) in text.split("COMMIT\n").filter_map(|t| t.split_once('\n')) {
        let table = table.trim_start_matches('*');
        let (want, got) = (entries(&theirs, family, table), entries(&ns, family, table));
        assert_eq!(want.len(), got.len(), "{file}: {table}");
        for (want, got) in want.iter().zip(&got).filter(|(want, got)| want != got) {
            found
                .restored_otherwise
                .push(format!("{file}: {}", difference(want, got)));
        }
    }
}

/// The texts in an entry, and the bytes in which two entries differ.
fn difference(want: &[u8], got: &[u8]) -> String {
    let names = want.split(|b| !b.is_ascii_alphanumeric());
    let names = names.filter(|n| n.len() > 2).map(String::from_utf8_lossy);
    let bytes = want
        .iter()
        .zip(got)
        .enumerate()
        .filter(|(_, (a, b))| a != b);
    let bytes = bytes.map(|(at, (a, b))| format!("{at}: {a:#04x} {b:#04x}"));
    format!(
        "{}: {} and {} bytes; {}",
        names.collect::<Vec<_>>().join(" "),
        want.len(),
        got.len(),
        bytes.collect::<Vec<_>>().join(", ")
    )
}

fn folder() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("sources/iptables/extensions")
}

fn every_rule(family: XtFamily) {
    if namespace().is_none() {
        return;
    }
    let Ok(files) = std::fs::read_dir(folder()) else {
        eprintln!(
            "skipped: iptables' own tests are not in {}: run ci/fetch-sources",
            folder().display()
        );
        return;
    };
    let mut found = Found::default();
    let mut files: Vec<PathBuf> = files.map(|f| f.unwrap().path()).collect();
    files.sort();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".t") && is_of(&name, family) {
            check(
                family,
                &name,
                &std::fs::read_to_string(&path).unwrap(),
                &mut found,
            );
        }
    }
    let mut wrong = found.listed_otherwise;
    wrong.extend(found.restored_otherwise);
    wrong.retain(|line| !EXCEPTIONS.iter().any(|(rule, _)| line.contains(rule)));
    println!("{family}: {} rules are accepted", found.accepted);
    assert!(found.accepted >= least(family), "the tool accepts too few");
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn every_rule_of_iptables_own_tests() {
    every_rule(XtFamily::Ip);
}

#[test]
fn every_rule_of_ip6tables_own_tests() {
    every_rule(XtFamily::Ip6);
}
