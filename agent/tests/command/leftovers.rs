//! The rules that upstream's installer wrote with the real `iptables-nft` are found, replaced and removed; the rest of those tables stays.

use crate::support::{TempFile, config, inside, path, tproxy, weir};
use serde_json::json;
use weir_netlink::Netns;

const TOOLS: [(&str, &str, &str); 2] = [
    ("iptables-nft-restore", "iptables-nft", "iptables-nft-save"),
    (
        "ip6tables-nft-restore",
        "ip6tables-nft",
        "ip6tables-nft-save",
    ),
];

/// Rules of another writer, with counters that differ from zero.
const FOREIGN: &str = "
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:SOMEBODY - [0:0]
:NOT_ISTIO_OUTPUT - [0:0]
[11:1100] -A OUTPUT -p tcp -m multiport --dports 7,9 -j SOMEBODY
[12:1200] -A OUTPUT -m owner --uid-owner 4242 -m comment --comment \"to ISTIO_OUTPUT\" -j NOT_ISTIO_OUTPUT
[13:1300] -A POSTROUTING -m mark --mark 0x4/0xf -j MASQUERADE
[14:1400] -A SOMEBODY -m recent --set --name istio --rsource
COMMIT
*filter
:INPUT ACCEPT [0:0]
:ISTIO_LIKE - [0:0]
[15:1500] -A INPUT -p tcp --dport 22 -j ACCEPT
[16:1600] -A INPUT -j ISTIO_LIKE
[17:1700] -A ISTIO_LIKE -p tcp --dport 23 -j ACCEPT
COMMIT
";

/// Adds rules in the notation of `iptables-save` to nf_tables with the real tools.
fn load(pod: &Netns, file: &str) {
    let planned = weir(&["plan", "sidecar", "--config", file, "--engine", "xtables"]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    let is_rules = |l: &&str| !l.starts_with("ip ");
    let rules: Vec<&str> = planned.stdout.lines().filter(is_rules).collect();
    let second = rules.iter().position(|l| *l == "# ip6tables-save").unwrap();
    let (v4, v6) = rules.split_at(second);
    for (lines, (restore, ..)) in [v4, v6].into_iter().zip(TOOLS) {
        let text = TempFile::new(&format!("{}\n", lines.join("\n")));
        inside(pod, restore, &["--noflush", text.path()]);
    }
}

fn load_foreign(pod: &Netns) {
    let text = TempFile::new(FOREIGN);
    for (restore, ..) in TOOLS {
        inside(pod, restore, &["--counters", text.path()]);
    }
}

/// The output of the tools, with counters and without dates.
fn saved(pod: &Netns) -> String {
    let texts = TOOLS.map(|(.., save)| inside(pod, save, &["--counters"]));
    let lines = texts
        .iter()
        .flat_map(|t| t.lines())
        .filter(|l| !l.starts_with('#'));
    lines.map(|l| format!("{l}\n")).collect()
}

/// Also lists the handles, to detect a rule that was removed and added again.
fn handles(pod: &Netns) -> String {
    let tables = ["nat", "filter"]
        .iter()
        .flat_map(|t| [("ip", *t), ("ip6", *t)]);
    tables
        .map(|(family, t)| inside(pod, "nft", &["-a", "list", "table", family, t]))
        .collect()
}

#[test]
fn apply_replaces_what_iptables_nft_left() {
    for engine in ["auto", "nft", "xtables"] {
        let pod = legacy_pod_or_skip!();
        let (ns, file) = (path(&pod), config(&json!({})));
        load_foreign(&pod);
        let (foreign, numbered) = (saved(&pod), handles(&pod));
        load(&pod, file.path());
        assert!(
            saved(&pod).contains("-A OUTPUT -j ISTIO_OUTPUT"),
            "{}",
            saved(&pod)
        );
        let on = ["--config", file.path(), "--netns", &ns, "--engine", engine];
        let with = |verb: &'static str| [&[verb, "sidecar"][..], &on[..]].concat();

        let found = weir(&with("verify"));
        assert_eq!(found.code, 1, "{}", found.stdout);
        for object in ["chain ip nat ISTIO_OUTPUT", "rule ip6 nat OUTPUT handle "] {
            let line = format!("unexpected  {object}");
            assert!(found.stdout.contains(&line), "{line}: {}", found.stdout);
        }

        let applied = weir(&with("apply"));
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        // The new rules are installed before the old ones are removed.
        let lines: Vec<&str> = applied.stdout.lines().collect();
        let last_old = lines
            .iter()
            .rposition(|l| l.contains(" ISTIO_") && l.starts_with("delete "))
            .unwrap();
        let first_old = lines.iter().position(|l| l.starts_with("delete ")).unwrap();
        assert_eq!(
            (lines.len() - 1, true),
            (last_old, first_old > 0),
            "{}",
            applied.stdout
        );

        assert_eq!(saved(&pod), foreign);
        assert_eq!(handles(&pod), numbered);
        assert_eq!(weir(&with("verify")).code, 0);
        assert_eq!(weir(&with("apply")).stdout, "unchanged\n");
        let nft = inside(&pod, "nft", &["list", "tables"]).contains("table inet istio-proxy-nat");
        assert_eq!(nft, engine != "xtables");
        let legacy =
            inside(&pod, "iptables-legacy-save", &[]).contains("-A OUTPUT -j ISTIO_OUTPUT");
        assert_eq!(legacy, engine == "xtables");
    }
}

#[test]
fn clean_removes_what_iptables_nft_left() {
    let pod = legacy_pod_or_skip!();
    let ns = path(&pod);
    load_foreign(&pod);
    let foreign = saved(&pod);
    load(&pod, config(&json!({})).path());
    let cleaned = weir(&["clean", "--netns", &ns]);
    assert_eq!(cleaned.code, 0, "{}", cleaned.stderr);
    assert_eq!(saved(&pod), foreign);
    assert_eq!(weir(&["clean", "--netns", &ns]).stdout, "unchanged\n");
}

/// If another writer changes the ruleset first, the removal reads it again: neither side loses a rule.
#[test]
fn another_writer_loses_nothing() {
    let pod = legacy_pod_or_skip!();
    let (ns, file) = (path(&pod), config(&json!({})));
    load(&pod, file.path());
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 1..=60 {
                let port = n.to_string();
                let rule = [
                    "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", &port, "-j", "RETURN",
                ];
                inside(&pod, "iptables-nft", &rule);
            }
        });
        while !writer.is_finished() {
            let cleaned = weir(&["clean", "--netns", &ns]);
            assert_eq!(cleaned.code, 0, "{}", cleaned.stderr);
            load(&pod, file.path());
        }
    });
    assert_eq!(weir(&["clean", "--netns", &ns]).code, 0);
    let left = saved(&pod);
    assert!(!left.contains("ISTIO"), "{left}");
    assert_eq!(left.matches("--dport").count(), 60, "{left}");
}

