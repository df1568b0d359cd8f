//! In-pod redirection of ambient mode: the rules equal those of Istio's agent, replace what that agent left, and are removed completely.
// matrix: needs WEIR_GOLDEN

use crate::restore_upstream::halves;
use crate::support::{TempFile, inside, lo_up, path, weir, weir_fed, weir_with};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use weir_netlink::Netns;

/// With `--engine auto`, `weir verify` accepts the rules that a named engine writes and those that an automatically chosen engine writes.
#[test]
fn either_meaning_of_rules_for_nf_tables_is_verified() {
    drop(pod_or_skip!());
    let config = json!({"config": {"redirect_dns": true}, "pod_overrides": {"virtual_interfaces": ["tap+"]}});
    let file = TempFile::new(&config.to_string());
    let file = Path::new(file.path());
    for (engine, ipv6_returns) in [("nft", 0), ("auto", 6)] {
        let netns = pod();
        let at = path(&netns);
        let (code, said) = ambient("apply", file, &at, engine);
        assert_eq!(code, 0, "{said}");
        let rules = inside(&netns, "nft", &["list", "ruleset"]);
        let count = rules.matches("meta nfproto ipv6 counter").count();
        assert_eq!(count, ipv6_returns, "{rules}");
        assert_eq!(rules.contains("\"tap*\""), engine == "auto", "{rules}");
        for (verified, expected) in [(engine, 0), ("auto", 0)] {
            let (code, said) = ambient("verify", file, &at, verified);
            assert_eq!(code, expected, "{engine}, {verified}: {said}");
        }
        let (code, _) = ambient("verify", file, &at, "nft");
        assert_eq!(code == 0, engine == "nft");
    }
}

/// The golden cases of one engine that concern a pod. Prints a skip and returns none if the golden cases are not available.
fn cases(backend: &str) -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("WEIR_GOLDEN").map(PathBuf::from) else {
        eprintln!("skipped: WEIR_GOLDEN does not name the directory of the golden cases");
        return Vec::new();
    };
    let files = std::fs::read_dir(root.join("ambient")).unwrap();
    let files = files.map(|e| e.unwrap().path());
    let is_case = |p: &PathBuf| p.extension().is_some_and(|e| e == "json");
    let is_of = |p: &PathBuf| {
        let about = std::fs::read_to_string(p).unwrap();
        let about: Value = serde_json::from_str(&about).unwrap();
        about["scope"] == "in_pod" && about["backend"] == backend
    };
    let mut files: Vec<_> = files.filter(is_case).filter(is_of).collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    files
}

fn ambient(verb: &str, file: &Path, netns: &str, engine: &str) -> (i32, String) {
    let file = file.to_str().unwrap();
    let run = weir(&[
        verb, "ambient", "--config", file, "--netns", netns, "--engine", engine,
    ]);
    // The description of a case has keys that the configuration does not have; weir prints a note about each.
    let said = run
        .stderr
        .lines()
        .filter(|l| !l.starts_with("weir: note: "));
    let said: String = said.map(|line| format!("{line}\n")).collect();
    (run.code, run.stdout + &said)
}

fn pod() -> Netns {
    let netns = Netns::create().unwrap();
    lo_up(&netns);
    netns
}

/// The output of `nft list ruleset`, with counters at zero and in the notation that all versions of nft share.
fn listed(netns: &Netns) -> Vec<String> {
    plain(&inside(netns, "nft", &["list", "ruleset"]))
}

fn plain(text: &str) -> Vec<String> {
    let zero = |line: &str| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        for n in 0..words.len() {
            let is_count = n > 0 && matches!(words[n - 1], "packets" | "bytes");
            let is_name = n > 0 && words[n - 1] == "priority";
            match words[n] {
                _ if is_count => words[n] = "0",
                "dstnat;" if is_name => words[n] = "-100;",
                "mangle;" if is_name => words[n] = "-150;",
                "raw;" if is_name => words[n] = "-300;",
                _ => {}
            }
        }
        words.join(" ")
    };
    let lines = text.lines().map(zero).filter(|l| !l.is_empty());
    lines.collect()
}

/// The tables that have rules, by name, in the notation of `iptables-save`.
fn tables(text: &str) -> BTreeMap<String, Vec<String>> {
    let (mut all, mut name) = (BTreeMap::<String, Vec<String>>::new(), String::new());
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        match line.strip_prefix('*') {
            Some(table) => table.clone_into(&mut name),
            None if line == "COMMIT" || line.is_empty() => {}
            None => {
                let line = line.split(" [").next().unwrap_or_default().to_owned();
                all.entry(name.clone()).or_default().push(line);
            }
        }
    }
    all.retain(|_, lines| lines.iter().any(|l| l.starts_with("-A")));
    all
}

