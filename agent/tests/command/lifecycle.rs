//! apply, verify, show and clean, also repeatedly.

use crate::support::{config, inside, path, tproxy, weir};
use serde_json::{Value, json};

#[test]
fn a_redirection_comes_is_found_and_goes() {
    let pod = pod_or_skip!();
    let (ns, file) = (path(&pod), tproxy());
    let on = ["--config", file.path(), "--netns", &ns];
    let with = |verb: &'static str| [&[verb, "sidecar"][..], &on[..]].concat();

    let missing = weir(&with("verify"));
    assert_eq!(missing.code, 1, "{}", missing.stdout);
    assert!(
        missing.stdout.contains("holds no part of the redirection"),
        "{}",
        missing.stdout
    );

    let dry = weir(&[&with("apply")[..], &["--dry-run"]].concat());
    assert_eq!(dry.code, 0, "{}", dry.stderr);
    assert!(
        dry.stdout.lines().all(|l| l.starts_with("would ")),
        "{}",
        dry.stdout
    );
    assert_eq!(inside(&pod, "nft", &["list", "ruleset"]), "");

    let applied = weir(&with("apply"));
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let would: Vec<&str> = dry.stdout.lines().map(|l| &l["would ".len()..]).collect();
    let did: Vec<&str> = applied.stdout.lines().collect();
    assert_eq!(sorted(&did), sorted(&would));

    assert_eq!(
        weir(&["show", "--netns", &ns, "--engine", "nft"]).stdout,
        inside(&pod, "nft", &["list", "ruleset"])
    );
    assert!(inside(&pod, "ip", &["rule"]).contains("fwmark 0x539 lookup 133"));
    assert!(
        inside(&pod, "ip", &["-6", "route", "show", "table", "133"])
            .contains("local default dev lo")
    );

    let verified = weir(&with("verify"));
    assert_eq!(verified.code, 0, "{}", verified.stdout);
    let generation = generation(&pod);
    let again = weir(&with("apply"));
    assert_eq!((again.code, again.stdout.as_str()), (0, "unchanged\n"));
    assert_eq!(self::generation(&pod), generation, "something was written");

    let cleaned = weir(&["clean", "--netns", &ns]);
    assert_eq!(cleaned.code, 0, "{}", cleaned.stderr);
    assert_eq!(inside(&pod, "nft", &["list", "ruleset"]), "");
    assert!(!inside(&pod, "ip", &["rule"]).contains("133"));
    assert!(!inside(&pod, "ip", &["-6", "addr", "show", "dev", "lo"]).contains("::6"));
    let twice = weir(&["clean", "--netns", &ns]);
    assert_eq!((twice.code, twice.stdout.as_str()), (0, "unchanged\n"));
}

fn sorted<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let mut lines = lines.to_vec();
    lines.sort_unstable();
    lines
}

fn generation(pod: &weir_netlink::Netns) -> u32 {
    pod.run(|| {
        weir_netfilter::nft::NftEngine::open()
            .unwrap()
            .generation()
            .unwrap()
    })
    .unwrap()
}

#[test]
fn drift_is_found_named_and_healed_without_touching_the_rest() {
    let pod = pod_or_skip!();
    let (ns, file) = (path(&pod), config(&json!({})));
    let on = ["--config", file.path(), "--netns", &ns];
    assert_eq!(weir(&[&["apply", "sidecar"][..], &on].concat()).code, 0);
    let before = inside(&pod, "nft", &["list", "ruleset"]);
    // Handles show which rules were kept.
    let handles = || {
        inside(
            &pod,
            "nft",
            &[
                "-a",
                "list",
                "chain",
                "inet",
                "istio-proxy-nat",
                "istio-output",
            ],
        )
    };
    let kept = handles()
        .lines()
        .find(|l| l.contains("127.0.0.6"))
        .unwrap()
        .to_owned();
    let gone = handles()
        .lines()
        .find(|l| l.contains("ip daddr 127.0.0.1 counter"))
        .unwrap()
        .to_owned();
    let handle = gone.rsplit(' ').next().unwrap().to_owned();
    inside(
        &pod,
        "nft",
        &[
            "delete",
            "rule",
            "inet",
            "istio-proxy-nat",
            "istio-output",
            "handle",
            &handle,
        ],
    );
    inside(
        &pod,
        "nft",
        &[
            "insert",
            "rule",
            "inet",
            "istio-proxy-nat",
            "istio-inbound",
            "tcp",
            "dport",
            "22",
            "accept",
        ],
    );
    inside(&pod, "ip", &["-6", "addr", "del", "::6/128", "dev", "lo"]);

    let drift = weir(&[&["verify", "sidecar"][..], &on].concat());
    assert_eq!(drift.code, 1);
    for line in [
        "- missing     ip -6 address ::6/128 dev lo",
        "- missing     rule inet istio-proxy-nat istio-output position",
        "+ unexpected  rule inet istio-proxy-nat istio-inbound handle",
    ] {
        assert!(
            drift.stdout.lines().any(|l| l.starts_with(line)),
            "{line}\n{}",
            drift.stdout
        );
    }
    assert_eq!(drift.stdout.lines().count(), 4, "{}", drift.stdout);
    let json = weir(&[&["verify", "sidecar", "--json"][..], &on].concat());
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(
        (
            &json["verified"],
            json["differences"].as_array().unwrap().len()
        ),
        (&json!(false), 3)
    );

    let healed = weir(&[&["apply", "sidecar"][..], &on].concat());
    assert_eq!(healed.stdout.lines().count(), 3, "{}", healed.stdout);
    assert_eq!(inside(&pod, "nft", &["list", "ruleset"]), before);
    assert!(handles().contains(&kept));
}

