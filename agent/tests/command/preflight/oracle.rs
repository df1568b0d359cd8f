//! The real tool can use every feature that weir reports as "have", and fails with every one that it reports as "lack".
// matrix: smoke; variants no-ipv6 6.12-rt

use super::batch::{self, Batch};
use super::nft_scripts;
use super::tools::{self, Commands};
use crate::support::{TempFile, lo_up, path, weir};
use serde_json::Value;
use std::process::{Command, Output};
use weir_netlink::Netns;

/// Area, name, answer, detail.
pub(crate) type Feature = (String, String, String, String);

/// The features in the output of `weir preflight --json`.
pub(crate) fn features() -> Vec<Feature> {
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

/// Compares the answers of one area with the result of the tool.
///
/// An "unknown" answer is an error on a kernel without modules. `together` gets all features that the kernel has, and returns those that
/// work at once; `ask` gets each of the others.
fn compare(
    (area, features): (&str, &[Feature]),
    untold: &[&str],
    together: impl Fn(&[&str]) -> Vec<String>,
    ask: impl Fn(&Netns, &str) -> Option<(bool, String)>,
) {
    let of_area = || features.iter().filter(|f| f.0 == area);
    let have: Vec<&str> = of_area().filter(|f| f.2 == "have").map(|f| &*f.1).collect();
    let work = together(&have);
    let mut wrong = Vec::new();
    let mut compared = work.len();
    for (_, feature, answer, detail) in of_area().filter(|f| !work.contains(&f.1)) {
        if answer == "unknown" {
            let modules = std::path::Path::new("/proc/modules").exists();
            assert!(modules, "{feature}: {detail}");
            println!("not compared: {feature}: {detail}");
            continue;
        }
        match ask(&place(), feature) {
            Some((works, words)) => {
                compared += 1;
                // A tool that rejects its arguments gives no answer. For an extension that the kernel lacks, it reports that and then
                // mentions --help.
                let is_told = words.contains("missing kernel module");
                // If only a newer revision has the option, iptables offers the options of the oldest one.
                let is_told = is_told || (words.contains("unknown option") && answer == "lack");
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

fn place() -> Netns {
    let netns = Netns::create().unwrap();
    lo_up(&netns);
    netns
}

/// The features, if all their commands work in one namespace; otherwise none.
fn at_once(features: &[&str], commands: impl Fn(usize, &str) -> Option<Commands>) -> Vec<String> {
    let batches =
        |commands: Vec<Commands>| batch::batches(&commands).expect("tools that take many commands");
    all_or_none(features, commands, batches)
}

/// Like [`at_once`]; `commands` returns the commands for a feature, and `batches` converts them to the input of the tools.
fn all_or_none<T>(
    features: &[&str],
    ask: impl Fn(usize, &str) -> Option<T>,
    batches: impl Fn(Vec<T>) -> Vec<Batch>,
) -> Vec<String> {
    let known = features.iter().enumerate();
    let known = known.filter_map(|(n, f)| Some(((*f).to_owned(), ask(n, f)?)));
    let (features, asked): (Vec<String>, Vec<T>) = known.unzip();
    let batches = batches(asked);
    let netns = place();
    let works = batches.iter().all(|(program, text)| {
        let file = TempFile::new(text);
        let words = [program.as_slice(), &[file.path().to_owned()]].concat();
        let (works, words) = told(&inside(&netns, &words));
        if !works {
            println!("one at a time, because of {program:?}: {words}");
        }
        works
    });
    if works { features } else { Vec::new() }
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
    // The default lock file is shared with the whole machine, so another process could hold it.
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
        // A match on a set needs the set.
        if !works {
            return (false, words);
        }
    }
    told(&inside(netns, last))
}

// matrix: variants no-nftables no-tproxy
#[test]
fn nft_agrees_about_every_feature() {
    if !root() {
        return;
    }
    let run = |netns: &Netns, words: &[&str]| {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        inside(netns, &words)
    };
    let in_one_script = |have: &[&str]| {
        let script = |n: usize, feature: &str| {
            // The listing shows whether the kernel stores comments.
            let is_told = !feature.starts_with("comment");
            is_told.then(|| nft_scripts::script(feature, &format!("t{n}")))?
        };
        let one = |scripts: Vec<String>| {
            let nft = ["nft", "-f"].map(str::to_owned).to_vec();
            vec![(nft, scripts.join("\n"))]
        };
        all_or_none(have, script, one)
    };
    // No tool can send a batch with an outdated generation, and nft 1.0.6 cannot parse `last` in a rule.
    let untold = ["generation guard", "expression last"];
    compare(
        ("nf_tables", &features()),
        &untold,
        in_one_script,
        |netns, feature| {
            if feature == "expression match" {
                let words = "iptables-nft -A INPUT -m comment --comment x";
                return Some(told(&run(netns, &words.split(' ').collect::<Vec<_>>())));
            }
            let file = TempFile::new(&nft_scripts::script(feature, "t")?);
            let loaded = run(netns, &["nft", "-f", file.path()]);
            if feature.starts_with("comment") && loaded.status.success() {
                let listing = run(netns, &["nft", "list", "ruleset"]);
                let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
                return Some((listing.contains("comment \"kept\""), listing));
            }
            Some(told(&loaded))
        },
    );
}

// matrix: variants no-xtables no-tproxy no-ip6tables no-ipset
#[test]
fn iptables_legacy_agrees_about_every_feature() {
    if !root() {
        return;
    }
    // The set that a rule matches has an address family.
    let of_family = |have: &[&str], family: &str| {
        let is_of = |feature: &&&str| feature.split(' ').nth(1) == Some(family);
        let have: Vec<&str> = have.iter().filter(is_of).copied().collect();
        at_once(&have, |_, feature| tools::xtables(feature))
    };
    // Their arguments contain spaces, or refer to an object of another program.
    let untold = ["ip bpf", "ip6 bpf", "ip nfacct", "ip6 nfacct"].map(|m| format!("match {m}"));
    // SELinux must know the label.
    let secmark = ["ip", "ip6"].map(|family| format!("target {family} SECMARK"));
    let untold: Vec<&str> = untold.iter().chain(&secmark).map(String::as_str).collect();
    compare(
        ("xtables", &features()),
        &untold,
        |have| [of_family(have, "ip"), of_family(have, "ip6")].concat(),
        |netns, feature| Some(all(netns, &tools::xtables(feature)?)),
    );
}

// matrix: variants no-ipset
#[test]
fn ipset_agrees_about_every_type() {
    if root() {
        compare(
            ("ipset", &features()),
            &[],
            |have| at_once(have, |n, feature| tools::ipset(feature, &format!("s{n}"))),
            |netns, feature| Some(all(netns, &tools::ipset(feature, "s")?)),
        );
    }
}

// matrix: variants no-btf
#[test]
fn iproute2_agrees_about_links_routes_and_filters() {
    if !root() {
        return;
    }
    let features = features();
    compare(
        ("net", &features),
        &[],
        |have| at_once(have, |n, feature| tools::net(feature, &format!("trial{n}"))),
        |netns, feature| Some(all(netns, &tools::net(feature, "trial")?)),
    );
    if let Some(reason) = crate::rights::not_first_user_namespace() {
        println!("skipped, the eBPF part: {reason}");
        return;
    }
    let of_ebpf = features.iter().filter(|f| f.0 == "ebpf");
    let untold: Vec<&str> = of_ebpf
        .map(|f| f.1.as_str())
        .filter(|f| tools::ebpf(f).is_none())
        .collect();
    compare(
        ("ebpf", &features),
        &untold,
        |_| Vec::new(),
        |netns, feature| Some(all(netns, &tools::ebpf(feature)?)),
    );
}
