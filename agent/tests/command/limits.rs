//! The maximum size of an intent.

use crate::support::{TempFile, config, inside, path, weir};
use serde_json::json;

/// `nft` reads the anonymous set of the rule, and weir finds the installed rules equal to the desired ones.
#[test]
fn many_included_groups_are_a_set_of_their_rule() {
    let pod = pod_or_skip!();
    let groups: Vec<String> = (0..63).map(|n| (2000 + 10 * n).to_string()).collect();
    for (more, rule) in [
        ("", "meta skgid != 2000 meta skgid != 2010"),
        (",3000", "meta skgid != { 2000, 2010"),
        (",2001-2003", "meta skgid != { 2000-2003, 2010"),
    ] {
        let list = groups.join(",") + more;
        let (ns, file) = (path(&pod), config(&json!({ "owner_groups_include": list })));
        let on = ["--config", file.path(), "--netns", &ns, "--engine", "nft"];
        let applied = weir(&[&["apply", "sidecar"][..], &on].concat());
        assert_eq!(applied.code, 0, "{}", applied.stderr);
        let again = weir(&[&["apply", "sidecar"][..], &on].concat());
        assert_eq!(again.stdout, "unchanged\n", "{}", again.stderr);
        let listed = inside(&pod, "nft", &["list", "ruleset"]);
        let words: Vec<&str> = listed.split_whitespace().collect();
        assert!(words.join(" ").contains(rule), "{rule}: {listed}");
    }
}

/// Any user who may create a pod may write this configuration. Weir refuses it at once, before any request to the kernel.
#[test]
fn more_rules_than_a_pod_may_have_are_refused() {
    let pod = pod_or_skip!();
    inside(
        &pod,
        "ip",
        &["address", "add", "10.244.0.5/32", "dev", "lo"],
    );
    let ports: Vec<String> = (1..=65_535).map(|p| p.to_string()).collect();
    let nets: Vec<String> = (0..=255).map(|n| format!("10.{n}.0.0/16")).collect();
    let names: Vec<String> = (0..=255).map(|n| format!("net{n}")).collect();
    let io = |name: &str| format!("traffic.sidecar.istio.io/{name}");
    let interfaces = "istio.io/reroute-virtual-interfaces".to_owned();
    for (annotations, named) in [
        (
            vec![(io("excludeInboundPorts"), &ports)],
            "excludeInboundPorts",
        ),
        (
            vec![(io("excludeOutboundPorts"), &ports)],
            "excludeOutboundPorts",
        ),
        (
            vec![(io("includeOutboundIPRanges"), &nets), (interfaces, &names)],
            "includeOutboundIPRanges",
        ),
    ] {
        let mut all = json!({ "sidecar.istio.io/status": "{}" });
        for (annotation, list) in annotations {
            all[annotation] = json!(list.join(","));
        }
        let manifest = json!({
            "kind": "Pod",
            "metadata": { "name": "web", "annotations": all },
            "spec": { "containers": [{ "name": "app" }, { "name": "istio-proxy" }] },
        });
        let (ns, file) = (path(&pod), TempFile::new(&manifest.to_string()));
        let refused = weir(&["apply", "sidecar", "--pod", file.path(), "--netns", &ns]);
        assert_eq!(refused.code, 2, "{}", refused.stderr);
        for part in [named, "elements", "rules", "4096"] {
            assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
        }
        assert!(refused.stderr.len() < 500, "{}", refused.stderr);
        assert_eq!(inside(&pod, "nft", &["list", "ruleset"]), "");
    }
}

/// The tables of another program may be too large to be read. Weir then does not know whether they take packets first, but detects drift.
#[test]
fn drift_is_reported_and_removed_where_a_foreign_table_is_too_large_to_be_read() {
    let pod = legacy_pod_or_skip!();
    let (ns, file) = (path(&pod), config(&json!({})));
    let on = ["--config", file.path(), "--netns", &ns, "--engine", "nft"];
    let run = |verb| weir(&[&[verb, "sidecar"][..], &on].concat());
    let applied = run("apply");
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    // A rule takes more than 400 bytes; weir reads at most 16 MiB.
    let rule = "-A OTHER -m comment --comment foreign -j RETURN\n";
    let rules = format!("*raw\n:OTHER - [0:0]\n{}COMMIT\n", rule.repeat(45_000));
    let large = TempFile::new(&rules);
    inside(
        &pod,
        "iptables-legacy-restore",
        &["--noflush", large.path()],
    );
    let unknown = run("verify");
    assert_eq!(unknown.code, 3, "{unknown:?}");
    inside(&pod, "nft", &["delete", "table", "inet", "istio-proxy-nat"]);
    let found = run("verify");
    assert_eq!(found.code, 1, "{found:?}");
    for part in [
        "table inet istio-proxy-nat",
        "warning: whether foreign rules take packets first is not known",
    ] {
        assert!(found.stdout.contains(part), "{part}: {}", found.stdout);
    }
    let applied = run("apply");
    assert_eq!(applied.code, 0, "{}", applied.stderr);
}
