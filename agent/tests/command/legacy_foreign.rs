//! Rules in built-in chains of legacy tables: weir removes its own without being given the configuration.
//!
//! Rules of other writers stay, even if they equal rules of weir.

use crate::support::{TempFile, config, inside, path, weir};
use serde_json::json;
use weir_netlink::Netns;

const TOOLS: [&str; 2] = ["iptables-legacy", "ip6tables-legacy"];

/// Rules of other writers, with counters that differ from zero. Most of them equal rules of weir.
const FOREIGN: &str = "
*nat
:PREROUTING ACCEPT [1:100]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [2:200]
:POSTROUTING ACCEPT [0:0]
:SOMEBODY - [0:0]
[11:1100] -A PREROUTING -i net1 -j RETURN
[12:1200] -A OUTPUT -p udp --dport 9 -j SOMEBODY
[13:1300] -A SOMEBODY -o net1 -j RETURN
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
[14:1400] -A PREROUTING -i net1 -j RETURN
[15:1500] -A OUTPUT -p tcp -m connmark --mark 0x539 -j CONNMARK --restore-mark
[16:1600] -A OUTPUT -m recent --set --name istio --rsource
COMMIT
";

fn load(pod: &Netns, text: &str) {
    let text = TempFile::new(text);
    for tool in TOOLS {
        let restore = format!("{tool}-restore");
        inside(pod, &restore, &["--counters", "--noflush", text.path()]);
    }
}

fn each_tool(pod: &Netns, rules: &[&str]) {
    for rule in rules {
        for tool in TOOLS {
            inside(pod, tool, &rule.split(' ').collect::<Vec<_>>());
        }
    }
}

/// The output of the tools, with counters and without dates.
fn saved(pod: &Netns) -> String {
    let texts = TOOLS.map(|t| inside(pod, &format!("{t}-save"), &["--counters"]));
    let lines = texts
        .iter()
        .flat_map(|t| t.lines())
        .filter(|l| !l.starts_with('#'));
    lines.map(|l| format!("{l}\n")).collect()
}

/// A configuration with every option that adds rules other than jumps to built-in chains.
fn everything(interfaces: &str) -> TempFile {
    config(&json!({
        "inbound_interception_mode": "TPROXY",
        "exclude_interfaces": interfaces,
        "reroute_virtual_interfaces": "k6t-a",
        "drop_invalid": true,
    }))
}

fn sidecar(verb: &str, pod: &Netns, file: &TempFile) -> crate::support::Run {
    let (ns, file) = (path(pod), file.path());
    let on = ["--config", file, "--netns", &ns, "--engine", "xtables"];
    weir(&[&[verb, "sidecar"][..], &on[..]].concat())
}

#[test]
fn clean_leaves_the_tables_as_they_were_without_knowing_the_configuration() {
    let (pod, twin) = (legacy_pod_or_skip!(), legacy_pod_or_skip!());
    load(&pod, FOREIGN);
    load(&twin, FOREIGN);
    let file = everything("net1,net2");
    let applied = sidecar("apply", &pod, &file);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    // Foreign rules that are added later, before and after the rules of weir.
    let later = [
        "-t nat -I PREROUTING 1 -i net2 -j RETURN",
        "-t nat -A PREROUTING -i net2 -j RETURN",
        "-t nat -I OUTPUT 1 -o net1 -j RETURN",
        "-t mangle -I OUTPUT 1 -o lo -p tcp -m mark --mark 0x539 -j RETURN",
        "-t mangle -A OUTPUT -o net1 -j RETURN",
    ];
    each_tool(&pod, &later);
    each_tool(&twin, &later);
    let again = sidecar("apply", &pod, &file);
    assert_eq!((again.code, again.stdout.as_str()), (0, "unchanged\n"));

    let cleaned = weir(&["clean", "--netns", &path(&pod)]);
    assert_eq!(cleaned.code, 0, "{}", cleaned.stderr);
    assert_eq!(saved(&pod), saved(&twin));
    let again = weir(&["clean", "--netns", &path(&pod)]);
    assert_eq!(again.stdout, "unchanged\n");
}

