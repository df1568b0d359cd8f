//! Legacy tables, the choice between the engines, and the change from one engine to the other.

use crate::support::{config, inside, path, tproxy, weir};
use serde_json::json;
use weir_netlink::Netns;

/// The rules and tables that the real tools list, without dates and counters.
fn saved(pod: &Netns) -> String {
    let mut text = inside(pod, "iptables-legacy-save", &[]);
    text += &inside(pod, "ip6tables-legacy-save", &[]);
    let rules = text
        .lines()
        .filter(|l| l.starts_with("-A") || l.starts_with('*'));
    rules.map(|l| format!("{l}\n")).collect()
}

fn table_names(pod: &Netns) -> (Vec<u8>, Vec<u8>) {
    let read = |name: &str| std::fs::read(format!("/proc/thread-self/net/{name}")).unwrap();
    pod.run(|| (read("ip_tables_names"), read("ip6_tables_names")))
        .unwrap()
}

#[test]
fn legacy_tables_come_are_found_and_go() {
    let pod = legacy_pod_or_skip!();
    let (ns, file) = (path(&pod), tproxy());
    let on = [
        "--config",
        file.path(),
        "--netns",
        &ns,
        "--engine",
        "xtables",
    ];
    let with = |verb: &'static str| [&[verb, "sidecar"][..], &on[..]].concat();
    inside(
        &pod,
        "iptables-legacy",
        &["-t", "nat", "-A", "OUTPUT", "-d", "203.0.113.9"],
    );

    assert_eq!(weir(&with("verify")).code, 1);
    let applied = weir(&with("apply"));
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let listed = saved(&pod);
    assert!(
        listed.contains("-A OUTPUT -d 203.0.113.9/32\n-A OUTPUT -j ISTIO_OUTPUT\n"),
        "{listed}"
    );
    assert!(
        listed.contains("--on-port 15006 --on-ip :: --tproxy-mark 0x539/0xffffffff"),
        "{listed}"
    );
    assert!(inside(&pod, "ip", &["rule"]).contains("fwmark 0x539 lookup 133"));

    let verified = weir(&with("verify"));
    assert_eq!(verified.code, 0, "{}", verified.stdout);
    let again = weir(&with("apply"));
    assert_eq!((again.code, again.stdout.as_str()), (0, "unchanged\n"));

    inside(
        &pod,
        "iptables-legacy",
        &["-t", "nat", "-F", "ISTIO_REDIRECT"],
    );
    let drift = weir(&with("verify"));
    assert_eq!(drift.code, 1);
    assert!(drift.stdout.contains("ISTIO_REDIRECT"), "{}", drift.stdout);
    // Without `--engine` weir finds the engine that is in use.
    let healed = weir(&["apply", "sidecar", "--config", file.path(), "--netns", &ns]);
    assert_eq!(healed.stdout.lines().count(), 1, "{}", healed.stdout);
    assert_eq!(saved(&pod), listed);
    assert_eq!(inside(&pod, "nft", &["list", "ruleset"]), "");

    assert_eq!(weir(&["clean", "--netns", &ns]).code, 0);
    let left = saved(&pod);
    assert!(!left.contains("ISTIO"), "{left}");
    assert!(left.contains("203.0.113.9"), "{left}");
    assert_eq!(weir(&["clean", "--netns", &ns]).stdout, "unchanged\n");
}

#[test]
fn one_engine_takes_over_from_the_other() {
    let pod = legacy_pod_or_skip!();
    let (ns, file) = (path(&pod), config(&json!({})));
    let apply = |engine: &str| {
        weir(&[
            "apply",
            "sidecar",
            "--config",
            file.path(),
            "--netns",
            &ns,
            "--engine",
            engine,
        ])
    };
    assert_eq!(apply("xtables").code, 0);
    let to_nft = apply("nft");
    assert_eq!(to_nft.code, 0, "{}", to_nft.stderr);
    // The new rules are installed before the old ones are removed.
    let lines: Vec<&str> = to_nft.stdout.lines().collect();
    let last_new = lines.iter().rposition(|l| l.starts_with("add ")).unwrap();
    let first_old = lines.iter().position(|l| l.contains("ISTIO")).unwrap();
    assert!(last_new < first_old, "{}", to_nft.stdout);
    assert!(!saved(&pod).contains("ISTIO"));
    let verify = ["verify", "sidecar", "--config", file.path(), "--netns", &ns];
    let verified = weir(&[&verify[..], &["--engine", "nft"]].concat());
    assert_eq!(verified.code, 0, "{}", verified.stdout);
    // It looks for no programs, and for no rules of ambient mode.
    let alone = verified.stdout.ends_with(" holds the redirection\n");
    assert!(alone, "{}", verified.stdout);

    let back = apply("xtables");
    assert_eq!(back.code, 0, "{}", back.stderr);
    assert_eq!(inside(&pod, "nft", &["list", "ruleset"]), "");
    assert!(saved(&pod).contains("ISTIO_OUTPUT"));
    assert_eq!(apply("auto").stdout, "unchanged\n");
}