fn saved(netns: &Netns) -> [BTreeMap<String, Vec<String>>; 2] {
    ["iptables-legacy-save", "ip6tables-legacy-save"].map(|tool| tables(&inside(netns, tool, &[])))
}

fn expected(case: &Path) -> [BTreeMap<String, Vec<String>>; 2] {
    ["v4.save", "v6.save"].map(|ending| {
        let text = std::fs::read_to_string(case.with_extension(ending));
        tables(&text.unwrap_or_default())
    })
}

fn routing(netns: &Netns) -> String {
    let list = |family: &str, what: &[&str]| inside(netns, "ip", &[&[family], what].concat());
    ["-4", "-6"]
        .map(|family| list(family, &["rule"]) + &list(family, &["route", "show", "table", "all"]))
        .concat()
}

/// Writes the text of the case to the standard input of the tool that upstream uses.
fn fed(netns: &Netns, tool: &str, args: &[&str], text: &str) {
    use std::io::Write;
    let mut child = Command::new("nsenter")
        .arg(format!("--net={}", netns.path().display()))
        .arg(tool)
        .args(args)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success(), "{tool}: {text}");
}

#[test]
fn rules_of_nf_tables_are_those_of_upstream() {
    drop(pod_or_skip!());
    for case in cases("nftables") {
        let pod = pod();
        let ns = path(&pod);
        let (code, said) = ambient("apply", &case, &ns, "nft");
        assert_eq!(code, 0, "{}: {said}", case.display());
        let golden = std::fs::read_to_string(case.with_extension("ruleset")).unwrap();
        assert_eq!(listed(&pod), plain(&golden), "{}", case.display());
        assert_eq!(ambient("apply", &case, &ns, "nft").1, "unchanged\n");
        assert_eq!(ambient("verify", &case, &ns, "nft").0, 0);
        let planned = weir(&[
            "plan",
            "ambient",
            "--config",
            case.to_str().unwrap(),
            "--engine",
            "nft",
        ]);
        let rules = planned.stdout.lines().filter(|l| !l.starts_with("ip "));
        let rules: Vec<&str> = rules.collect();
        assert_eq!(
            plain(&rules.join("\n")),
            plain(&golden),
            "{}",
            case.display()
        );
    }
}

#[test]
fn rules_of_legacy_tables_are_those_of_upstream() {
    drop(legacy_pod_or_skip!());
    for case in cases("iptables") {
        let pod = pod();
        let ns = path(&pod);
        let (code, said) = ambient("apply", &case, &ns, "xtables");
        assert_eq!(code, 0, "{}: {said}", case.display());
        assert_eq!(saved(&pod), expected(&case), "{}", case.display());
        assert_eq!(ambient("apply", &case, &ns, "xtables").1, "unchanged\n");
        assert_eq!(ambient("verify", &case, &ns, "xtables").0, 0);
    }
}

/// Either engine replaces everything that upstream's agent left, and cleaning leaves nothing of it.
#[test]
fn it_takes_over_from_upstream_and_goes() {
    drop(legacy_pod_or_skip!());
    for engine in ["nft", "xtables"] {
        for case in cases("iptables") {
            for tool in ["legacy", "nft"] {
                let pod = pod();
                let before = routing(&pod);
                let texts = halves(&case.with_extension("golden"));
                for (program, text) in ["iptables", "ip6tables"].iter().zip(&texts) {
                    fed(
                        &pod,
                        &format!("{program}-{tool}-restore"),
                        &["--noflush"],
                        text,
                    );
                }
                upstream_routing(&pod);
                takes_over(&pod, &case, engine, &before);
            }
        }
        for case in cases("nftables") {
            let pod = pod();
            let before = routing(&pod);
            let text = std::fs::read_to_string(case.with_extension("golden")).unwrap();
            fed(&pod, "nft", &["-f", "-"], &text);
            upstream_routing(&pod);
            takes_over(&pod, &case, engine, &before);
        }
    }
}

/// Writes policy rule and route as upstream's agent does, with protocol `boot`.
fn upstream_routing(pod: &Netns) {
    for family in ["-4", "-6"] {
        let rule = [
            family,
            "rule",
            "add",
            "fwmark",
            "0x111/0xfff",
            "pref",
            "32764",
            "lookup",
            "100",
        ];
        inside(pod, "ip", &rule);
        let route = [
            family, "route", "add", "local", "default", "dev", "lo", "table", "100",
        ];
        inside(pod, "ip", &route);
    }
}