/// Removes chains that call each other, in a table that contains nothing else.
///
/// A rule of a built-in chain that is no jump does not show who wrote it.
#[test]
fn tables_and_other_people_s_rules_are_left() {
    let pod = legacy_pod_or_skip!();
    let (ns, file) = (path(&pod), tproxy());
    load_foreign(&pod);
    load(&pod, file.path());
    assert!(saved(&pod).contains(":ISTIO_TPROXY "), "{}", saved(&pod));
    let applied = weir(&["apply", "sidecar", "--config", file.path(), "--netns", &ns]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let left = saved(&pod);
    let others = left.replace(":ISTIO_LIKE ", "");
    assert!(!others.contains(":ISTIO_"), "{left}");
    assert!(
        left.contains("*mangle\n") && left.contains("*nat\n"),
        "{left}"
    );
    assert!(left.contains("-j SOMEBODY"), "{left}");
    assert!(!left.contains("--save-mark"), "{left}");
    assert!(inside(&pod, "nft", &["list", "tables"]).contains("table inet istio-proxy-mangle"));
}

/// With the plan they can be recognized, as in legacy tables.
#[test]
fn plain_rules_of_builtin_chains_go_with_the_plan_that_names_them() {
    let pod = legacy_pod_or_skip!();
    let ns = path(&pod);
    load_foreign(&pod);
    // This foreign rule equals one of the plan, and precedes it.
    let twin = ["-t", "mangle", "-A", "OUTPUT", "-o", "net1", "-j", "RETURN"];
    inside(&pod, "iptables-nft", &twin);
    let rules = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|l| l.starts_with('['));
        lines.map(str::to_owned).collect()
    };
    let foreign = rules(&saved(&pod));
    let fields = |cleanup: bool| {
        config(&json!({
            "inbound_interception_mode": "TPROXY", "drop_invalid": true, "redirect_dns": true,
            "capture_all_dns": true, "exclude_interfaces": "net1", "cleanup_only": cleanup,
        }))
    };
    load(&pod, fields(false).path());
    assert!(saved(&pod).contains("--save-mark"), "{}", saved(&pod));
    let file = fields(true);
    let on = ["apply", "sidecar", "--config", file.path(), "--netns", &ns];
    let cleaned = weir(&on);
    assert_eq!(cleaned.code, 0, "{}", cleaned.stderr);
    assert_eq!(rules(&saved(&pod)), foreign);
    // Without a chain of upstream beside it, the twin belongs to another writer.
    assert_eq!(weir(&on).stdout, "unchanged\n");
    assert_eq!(rules(&saved(&pod)), foreign);
}

#[test]
fn a_listing_marks_the_tables_and_reads_the_matches() {
    let pod = legacy_pod_or_skip!();
    let ns = path(&pod);
    load_foreign(&pod);
    let shown = weir(&["show", "--netns", &ns]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for part in [
        "# Warning: table ip nat is managed by iptables-nft, do not touch!\ntable ip nat {\n",
        "xt match \"multiport\" [-m multiport --dports 7,9] counter packets 11 bytes 1100 jump SOMEBODY",
        "\ntable ip6 filter {\n",
    ] {
        assert!(shown.stdout.contains(part), "{part}\n{}", shown.stdout);
    }
    assert!(
        !shown.stdout.contains("table ip filter is managed"),
        "{}",
        shown.stdout
    );
    let json = weir(&["show", "--json", "--netns", &ns]);
    let shown: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    let tables = shown["nft"].as_array().unwrap().iter();
    let marks = tables.map(|t| format!("{} {} {}", t["family"], t["name"], t["managedBy"]));
    let marks: Vec<String> = marks.map(|m| m.replace('"', "")).collect();
    assert!(
        marks.contains(&"ip nat iptables-nft".to_owned()),
        "{marks:?}"
    );
    assert!(marks.contains(&"ip filter null".to_owned()), "{marks:?}");
}