#[test]
fn the_choice_leaves_no_trace_in_legacy_tables() {
    let pod = legacy_pod_or_skip!();
    let (ns, file) = (path(&pod), config(&json!({})));
    let before = table_names(&pod);
    assert_eq!(before, (Vec::new(), Vec::new()));
    for args in [
        &["verify", "sidecar", "--config", file.path(), "--netns", &ns][..],
        &[
            "apply",
            "sidecar",
            "--config",
            file.path(),
            "--netns",
            &ns,
            "--dry-run",
        ],
        &[
            "verify",
            "sidecar",
            "--config",
            file.path(),
            "--netns",
            &ns,
            "--engine",
            "xtables",
        ],
        &["show", "--netns", &ns, "--engine", "all"],
        &["apply", "sidecar", "--config", file.path(), "--netns", &ns],
        &["clean", "--netns", &ns],
    ] {
        let run = weir(args);
        assert!(run.code < 2, "{args:?}: {}", run.stderr);
        assert_eq!(table_names(&pod), before, "{args:?}");
    }
}

#[test]
fn legacy_tables_are_shown_as_the_tools_print_them() {
    let pod = legacy_pod_or_skip!();
    let (ns, file) = (path(&pod), config(&json!({})));
    let args = [
        "apply",
        "sidecar",
        "--config",
        file.path(),
        "--netns",
        &ns,
        "--engine",
        "xtables",
    ];
    assert_eq!(weir(&args).code, 0);
    let shown = weir(&["show", "--netns", &ns, "--engine", "xtables"]);
    let rules = shown
        .stdout
        .lines()
        .filter(|l| l.starts_with("-A") || l.starts_with('*'));
    assert_eq!(
        rules.map(|l| format!("{l}\n")).collect::<String>(),
        saved(&pod)
    );
}

/// For a pod, an automatically chosen engine writes the plugin's rules; for a configuration it writes upstream's rules.
///
/// With `--engine auto`, `verify` accepts either.
#[test]
fn what_is_chosen_for_a_pod_is_not_what_a_configuration_says() {
    let pod = pod_or_skip!();
    let ns = path(&pod);
    let address = ["address", "add", "10.1.2.3/32", "dev", "lo"];
    inside(&pod, "ip", &address);
    let file = config(&json!({ "enable_ipv6": false }));
    let of_pod = config(&json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "annotations": {"sidecar.istio.io/status": "{}"}},
        "spec": {"containers": [{"name": "app"}, {"name": "istio-proxy"}]},
    }));
    let run = |verb: &str, source: [&str; 2], engine: &str| {
        let run = weir(
            &[
                &[verb, "sidecar"],
                &source[..],
                &["--netns", &ns, "--engine", engine],
            ]
            .concat(),
        );
        assert!(run.code < 2, "{verb} {source:?} {engine}: {}", run.stderr);
        run
    };
    let (configured, wanted) = (["--config", file.path()], ["--pod", of_pod.path()]);
    let leaves_ipv6_alone =
        || inside(&pod, "nft", &["list", "ruleset"]).contains("meta nfproto ipv6 counter");
    for (source, is_left_alone) in [(configured, false), (wanted, true)] {
        run("apply", source, "auto");
        assert_eq!(leaves_ipv6_alone(), is_left_alone, "{source:?}");
        assert_eq!(run("apply", source, "auto").stdout, "unchanged\n");
        assert_eq!(run("verify", source, "auto").code, 0);
        assert_eq!(run("verify", source, "nft").code, i32::from(is_left_alone));
    }
    run("apply", wanted, "nft");
    assert!(!leaves_ipv6_alone());
    assert_eq!(run("verify", wanted, "auto").code, 0);
}