fn takes_over(pod: &Netns, case: &Path, engine: &str, before: &str) {
    let ns = path(pod);
    let name = format!("{} by {engine}", case.display());
    let (code, said) = ambient("apply", case, &ns, engine);
    assert_eq!(code, 0, "{name}: {said}");
    let (code, said) = ambient("verify", case, &ns, engine);
    assert_eq!(code, 0, "{name}: {said}");
    let foreign = |lines: Vec<String>| -> Vec<String> {
        lines
            .into_iter()
            .filter(|l| l.to_uppercase().contains("ISTIO"))
            .collect()
    };
    match engine {
        "xtables" => assert_eq!(foreign(listed(pod)), Vec::<String>::new(), "{name}"),
        _ => assert_eq!(saved(pod), [BTreeMap::new(), BTreeMap::new()], "{name}"),
    }
    let clean = weir(&["clean", "ambient", "--netns", &ns]);
    assert_eq!(clean.code, 0, "{name}: {}", clean.stderr);
    assert_eq!(foreign(listed(pod)), Vec::<String>::new(), "{name}");
    assert_eq!(saved(pod), [BTreeMap::new(), BTreeMap::new()], "{name}");
    assert_eq!(routing(pod), before, "{name}");
}

/// The same transaction removes what is no longer needed: the table for DNS, and rules for the previous configuration of the pod.
#[test]
fn what_is_not_needed_any_more_goes() {
    let pod = pod_or_skip!();
    let ns = path(&pod);
    let file = |value: Value| TempFile::new(&value.to_string());
    let on = file(json!({"config": {"redirect_dns": true, "enable_ipv6": true}}));
    let off =
        file(json!({"config": {"redirect_dns": true}, "pod_overrides": {"dns_proxy": "disabled"}}));
    let apply = |file: &TempFile| ambient("apply", Path::new(file.path()), &ns, "nft");
    assert_eq!(apply(&on).0, 0);
    assert!(listed(&pod).join("\n").contains("istio-ambient-raw"));
    assert_eq!(ambient("verify", Path::new(off.path()), &ns, "nft").0, 1);
    assert_eq!(apply(&off).0, 0);
    let left = listed(&pod).join("\n");
    assert!(
        !left.contains("istio-ambient-raw") && !left.contains("ip6 "),
        "{left}"
    );
    assert!(!routing(&pod).contains("-6"), "{}", routing(&pod));
    // The table of a sidecar belongs to another kind of redirection.
    inside(&pod, "nft", &["add", "table", "inet", "istio-proxy-nat"]);
    assert_eq!(apply(&on).0, 0);
    assert_eq!(weir(&["clean", "ambient", "--netns", &ns]).code, 0);
    assert_eq!(listed(&pod), ["table inet istio-proxy-nat {", "}"]);
}

#[test]
fn a_pod_by_its_manifest() {
    let pod = |annotations: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "annotations": annotations},
            "spec": {"containers": [{"name": "web"}]}})
    };
    let plan = |pod: &Value| {
        weir_fed(
            &["plan", "ambient", "--pod", "-"],
            pod.to_string().as_bytes(),
        )
    };
    let plain = plan(&pod(json!({})));
    assert!(plain.stdout.contains("redirect to :15006"), "{plain:?}");
    let gateway = plan(&pod(
        json!({"ambient.istio.io/bypass-inbound-capture": "true",
        "ambient.istio.io/dns-capture": "true", "istio.io/reroute-virtual-interfaces": "tap0"}),
    ));
    assert!(!gateway.stdout.contains("15006"), "{gateway:?}");
    assert!(gateway.stdout.contains(":15053") && gateway.stdout.contains("iifname \"tap0\""));
    let sidecar = plan(&pod(json!({"sidecar.istio.io/status": "{}"})));
    assert_eq!(
        (sidecar.code, sidecar.stdout.as_str()),
        (0, ""),
        "{sidecar:?}"
    );
    assert!(sidecar.stderr.contains("it has a sidecar"), "{sidecar:?}");
    let mut of_host = pod(json!({}));
    of_host["spec"]["hostNetwork"] = true.into();
    assert!(plan(&of_host).stderr.contains("network of its node"));
}

