//! Invalid input of every kind produces one clear line, and nothing is changed.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use crate::support::{TempFile, config, inside, path, weir};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// Each command must fail with these words in one line of stderr and with an empty stdout.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    let run = weir(args);
    assert_eq!(run.code, code, "{args:?}\n{}{}", run.stdout, run.stderr);
    assert_eq!(run.stdout, "", "{args:?}");
    for word in words {
        assert!(
            run.stderr.contains(word),
            "{args:?}: {word:?} is not in: {}",
            run.stderr
        );
    }
}

/// Editors of other systems write a byte order mark at the start of a file.
#[test]
fn a_byte_order_mark_is_passed_over() {
    let pod = legacy_pod_or_skip!();
    let given = TempFile::new("\u{feff}{}");
    let planned = weir(&["plan", "sidecar", "--config", given.path()]);
    assert_eq!(planned.code, 0, "{planned:?}");
    let text = TempFile::new("\u{feff}*filter\n:OWN - [0:0]\nCOMMIT\n");
    let restored = weir(&["restore", "--netns", &path(&pod), text.path()]);
    assert_eq!(restored.code, 0, "{restored:?}");
    let listed = inside(&pod, "iptables-legacy-save", &["-t", "filter"]);
    assert!(listed.contains(":OWN "), "{listed}");
}

#[test]
fn a_configuration_that_cannot_be_used() {
    let pod = pod_or_skip!();
    let ns = path(&pod);
    for (fields, words) in [
        (
            json!({ "proxy_prot": "15001" }),
            &["proxy_prot", "unknown field"][..],
        ),
        (json!({ "proxy_port": "http" }), &["proxy_port", "http"]),
        (
            json!({ "outbound_ports_exclude": "*" }),
            &["outbound_ports_exclude", "*"],
        ),
        (
            json!({ "outbound_ip_ranges_include": "10.0.0.0/33" }),
            &["outbound_ip_ranges_include", "10.0.0.0/33"],
        ),
        (
            json!({ "outbound_ip_ranges_exclude": "*" }),
            &["outbound_ip_ranges_exclude"],
        ),
        (
            json!({ "proxy_uid": "nobody-has-this-name" }),
            &["proxy_uid", "nobody-has-this-name"],
        ),
        (
            json!({ "inbound_interception_mode": "TPROXY", "inbound_tproxy_mark": "0x539" }),
            &["inbound_tproxy_mark", "0x539"],
        ),
        (
            json!({ "host_ipv4_loopback_cidr": "10.0.0.1/8" }),
            &["host_ipv4_loopback_cidr"],
        ),
        (
            json!({ "exclude_interfaces": "an-interface-with-a-long-name" }),
            &["exclude_interfaces"],
        ),
    ] {
        let file = config(&fields);
        refused(
            &["apply", "sidecar", "--config", file.path(), "--netns", &ns],
            2,
            words,
        );
    }
    let broken = TempFile::new("{ \"proxy_port\": ");
    refused(
        &["plan", "sidecar", "--config", broken.path()],
        2,
        &[broken.path()],
    );
    refused(
        &["plan", "sidecar", "--config", "/nowhere.json"],
        2,
        &["/nowhere.json", "No such file"],
    );
    assert_eq!(inside(&pod, "nft", &["list", "ruleset"]), "");
}

#[test]
fn a_manifest_that_cannot_be_used() {
    let with = |annotation: &str, value: &str| {
        format!(
            "kind: Pod\nmetadata:\n  name: web\n  annotations:\n    sidecar.istio.io/status: ''\n    \
             {annotation}: {value}\nspec:\n  containers:\n  - name: istio-proxy\n"
        )
    };
    for (text, words) in [
        (
            "kind: Deployment\nspec: {}\n".to_owned(),
            &["Deployment"][..],
        ),
        ("a: [".to_owned(), &[]),
        (
            with("traffic.sidecar.istio.io/includeInboundPorts", "'80,'"),
            &["includeInboundPorts"],
        ),
        (
            with("sidecar.istio.io/interceptionMode", "NONE"),
            &["interceptionMode", "NONE"],
        ),
        (
            with(
                "traffic.sidecar.istio.io/excludeOutboundIPRanges",
                "10.0.0.1",
            ),
            &["excludeOutboundIPRanges", "10.0.0.1"],
        ),
        (
            with("traffic.sidecar.istio.io/excludeInterfaces", "8080"),
            &["excludeInterfaces"],
        ),
    ] {
        let file = TempFile::new(&text);
        refused(&["plan", "sidecar", "--pod", file.path()], 2, words);
    }
}

#[test]
fn a_namespace_that_cannot_be_used() {
    let file = config(&json!({}));
    let on = |ns: &str, words: &[&str]| {
        for verb in ["apply", "verify"] {
            let run = weir(&[verb, "sidecar", "--config", file.path(), "--netns", ns]);
            assert_eq!(run.code, 2, "{verb} {ns}: {}", run.stderr);
            for word in words {
                assert!(
                    run.stderr.contains(word),
                    "{word:?} is not in: {}",
                    run.stderr
                );
            }
        }
        assert_eq!(weir(&["clean", "--netns", ns]).code, 2);
    };
    on("/nowhere/netns", &["/nowhere/netns"]);
    on("/etc/passwd", &["/etc/passwd", "network namespace"]);
    on("/proc/self/ns/mnt", &["/proc/self/ns/mnt"]);
    on("/proc/self/ns/net", &["/proc/self/ns/net"]);
    let run = weir(&[
        "apply",
        "sidecar",
        "--config",
        file.path(),
        "--pid",
        "4294967",
    ]);
    assert_ne!(run.code, 0);
    assert!(run.stderr.contains("4294967"), "{}", run.stderr);
}

#[test]
fn arguments_that_make_no_sense() {
    for args in [
        &["apply", "sidecar"][..],
        &["plan", "sidecar", "--config", "a", "--pod", "b"],
        &["show"],
        &["show", "--pid", "1", "--netns", "x"],
        &["frobnicate"],
        &["plan", "sidecar", "--config", "a", "--engine", "ebtables"],
    ] {
        let run = weir(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "");
    }
}

/// Weir tells a waiting user which pipe it reads, and continues when data arrives.
#[test]
fn a_pipe_without_a_writer_is_named() {
    let pipe = TempFile::new("");
    std::fs::remove_file(pipe.path()).unwrap();
    nix::unistd::mkfifo(pipe.path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["plan", "sidecar", "--config", pipe.path()]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut said).unwrap();
    assert!(
        said.contains("no data from") && said.contains(pipe.path()),
        "{said}"
    );
    std::fs::write(pipe.path(), "{}").unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_text_without_an_end_is_refused() {
    refused(
        &["plan", "sidecar", "--config", "/dev/zero"],
        2,
        &["cannot read /dev/zero", "more than 4 MiB"],
    );
}
