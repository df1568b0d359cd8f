//! `weir demo` does what the README describes.
// matrix: every; smoke; variants all

use crate::rights::unmapped;
use crate::support::{exists, weir, weir_with};
use serde_json::Value;
use weir_cni::redirection;
use weir_netlink::Netns;
use weir_testing::{BpfFs, lacks};

#[test]
fn every_flow_goes_where_it_should_and_nothing_is_left() {
    shows(&["demo", "--json"], &[], 8);
}

#[test]
fn flows_of_ambient_mode_go_where_they_should_too() {
    shows(&["demo", "--ambient", "--json"], &[], 10);
}

#[test]
fn flows_of_pods_that_the_node_captures_go_where_they_should_too() {
    let kernel = weir(&["demo", "--node-ambient"]);
    if kernel.code != 0 && kernel.stderr.contains("not supported") {
        let reason = kernel.stderr.lines().last().unwrap_or_default();
        return lacks::skip("expression tproxy", "4.19", reason);
    }
    shows(&["demo", "--node-ambient", "--json"], &[], 10);
}

#[test]
fn flows_of_pods_that_programs_of_the_node_capture_go_where_they_should_too() {
    let Some(mounted) = BpfFs::mount() else {
        return;
    };
    let command = [
        "demo",
        "--node-ambient",
        "--engine",
        "ebpf",
        "--keep-going",
        "--json",
    ];
    let bpffs = mounted.path().to_str().unwrap();
    shows(&command, &[("WEIR_BPFFS", bpffs)], 10);
    let pins = std::fs::read_dir(mounted.path().join("weir/v2"));
    assert!(pins.into_iter().flatten().next().is_none());
}

#[test]
fn an_engine_is_refused_where_it_would_be_ignored() {
    for (mode, words) in [
        (&["--ambient"][..], "cannot be used with"),
        (&[], "--node-ambient"),
    ] {
        let run = weir(&[&["demo", "--engine", "ebpf"], mode].concat());
        assert_eq!(run.code, 2, "{mode:?}: {run:?}");
        assert!(run.stderr.contains(words), "{mode:?}: {run:?}");
    }
}

/// Checks that `weir demo` succeeds and shows at least `count` flows for each family.
fn shows(command: &[&str], variables: &[(&str, &str)], count: usize) {
    let run = weir_with(command, variables);
    let engines = Netns::create().and_then(|netns| netns.run(redirection::probe));
    if let Ok(Err(e)) = engines
        && e.is_unsupported()
        && !command.contains(&"ebpf")
    {
        assert_ne!(run.code, 0, "{}", run.stdout);
        return lacks::skip("family inet", "3.14", e);
    }
    if run.stderr.contains("needs root") {
        eprintln!("skipped: {}", run.stderr);
        return;
    }
    if let Some(reason) = unmapped([1337, 1000]) {
        // A single error names the missing mapping.
        let errors: Vec<_> = run.stderr.lines().filter(|l| l.contains("1337")).collect();
        assert!(
            errors.len() == 1 && errors[0].contains("/proc/self/uid_map"),
            "{}",
            run.stderr
        );
        assert_ne!(run.code, 0);
        println!("skipped: {reason}");
        return;
    }
    assert_eq!(run.code, 0, "{}\n{}", run.stdout, run.stderr);
    let shown: Value = serde_json::from_str(&run.stdout).unwrap();
    // On a kernel without IPv6 the demonstration shows IPv4 alone.
    let has_ipv6 = exists("/proc/sys/net/ipv6");
    let flows = shown["flows"].as_array().unwrap();
    assert!(
        flows.len() >= if has_ipv6 { 2 * count } else { count },
        "{}",
        flows.len()
    );
    for family in [".", ":"].into_iter().take(if has_ipv6 { 2 } else { 1 }) {
        let of = |captured: bool| {
            let to = |f: &&Value| f["sentTo"].as_str().unwrap().contains(family);
            flows.iter().filter(to).any(|f| f["captured"] == captured)
        };
        assert!(of(true) && of(false), "{family}");
    }
    // The output names the deciding rule for every captured flow.
    for flow in flows.iter().filter(|f| f["captured"] == true) {
        assert!(
            flow["decidedBy"].as_str().is_some_and(|r| [
                "istio-",
                "legacy tables",
                "connection mark 0x2",
                "the programs counted"
            ]
            .iter()
            .any(|word| r.contains(word))),
            "{flow}"
        );
    }
    assert_eq!(shown["leftBehind"], Value::Array(vec![]));
    let left = std::fs::read_dir(std::env::temp_dir())
        .unwrap()
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|n| n.starts_with("weir-demo-"))
        .filter(|n| !exists(&format!("/proc/{}", &n["weir-demo-".len()..])))
        // A demonstration of another test may have ended meanwhile.
        .filter(|n| std::env::temp_dir().join(n).exists())
        .collect::<Vec<_>>();
    assert!(left.is_empty(), "{left:?}");
}
