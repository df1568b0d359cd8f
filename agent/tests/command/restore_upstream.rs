//! Texts that upstream feeds to `iptables-restore`, with abbreviated options, `* TABLE` and `-N`. The real tool loads the same text for
//! comparison.
// matrix: needs WEIR_GOLDEN

use crate::support::{TempFile, path, weir};
use serde_json::Value;
use std::path::{Path, PathBuf};
use weir_netlink::Netns;

use super::restore::{feed, load_noflush, rules};

/// The sets that rules of ambient mode match.
const SETS: &str = "create istio-inpod-probes-v4 hash:ip family inet\n\
                    create istio-inpod-probes-v6 hash:ip family inet6\n";

/// The files of both modes. Prints a skip if they are not available.
fn files() -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("WEIR_GOLDEN").map(PathBuf::from) else {
        eprintln!("skipped: WEIR_GOLDEN does not name the directory of the golden cases");
        return Vec::new();
    };
    let list = |dir: PathBuf| std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let named = |path: &PathBuf, ending: &str| path.to_string_lossy().ends_with(ending);
    let sidecar = list(root.join("sidecar/iptables")).filter(|p| named(p, ".txt"));
    let is_ambient = |p: &PathBuf| {
        let name = p.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("iptables-") && named(p, ".golden")
    };
    let mut files: Vec<PathBuf> = sidecar
        .chain(list(root.join("ambient")).filter(is_ambient))
        .collect();
    files.sort();
    assert!(files.len() > 20, "{files:?}");
    files
}

/// The text without the calls of `iptables-save`, with numbers instead of group names.
///
/// The IPv6 half begins with the first repeated table.
pub(crate) fn halves(file: &Path) -> [String; 2] {
    let about = std::fs::read_to_string(file.with_extension("json")).unwrap();
    let about: Value = serde_json::from_str(&about).unwrap();
    let number = |word: &str| match about["symbolic_groups"][word].as_u64() {
        Some(gid) => gid.to_string(),
        None => word.to_owned(),
    };
    let (mut halves, mut seen, mut half) = ([String::new(), String::new()], Vec::new(), 0);
    for line in std::fs::read_to_string(file).unwrap().lines() {
        if matches!(line, "iptables-save" | "ip6tables-save") {
            continue;
        }
        if line.starts_with('*') {
            if seen.contains(&line.to_owned()) {
                half = 1;
            }
            seen.push(line.to_owned());
        }
        let words: Vec<String> = line.split(' ').map(number).collect();
        halves[half] += &(words.join(" ") + "\n");
    }
    halves
}

fn restore(netns: &Netns, format: &str, text: &str, what: &Path) {
    let file = TempFile::new(text);
    let ns = path(netns);
    let mut args = vec!["restore", "--netns", &ns, "--format", format];
    if format != "ipset" {
        args.push("--noflush");
    }
    args.push(file.path());
    let run = weir(&args);
    assert_eq!(run.code, 0, "{}: {}\n{text}", what.display(), run.stderr);
}

#[test]
fn every_text_of_upstream_is_restored_as_the_tools_do() {
    for file in files() {
        let (ours, theirs) = (legacy_pod_or_skip!(), legacy_pod_or_skip!());
        for netns in [&ours, &theirs] {
            restore(netns, "ipset", SETS, &file);
        }
        for (text, family) in halves(&file).iter().zip(["iptables", "ip6tables"]) {
            if text.is_empty() {
                continue;
            }
            restore(&ours, family, text, &file);
            load_noflush(&theirs, &format!("{family}-legacy-restore"), text);
            let save = format!("{family}-legacy-save");
            assert_eq!(
                rules(&ours, &save),
                rules(&theirs, &save),
                "{}",
                file.display()
            );
        }
    }
}

/// Weir accepts what the real tool accepts, with the same meaning, and refuses what it refuses.
#[test]
fn abbreviations_of_targets_are_those_of_the_real_tool() {
    let (pod, oracle) = (legacy_pod_or_skip!(), legacy_pod_or_skip!());
    let ns = path(&pod);
    let targets = [
        ("OUTPUT", "REDIRECT --to-ports 15001"),
        ("POSTROUTING", "MASQUERADE"),
        ("POSTROUTING", "SNAT --to-source 10.0.0.1"),
        ("OUTPUT", "DNAT --to-destination 10.0.0.1"),
    ];
    let options = [
        "--random",
        "--rand",
        "--r",
        "--random-f",
        "--pers",
        "--to",
        "--rando",
    ];
    let mut taken = 0;
    for (chain, target) in targets {
        for option in options {
            let text = format!("*nat\n-A {chain} -p tcp -j {target} {option}\nCOMMIT\n");
            let real = feed(&oracle, &["iptables-legacy-restore"], &text);
            let file = TempFile::new(&text);
            let run = weir(&[
                "restore",
                "--netns",
                &ns,
                "--format",
                "iptables",
                file.path(),
            ]);
            let wanted = if real.code == 0 { 0 } else { 2 };
            assert_eq!(run.code, wanted, "{text}{}{}", run.stderr, real.stderr);
            if real.code == 0 {
                taken += 1;
                let (ours, theirs) = (
                    rules(&pod, "iptables-legacy-save"),
                    rules(&oracle, "iptables-legacy-save"),
                );
                assert_eq!(ours, theirs, "{text}");
            }
        }
    }
    assert!(taken > 8, "{taken}");
}
