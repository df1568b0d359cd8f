//! Every "have" is used by the real tool, and every "lack" fails in it.

use super::nft_scripts;
use super::support::{TempFile, lo_up, path, weir};
use super::tools::{self, Commands};
use serde_json::Value;
use std::process::{Command, Output};
use weir_netlink::Netns;

/// The features as `weir preflight --json` gives them.
pub(crate) fn features() -> Vec<(String, String, String, String)> {
    let run = weir(&["preflight", "--json"]);
    let report: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let text = |f: &Value, name: &str| f[name].as_str().expect(name).to_owned();
    let features = report["features"].as_array().expect("features");
    features
        .iter()
        .map(|f| {
            (
                text(f, "area"),
                text(f, "feature"),
                text(f, "answer"),
                text(f, "detail"),
            )
        })
        .collect()
}

/// The answers of one area, each with what the tool makes of it. A row that could not be told is
/// an error where the kernel has no modules.
fn compare(area: &str, untold: &[&str], ask: impl Fn(&Netns, &str) -> Option<(bool, String)>) {
    let mut wrong = Vec::new();
    let mut compared = 0;
    for (_, feature, answer, detail) in features().into_iter().filter(|f| f.0 == area) {
        if answer == "unknown" {
            let modules = std::path::Path::new("/proc/modules").exists();
            assert!(modules, "{feature}: {detail}");
            println!("not compared: {feature}: {detail}");
            continue;
        }
        let netns = Netns::create().unwrap();
        lo_up(&netns);
        match ask(&netns, &feature) {
            Some((works, words)) => {
                compared += 1;
                // A tool that did not understand the question gives no answer.
                // Of an extension that the kernel lacks it says so, and then how to get help.
                let is_told = words.contains("missing kernel module");
                for confused in ["syntax error", "is wrong", "--help", "garbage"] {
                    let is_confused = words.contains(confused) && !is_told;
                    assert!(!is_confused, "{feature}: {words}");
                }
                if works != (answer == "have") {
                    wrong.push(format!(
                        "{feature}: weir says {answer} ({detail}), the tool {words}"
                    ));
                }
            }
            None => assert!(
                untold.contains(&feature.as_str()),
                "{feature}: no tool was asked"
            ),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 0, "nothing was compared");
}

fn root() -> bool {
    match Netns::create() {
        Ok(_) => true,
        Err(e) if e.is_permission() => {
            println!("skipped: {e}");
            false
        }
        Err(e) => panic!("{e}"),
    }
}

fn told(out: &Output) -> (bool, String) {
    let words = format!(
        "ended with {}: {}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    (out.status.success(), words)
}

fn inside(netns: &Netns, words: &[String]) -> Output {
    // The usual one is the machine's: others may hold it.
    let lock = TempFile::new("");
    Command::new("nsenter")
        .arg(format!("--net={}", path(netns)))
        .args(words)
        .env("XTABLES_LOCKFILE", lock.path())
        .output()
        .expect("nsenter")
}

fn all(netns: &Netns, commands: &Commands) -> (bool, String) {
    let (last, before) = commands.split_last().unwrap();
    for words in before {
        let (works, words) = told(&inside(netns, words));
        // Without a set there is no match on one.
        if !works {
            return (false, words);
        }
    }
    told(&inside(netns, last))
}

#[test]
fn nft_agrees_about_every_feature() {
    if !root() {
        return;
    }
    // No tool can make a batch that is late.
    compare("nf_tables", &["generation guard"], |netns, feature| {
        let nft = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            inside(netns, &words)
        };
        if feature == "expression match" {
            let words = "iptables-nft -A INPUT -m comment --comment x";
            return Some(told(&nft(&words.split(' ').collect::<Vec<_>>())));
        }
        let file = TempFile::new(&nft_scripts::script(feature)?);
        let loaded = nft(&["nft", "-f", file.path()]);
        if feature.starts_with("comment") && loaded.status.success() {
            let listing = nft(&["nft", "list", "ruleset"]);
            let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
            return Some((listing.contains("comment \"kept\""), listing));
        }
        Some(told(&loaded))
    });
}

#[test]
fn iptables_legacy_agrees_about_every_feature() {
    if root() {
        compare("xtables", &[], |netns, feature| {
            Some(all(netns, &tools::xtables(feature)?))
        });
    }
}

#[test]
fn ipset_agrees_about_every_type() {
    if root() {
        compare("ipset", &[], |netns, feature| {
            Some(all(netns, &tools::ipset(feature)?))
        });
    }
}

#[test]
fn iproute2_agrees_about_links_routes_and_filters() {
    if !root() {
        return;
    }
    compare("net", &[], |netns, feature| {
        Some(all(netns, &tools::net(feature)?))
    });
    if let Some(reason) = crate::rights::not_first_user_namespace() {
        println!("skipped, the eBPF part: {reason}");
        return;
    }
    let features = features();
    let of_ebpf = features.iter().filter(|f| f.0 == "ebpf");
    let untold: Vec<&str> = of_ebpf
        .map(|f| f.1.as_str())
        .filter(|f| tools::ebpf(f).is_none())
        .collect();
    compare("ebpf", &untold, |netns, feature| {
        Some(all(netns, &tools::ebpf(feature)?))
    });
}