/// No redirection has chains in `filter`: a chain with such a name belongs to another program.
#[test]
fn chains_of_the_filter_table_stay_whatever_they_are_called() {
    let pod = legacy_pod_or_skip!();
    let chains = [
        "-N ISTIO_LIKE",
        "-A ISTIO_LIKE -p tcp --dport 22 -j ACCEPT",
        "-A INPUT -j ISTIO_LIKE",
    ];
    each_tool(&pod, &chains);
    let before = saved(&pod);
    // Weir does not take these chains for its own, so they do not affect the choice of the engine.
    let file = everything("net1");
    let (ns, of) = (path(&pod), file.path());
    let on = ["sidecar", "--config", of, "--netns", &ns, "--engine"];
    let planned = weir(&[&["apply"][..], &on, &["auto", "--dry-run", "--json"]].concat());
    assert!(planned.stdout.contains("\"nft\""), "{}", planned.stdout);
    for engine in ["nft", "xtables"] {
        let applied = weir(&[&["apply"][..], &on, &[engine]].concat());
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        let verified = weir(&[&["verify"][..], &on, &[engine]].concat());
        assert_eq!(verified.code, 0, "{}", verified.stdout);
    }
    assert_eq!(weir(&["clean", "--netns", &ns]).code, 0);
    let filter = |text: &str| {
        let is_like = |l: &&str| l.contains("ISTIO_LIKE");
        text.lines()
            .filter(is_like)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(filter(&saved(&pod)), filter(&before));
    assert_eq!(filter(&before).len(), 6, "{before}");
}

#[test]
fn another_configuration_takes_the_place_of_the_first() {
    let (pod, twin) = (legacy_pod_or_skip!(), legacy_pod_or_skip!());
    load(&pod, FOREIGN);
    load(&twin, FOREIGN);
    assert_eq!(sidecar("apply", &pod, &everything("net2,net3")).code, 0);
    assert_eq!(sidecar("apply", &pod, &everything("net4")).code, 0);
    assert_eq!(sidecar("apply", &twin, &everything("net4")).code, 0);
    assert_eq!(saved(&pod), saved(&twin));
}

/// The real tools rewrite a table that contains rules of weir; weir still recognizes its own.
#[test]
fn the_sign_outlives_the_tools() {
    let pod = legacy_pod_or_skip!();
    each_tool(
        &pod,
        &["-t nat -P INPUT ACCEPT", "-t mangle -P INPUT ACCEPT"],
    );
    let before = saved(&pod);
    assert_eq!(sidecar("apply", &pod, &everything("net1,net2")).code, 0);
    each_tool(
        &pod,
        &[
            "-t mangle -I PREROUTING 2 -p udp -j ACCEPT",
            "-t mangle -D OUTPUT -o net2 -j RETURN",
            "-t nat -D PREROUTING -i net1 -j RETURN",
            "-t mangle -D PREROUTING -p udp -j ACCEPT",
        ],
    );
    assert_eq!(weir(&["clean", "--netns", &path(&pod)]).code, 0);
    assert_eq!(saved(&pod), before);
}

/// Rules of upstream's installer lack the signature of weir. A cleanup recognizes them by the configuration: of the rules that equal a
/// planned one, it removes the last.
#[test]
fn a_cleanup_with_the_configuration_takes_what_upstream_made() {
    let pod = legacy_pod_or_skip!();
    load(&pod, FOREIGN);
    let before = saved(&pod);
    let file = everything("net2");
    let planned = weir(&[
        "plan",
        "sidecar",
        "--config",
        file.path(),
        "--engine",
        "xtables",
    ]);
    let rules: Vec<&str> = planned.stdout.lines().collect();
    let second = rules.iter().position(|l| *l == "# ip6tables-save").unwrap();
    let (v4, v6) = rules.split_at(second);
    for (lines, tool) in [v4, v6].into_iter().zip(TOOLS) {
        let lines = lines.iter().filter(|l| !l.starts_with("ip "));
        let text = TempFile::new(&lines.map(|l| format!("{l}\n")).collect::<String>());
        inside(
            &pod,
            &format!("{tool}-restore"),
            &["--noflush", text.path()],
        );
    }

    let only = std::fs::read_to_string(file.path()).unwrap();
    let mut only: serde_json::Value = serde_json::from_str(&only).unwrap();
    only["cleanup_only"] = json!(true);
    let cleaned = sidecar("apply", &pod, &TempFile::new(&only.to_string()));
    assert_eq!(cleaned.code, 0, "{}", cleaned.stderr);
    let after = saved(&pod);
    // The real tool resets the counters of the policies.
    let rules = |text: &str| -> Vec<String> {
        let rules = text.lines().filter(|l| l.starts_with('['));
        rules.map(str::to_owned).collect()
    };
    assert_eq!(rules(&after), rules(&before));
    assert!(!after.contains("ISTIO"), "{after}");
    // Without a chain of upstream, rules that equal its rules belong to another writer.
    let again = sidecar("apply", &pod, &TempFile::new(&only.to_string()));
    assert_eq!(again.stdout, "unchanged\n");
    assert_eq!(saved(&pod), after);
}

/// Thousands of foreign rules in a chain of weir are one line of the report, and weir removes them with one flush.
#[test]
fn a_chain_of_ours_with_very_many_foreign_rules_is_flushed() {
    let pod = legacy_pod_or_skip!();
    let file = config(&json!({}));
    let path = path(&pod);
    let on = |verb: &str| {
        let of = ["sidecar", "--config", file.path(), "--netns", &path];
        weir(&[&[verb], &of[..], &["--engine", "xtables"]].concat())
    };
    assert_eq!(on("apply").code, 0);
    let sync = saved(&pod);
    let flood = "-A ISTIO_OUTPUT -d 192.0.2.1/32 -j RETURN\n".repeat(3000);
    let flood = TempFile::new(&format!("*nat\n{flood}COMMIT\n"));
    let add = || {
        inside(
            &pod,
            "iptables-legacy-restore",
            &["--noflush", flood.path()],
        )
    };
    add();
    let verified = on("verify");
    assert_eq!(verified.code, 1, "{}", verified.stdout);
    assert!(
        verified.stdout.contains("-F ISTIO_OUTPUT"),
        "{}",
        verified.stdout
    );
    assert!(verified.stdout.lines().count() < 100, "{}", verified.stdout);
    assert_eq!(on("apply").code, 0);
    let rules = |text: &str| {
        text.lines()
            .filter(|l| l.contains("-A "))
            .map(|l| l.split_once("] ").unwrap().1.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(rules(&saved(&pod)), rules(&sync));
    assert_eq!(on("verify").code, 0);
    add();
    let cleaned = weir(&["clean", "--netns", &path]);
    assert_eq!(cleaned.code, 0, "{}", cleaned.stderr);
    assert!(cleaned.stdout.lines().count() < 100, "{}", cleaned.stdout);
    assert!(!saved(&pod).contains("ISTIO"));
}

/// The redirection is complete, but packets do not reach it: `verify` fails and names the cause.
#[test]
fn what_keeps_packets_from_our_rules_is_named_and_no_success() {
    let pod = legacy_pod_or_skip!();
    let file = everything("net1");
    assert_eq!(sidecar("apply", &pod, &file).code, 0);
    // No warning for foreign rules behind weir's, for rules without a verdict, and for chains that hold no rules of weir.
    each_tool(
        &pod,
        &[
            "-t nat -A OUTPUT -p udp --dport 9 -j ACCEPT",
            "-t mangle -I PREROUTING -p udp -j MARK --set-mark 9",
            "-t nat -I INPUT -j ACCEPT",
            "-t nat -I OUTPUT -p icmp -j ACCEPT",
            "-t nat -N COUNTS",
            "-t nat -A COUNTS -p tcp --dport 9 -j RETURN",
            "-t nat -I OUTPUT -j COUNTS",
        ],
    );
    // `iptables -P` refuses DROP in this table; `iptables-restore` accepts it.
    load(&pod, "*nat\n:INPUT DROP [0:0]\nCOMMIT\n");
    let verified = sidecar("verify", &pod, &file);
    assert_eq!(verified.code, 0, "{}", verified.stdout);
    assert!(!verified.stdout.contains("warning"), "{}", verified.stdout);
    let rule = "-t nat -I PREROUTING -p tcp -m tcp --dport 8080 -j ACCEPT";
    each_tool(&pod, &[rule]);
    load(&pod, "*nat\n:OUTPUT DROP [0:0]\nCOMMIT\n");
    let verified = sidecar("verify", &pod, &file);
    assert_eq!(verified.code, 1, "{}", verified.stdout);
    let lines: Vec<&str> = verified.stdout.lines().collect();
    assert!(lines[0].starts_with("conflict: "), "{}", verified.stdout);
    assert_eq!(lines.len(), 5, "{}", verified.stdout);
    for family in ["iptables", "ip6tables"] {
        for words in [
            format!(
                "warning: a foreign rule before ours takes its packets: {family} -t nat -A PREROUTING -p tcp -m tcp --dport 8080 -j ACCEPT;"
            ),
            format!(
                "warning: a foreign policy DROP of nat drops connections: {family} -t nat -P OUTPUT DROP;"
            ),
        ] {
            let said = lines.iter().filter(|l| l.starts_with(&words)).count();
            assert_eq!(said, 1, "{words}: {}", verified.stdout);
        }
    }
}

/// The kernel lists neither a network with prefix length 0 nor an interface pattern that matches every interface.
#[test]
fn our_own_rules_are_not_taken_for_foreign_ones() {
    for fields in [
        json!({ "outbound_ip_ranges_include": "0.0.0.0/0,::/0", "reroute_virtual_interfaces": "k6t-a" }),
        json!({ "reroute_virtual_interfaces": "+" }),
        json!({ "exclude_interfaces": "+" }),
    ] {
        let (pod, file) = (legacy_pod_or_skip!(), config(&fields));
        assert_eq!(sidecar("apply", &pod, &file).code, 0, "{fields}");
        let verified = sidecar("verify", &pod, &file);
        assert_eq!(verified.code, 0, "{fields}: {}", verified.stdout);
    }
}