#[test]
fn what_cannot_be_used_is_named_and_nothing_is_changed() {
    let pod = pod_or_skip!();
    let ns = path(&pod);
    for (text, part) in [
        ("", "JSON"),
        ("[1]", "object"),
        (r#"{"config": {"enable_ipv6": 1}}"#, "enable_ipv6"),
        (
            r#"{"config": {"host_probe_snat_address": "x"}}"#,
            "host_probe_snat_address",
        ),
        (
            r#"{"pod_overrides": {"virtual_interfaces": ["a-name-of-16-byt"]}}"#,
            "reroute-virtual-interfaces",
        ),
        (
            r#"{"pod_overrides": {"virtual_interfaces": "tap0"}}"#,
            "virtual_interfaces",
        ),
        (r#"{"pod_overrides": {"dns_proxy": "on"}}"#, "dns_proxy"),
        (r#"{"config": {"redirect_dn": true}}"#, "redirect_dn"),
        (
            r#"{"config": {"redirect_dns": true, "redirect_dns": false}}"#,
            "duplicate",
        ),
    ] {
        let run = weir_fed(
            &["apply", "ambient", "--config", "-", "--netns", &ns],
            text.as_bytes(),
        );
        assert_eq!(run.code, 2, "{text}: {run:?}");
        assert!(run.stderr.contains(part), "{text}: {}", run.stderr);
    }
    assert_eq!(listed(&pod), Vec::<String>::new());
    let own = weir_fed(
        &[
            "apply",
            "ambient",
            "--config",
            "-",
            "--netns",
            "/proc/self/ns/net",
        ],
        b"{}",
    );
    assert_eq!(own.code, 2, "{own:?}");
}

/// A pod that has a default route, and another pod that connects to it.
fn pod_and_caller() -> (Netns, Netns) {
    let (pod, caller) = (pod(), pod());
    let caller_path = path(&caller);
    let link = "link add eth0 type veth peer name eth0 netns";
    let words: Vec<&str> = link.split(' ').chain([caller_path.as_str()]).collect();
    inside(&pod, "ip", &words);
    for (netns, address, other) in [
        (&pod, "10.97.0.2/24", "10.97.0.1"),
        (&caller, "10.97.0.1/24", "10.97.0.2"),
    ] {
        inside(netns, "ip", &["address", "add", address, "dev", "eth0"]);
        inside(netns, "ip", &["link", "set", "eth0", "up"]);
        inside(netns, "ip", &["route", "add", "default", "via", other]);
    }
    (pod, caller)
}

#[test]
fn where_connections_land_is_proved_by_making_them() {
    let _ = weir_testing::namespace_or_skip!();
    let (pod, caller) = pod_and_caller();
    let (pod_path, caller_path) = (path(&pod), path(&caller));
    // Not the node's file system of pins, which this user may not be allowed to read.
    let no_pins = weir_testing::TempDir::new();
    let no_pins = [("WEIR_BPFFS", no_pins.path().to_str().unwrap())];
    let live = |more: &[&str]| {
        let args = [&["verify", "netns", &pod_path, "--live"], more].concat();
        let run = weir_with(&args, &no_pins);
        (run.code, run.stdout + &run.stderr)
    };
    let from = ["--from", caller_path.as_str()];
    let (code, text) = live(&from);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("not redirected"), "{text}");
    for engine in ["nft", "xtables"] {
        let request = TempFile::new(&json!({"config": {"redirect_dns": true}}).to_string());
        let (code, text) = ambient("apply", Path::new(request.path()), &pod_path, engine);
        assert_eq!(code, 0, "{text}");
        let (code, text) = live(&[&from[..], &["--dns", "192.0.2.53"]].concat());
        assert_eq!(code, 0, "{text}");
        assert!(text.contains("landed at 127.0.0.1:15001"), "{text}");
        let (code, text) = live(&[&from[..], &["--json"]].concat());
        assert_eq!(code, 0, "{text}");
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["redirected"], "yes", "{text}");
        let connections = found["connections"].as_array().unwrap();
        assert_eq!(connections.len(), 2, "{text}");
        assert_eq!(connections[1]["direction"], "inbound", "{text}");
    }
    // Invalid arguments, then results that cannot be determined.
    let usage = |args: &[&str], part: &str| {
        let run = weir(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(part), "{args:?}: {}", run.stderr);
    };
    usage(&["verify", "netns", &pod_path], "--live");
    usage(&["verify", "netns", "/nowhere/x", "--live"], "/nowhere/x");
    usage(
        &["verify", "netns", &pod_path, "--live", "--from", &pod_path],
        "same namespace",
    );
    let (code, text) = live(&["--outbound-only", "--to", "10.97.9.9", "--to", "10.97.9.8"]);
    assert_eq!(code, 0, "{text}");
    for to in ["10.97.9.9:80", "10.97.9.8:80"] {
        assert!(text.contains(to), "{text}");
    }
    // An address that is given for a family in which the pod has no address cannot be probed.
    let (code, text) = live(&["--outbound-only", "--dns", "2001:db8::53"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("no IPv6 address"), "{text}");
    inside(&pod, "ip", &["route", "del", "default"]);
    let (code, text) = live(&["--outbound-only"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("no route there"), "{text}");
    let gone = weir(&["verify", "pod", "shop/web", "--live"]);
    assert_eq!(gone.code, 3, "{}", gone.stdout);
    assert!(gone.stderr.contains("weir verify netns"), "{}", gone.stderr);
}