#[test]
fn another_configuration_leaves_nothing_of_the_first() {
    let pod = pod_or_skip!();
    let (ns, first, second) = (
        path(&pod),
        tproxy(),
        config(&json!({ "enable_ipv6": false })),
    );
    assert_eq!(
        weir(&["apply", "sidecar", "--config", first.path(), "--netns", &ns]).code,
        0
    );
    let run = weir(&[
        "apply",
        "sidecar",
        "--config",
        second.path(),
        "--netns",
        &ns,
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout
            .contains("delete table inet istio-proxy-mangle\n"),
        "{}",
        run.stdout
    );
    assert!(!inside(&pod, "ip", &["rule"]).contains("133"));
    assert_eq!(
        inside(
            &pod,
            "ip",
            &["route", "show", "table", "all", "proto", "119"]
        ),
        ""
    );
    assert_eq!(
        weir(&[
            "verify",
            "sidecar",
            "--config",
            second.path(),
            "--netns",
            &ns
        ])
        .code,
        0
    );
}

#[test]
fn switches_of_the_configuration_are_honoured() {
    let pod = pod_or_skip!();
    let ns = path(&pod);
    let dry = config(&json!({ "dry_run": true }));
    let run = weir(&["apply", "sidecar", "--config", dry.path(), "--netns", &ns]);
    assert!(run.stdout.starts_with("would "), "{}", run.stdout);
    let skip = config(&json!({ "skip_rule_apply": true }));
    assert_eq!(
        weir(&["apply", "sidecar", "--config", skip.path(), "--netns", &ns]).stdout,
        "unchanged\n"
    );
    assert_eq!(inside(&pod, "nft", &["list", "ruleset"]), "");
    let real = config(&json!({}));
    assert_eq!(
        weir(&["apply", "sidecar", "--config", real.path(), "--netns", &ns]).code,
        0
    );
    let cleanup = config(&json!({ "cleanup_only": true }));
    assert_eq!(
        weir(&[
            "apply",
            "sidecar",
            "--config",
            cleanup.path(),
            "--netns",
            &ns
        ])
        .code,
        0
    );
    assert_eq!(inside(&pod, "nft", &["list", "ruleset"]), "");
}

#[test]
fn a_process_names_its_namespace_too() {
    let pod = pod_or_skip!();
    let ns = format!("--net={}", path(&pod));
    let mut child = std::process::Command::new("nsenter")
        .args([&ns, "sleep", "60"])
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let file = config(&json!({}));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    // Until nsenter has entered the namespace, the process is in the namespace of the test, which weir refuses.
    let run = loop {
        let run = weir(&["apply", "sidecar", "--config", file.path(), "--pid", &pid]);
        if run.code == 0 || std::time::Instant::now() > deadline {
            break run;
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(inside(&pod, "nft", &["list", "ruleset"]).contains("istio-proxy-nat"));
}

/// Another tool may encode the same rule with other expressions.
///
/// The report is one difference that explains this, instead of the same line twice.
#[test]
fn a_rule_of_another_encoding_is_named_as_that() {
    let pod = pod_or_skip!();
    let file = config(&json!({}));
    let ns = path(&pod);
    let on = ["--config", file.path(), "--netns", &ns, "--engine", "nft"];
    let sidecar = |verb: &str| weir(&[&[verb, "sidecar"][..], &on[..]].concat());
    assert_eq!(sidecar("apply").code, 0);
    let chain = ["inet", "istio-proxy-nat", "istio-output"];
    let list = [&["-a", "list", "chain"][..], &chain[..]].concat();
    let listed = || inside(&pod, "nft", &list);
    let before = listed();
    let line = before
        .lines()
        .find(|l| l.contains("ip daddr != 127.0.0.1 "));
    let (text, handle) = line.unwrap().trim().rsplit_once(" # handle ").unwrap();
    // This rule checks the family first, for the address match. nft prints that check at neither position.
    let text = text.replace("counter packets 0 bytes 0", "counter");
    let rule = format!("meta nfproto ipv4 {text}");
    let place = format!("{} handle {handle}", chain.join(" "));
    inside(&pod, "nft", &[&format!("replace rule {place} {rule}")]);
    let texts = |listed: &str| -> Vec<String> {
        let text = |l: &str| l.split(" # handle").next().unwrap().to_owned();
        listed.lines().map(text).collect()
    };
    assert_eq!(texts(&listed()), texts(&before), "nft lists it as before");
    let verified = sidecar("verify");
    assert_eq!(verified.code, 1, "{}", verified.stdout);
    let lines: Vec<&str> = verified.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", verified.stdout);
    assert!(lines[0].ends_with("in 1 place"), "{}", verified.stdout);
    for words in [
        "+ unexpected",
        "ip daddr != 127.0.0.1 ",
        "(reads as desired, other encoding: NFTA_META_KEY in expression 1 (meta))",
    ] {
        assert!(lines[1].contains(words), "{words}: {}", verified.stdout);
    }
    assert_eq!(sidecar("apply").code, 0);
    assert_eq!(sidecar("verify").code, 0);
}
