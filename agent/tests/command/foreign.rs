//! Tables of other programs stay as they are, rules and counters included, whatever weir does.
// matrix: newest

use crate::support::{config, inside, path, weir};
use serde_json::json;

const FOREIGN: &str = "
add table inet filter { comment \"somebody's\"; }
add chain inet filter input { type filter hook input priority 0; policy accept; }
add rule inet filter input ip saddr 10.0.0.0/8 counter packets 7 bytes 420 accept comment \"keep\"
add set inet filter allowed { type ipv4_addr; flags interval; }
add element inet filter allowed { 10.1.0.0/16 }
add table ip istio-proxy-nat
add chain ip istio-proxy-nat output
add rule ip istio-proxy-nat output counter packets 1 bytes 2
add table inet istio-proxy-nat-of-somebody
";

#[test]
fn foreign_tables_survive_apply_failure_and_clean() {
    let pod = pod_or_skip!();
    let text = crate::support::TempFile::new(FOREIGN);
    inside(&pod, "nft", &["-f", text.path()]);
    let foreign = inside(&pod, "nft", &["-a", "list", "ruleset"]);
    let ns = path(&pod);
    let file = config(&json!({}));
    assert_eq!(
        weir(&["apply", "sidecar", "--config", file.path(), "--netns", &ns]).code,
        0
    );
    let both = inside(&pod, "nft", &["-a", "list", "ruleset"]);
    assert!(both.starts_with(&foreign), "{both}");

    // The kernel refuses the address that IPv6 needs: no part of the redirection may remain.
    let clean = weir(&["clean", "--netns", &ns]);
    assert_eq!(clean.code, 0, "{}", clean.stderr);
    inside(&pod, "sysctl", &["-qw", "net.ipv6.conf.lo.disable_ipv6=1"]);
    let failed = weir(&["apply", "sidecar", "--config", file.path(), "--netns", &ns]);
    assert_eq!(failed.code, 1, "{}", failed.stdout);
    for part in ["::6", "net.ipv6.conf.lo.disable_ipv6=0"] {
        assert!(failed.stderr.contains(part), "{}", failed.stderr);
    }
    assert_eq!(inside(&pod, "nft", &["-a", "list", "ruleset"]), foreign);

    // After the cause is removed, `apply` succeeds.
    inside(&pod, "sysctl", &["-qw", "net.ipv6.conf.lo.disable_ipv6=0"]);
    assert_eq!(
        weir(&["apply", "sidecar", "--config", file.path(), "--netns", &ns]).code,
        0
    );
    assert_eq!(weir(&["clean", "--netns", &ns]).code, 0);
    assert_eq!(inside(&pod, "nft", &["-a", "list", "ruleset"]), foreign);
}

#[test]
fn routing_is_taken_back_when_the_rules_are_refused() {
    let pod = pod_or_skip!();
    let ns = path(&pod);
    let probe = std::process::Command::new("nsenter")
        .args([
            &format!("--net={ns}"),
            "nft",
            "add table inet probe { flags owner; }",
        ])
        .output()
        .unwrap();
    if !probe.status.success() {
        let why = String::from_utf8_lossy(&probe.stderr);
        return crate::lacks::skip("table flag owner", "5.12", why);
    }
    // Since 5.12 a process can own a table; no other process can then change it.
    let mut owner = std::process::Command::new("nsenter")
        .args([&format!("--net={ns}"), "nft", "-i"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Write as _;
    let mut stdin = owner.stdin.take().unwrap();
    stdin
        .write_all(b"add table inet istio-proxy-nat { flags owner; }\n")
        .unwrap();
    stdin.flush().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !inside(&pod, "nft", &["list", "tables"]).contains("istio-proxy-nat") {
        assert!(std::time::Instant::now() < deadline, "the owner never came");
    }
    let file = crate::support::tproxy();
    let run = weir(&["apply", "sidecar", "--config", file.path(), "--netns", &ns]);
    drop(stdin);
    let _ = owner.kill();
    owner.wait().unwrap();
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(
        !inside(&pod, "ip", &["rule"]).contains("133"),
        "{}",
        run.stderr
    );
    assert!(!inside(&pod, "ip", &["-6", "addr", "show", "dev", "lo"]).contains("::6"));
}

/// `weir apply` leaves a foreign object in a table of weir, and reports it as `weir verify` does.
#[test]
fn what_stays_in_a_table_of_ours_is_said_by_apply() {
    let pod = pod_or_skip!();
    let file = config(&json!({}));
    let path = path(&pod);
    let on = |verb: &str| {
        let of = ["sidecar", "--config", file.path(), "--netns", &path];
        weir(&[&[verb], &of[..], &["--engine", "nft"]].concat())
    };
    assert_eq!(on("apply").code, 0);
    inside(
        &pod,
        "nft",
        &["add", "counter", "inet", "istio-proxy-nat", "theirs"],
    );
    for verb in ["apply", "verify"] {
        let run = on(verb);
        assert_eq!(run.code, i32::from(verb == "verify"), "{}", run.stderr);
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(said.contains("theirs (of another writer"), "{said}");
    }
}

/// `weir apply` warns of foreign rules that take packets first, also if the redirection was installed before.
#[test]
fn foreign_rules_that_take_packets_first_are_said_by_apply() {
    let pod = pod_or_skip!();
    let ns = path(&pod);
    let table = "table inet theirs { chain c { type nat hook output priority -150; tcp dport 80 redirect to :9999; }; }";
    inside(&pod, "nft", &[table]);
    let sidecar = config(&json!({}));
    let ambient = crate::support::TempFile::new(r#"{"config": {"enable_ipv6": true}}"#);
    for (what, file) in [("sidecar", &sidecar), ("ambient", &ambient)] {
        let on = |verb: &str, more: &[&str]| {
            let of = [verb, what, "--config", file.path(), "--netns", &ns];
            weir(&[&of[..], more].concat())
        };
        let said =
            "takes packets before ours: table inet theirs chain c: tcp dport 80 redirect to :9999";
        for (more, is_changed) in [(&["--dry-run"][..], true), (&[], true), (&[], false)] {
            let run = on("apply", more);
            assert_eq!(run.code, 0, "{what}: {}", run.stderr);
            assert_eq!(run.stdout != "unchanged\n", is_changed, "{}", run.stdout);
            let warning = run.stderr.lines().find(|line| line.contains(said));
            let is_warning = |line: &str| line.starts_with("weir: warning: ");
            assert!(warning.is_some_and(is_warning), "{what}: {}", run.stderr);
        }
        let run = on("apply", &["--json"]);
        let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!((run.code, &json["changed"]), (0, &json!(false)));
        let verified = on("verify", &["--json"]);
        let verified: serde_json::Value = serde_json::from_str(&verified.stdout).unwrap();
        assert_eq!(json["warnings"], verified["warnings"], "{what}");
        assert_eq!(json["warnings"].as_array().unwrap().len(), 1, "{what}");
        // Without the redirection there is no warning.
        let clean = match what {
            "sidecar" => weir(&["clean", "--netns", &ns]),
            _ => weir(&["clean", "ambient", "--netns", &ns]),
        };
        assert_eq!(clean.code, 0, "{}", clean.stderr);
    }
    inside(&pod, "nft", &["delete", "table", "inet", "theirs"]);
    let run = weir(&[
        "apply",
        "sidecar",
        "--config",
        sidecar.path(),
        "--netns",
        &ns,
    ]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{}", run.stdout);
}
