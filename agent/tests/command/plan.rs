//! `weir plan`: text and JSON, without the kernel.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use crate::support::{Run, TempFile, config, inside, path, weir};
use serde_json::{Value, json};

const POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
  annotations:
    sidecar.istio.io/status: '{}'
    traffic.sidecar.istio.io/includeOutboundIPRanges: 10.96.0.0/12
spec:
  containers:
  - name: app
  - name: istio-proxy
    securityContext: { runAsUser: 1500 }
";

#[test]
fn a_plan_is_what_nft_would_list_and_what_ip_would_add() {
    let file = config(&json!({ "inbound_interception_mode": "TPROXY" }));
    let run = weir(&["plan", "sidecar", "--config", file.path()]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout
            .starts_with("table inet istio-proxy-nat {\n\tchain "),
        "{}",
        run.stdout
    );
    for line in [
        "\t\ttype nat hook output priority -100; policy accept;",
        "\t\tmeta l4proto tcp counter packets 0 bytes 0 redirect to :15001",
        "\t\tmeta l4proto tcp ip6 daddr != ::1 tproxy ip6 to :15006 meta mark set 0x00000539 counter packets 0 bytes 0 accept",
        "ip -6 address add ::6/128 dev lo",
        "ip -4 rule add fwmark 0x539 lookup 133",
        "ip -4 route add local default dev lo scope host table 133",
    ] {
        assert!(
            run.stdout.lines().any(|l| l == line),
            "{line}\n{}",
            run.stdout
        );
    }
}

#[test]
fn the_other_engine_prints_what_iptables_save_would() {
    let file = config(&json!({}));
    let run = weir(&[
        "plan",
        "sidecar",
        "--config",
        file.path(),
        "--engine",
        "xtables",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout.contains("-A OUTPUT -j ISTIO_OUTPUT\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn json_names_every_chain_and_rule() {
    let file = config(&json!({}));
    let run = weir(&["plan", "sidecar", "--config", file.path(), "--json"]);
    let plan: Value = serde_json::from_str(&run.stdout).unwrap();
    let chains = plan["tables"][0]["chains"].as_array().unwrap();
    let output = chains.iter().find(|c| c["name"] == "output").unwrap();
    assert_eq!(output["hook"], "output");
    assert_eq!(output["priority"], -100);
    assert_eq!(
        output["rules"],
        json!(["counter packets 0 bytes 0 jump istio-output"])
    );
    assert_eq!(plan["routing"], json!(["ip -6 address add ::6/128 dev lo"]));
}

#[test]
fn a_pod_is_planned_from_its_manifest_and_addresses() {
    let pod = TempFile::new(POD);
    let v4 = weir(&[
        "plan",
        "sidecar",
        "--pod",
        pod.path(),
        "--address",
        "10.0.0.2/24",
    ]);
    assert_eq!(v4.code, 0, "{}", v4.stderr);
    assert!(v4.stdout.contains("meta skuid 1500"));
    assert!(v4.stdout.contains("ip daddr 10.96.0.0/12 counter"));
    assert!(!v4.stdout.contains("ip6"));
    let v6 = weir(&[
        "plan",
        "sidecar",
        "--pod",
        pod.path(),
        "--address",
        "fd00::2/64",
    ]);
    assert!(v6.stdout.contains("ip6 saddr ::6"));
    let none = weir(&["plan", "sidecar", "--pod", pod.path()]);
    assert_eq!(none.stdout, v4.stdout);
    assert!(none.stderr.contains("--address"), "{}", none.stderr);
}

#[test]
fn a_pod_that_wants_nothing_gets_nothing() {
    let pod = TempFile::new(&POD.replace("sidecar.istio.io/status", "other"));
    let run = weir(&["plan", "sidecar", "--pod", pod.path()]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""));
    assert!(
        run.stderr.contains("shop/web requests no redirection"),
        "{}",
        run.stderr
    );
}

/// Upstream's installer detects whether the pod has IPv6; a configuration must state it.
#[test]
fn ipv6_that_is_left_out_is_said() {
    let warned = |run: &Run, words: &str| {
        assert_eq!(run.code, 0, "{}", run.stderr);
        let said = run.stderr.contains(words) && run.stderr.contains("enable_ipv6");
        assert_eq!(
            (said, run.stderr.is_empty()),
            (!words.is_empty(), words.is_empty()),
            "{}",
            run.stderr
        );
    };
    for (fields, words) in [
        (json!({"dual_stack": true}), "dual_stack is true"),
        (json!({"enable_ipv6": true, "dual_stack": true}), ""),
        (json!({}), ""),
    ] {
        let file = TempFile::new(&fields.to_string());
        warned(&weir(&["plan", "sidecar", "--config", file.path()]), words);
    }
    let pod = pod_or_skip!();
    let ns = path(&pod);
    let apply = |fields: Value| {
        let file = TempFile::new(&fields.to_string());
        weir(&["apply", "sidecar", "--config", file.path(), "--netns", &ns])
    };
    // The loopback address does not show that the pod has IPv6.
    warned(&apply(json!({})), "");
    inside(
        &pod,
        "ip",
        &["-6", "address", "add", "fd00::2/64", "dev", "lo"],
    );
    warned(&apply(json!({})), "fd00::2 is IPv6");
    warned(&apply(json!({"enable_ipv6": false})), "");
    warned(&apply(json!({"enable_ipv6": true})), "");
}

/// As upstream fills in a configuration: the user named by `ENVOY_USER`, else 1337, and the group with the same number.
#[test]
fn a_configuration_without_the_proxys_ids_has_them_filled() {
    for (given, variables, uid, gid) in [
        (
            json!({ "proxy_uid": "", "proxy_gid": "" }),
            &[][..],
            1337,
            1337,
        ),
        (
            json!({ "proxy_uid": "", "proxy_gid": "7" }),
            &[("ENVOY_USER", "daemon")],
            1,
            7,
        ),
        (
            json!({ "proxy_uid": "5", "proxy_gid": "" }),
            &[("ENVOY_USER", "daemon")],
            5,
            5,
        ),
    ] {
        let file = config(&given);
        let args = ["plan", "sidecar", "--config", file.path()];
        let run = crate::support::weir_with(&args, variables);
        assert_eq!(run.code, 0, "{}", run.stderr);
        for owner in [format!("meta skuid {uid} "), format!("meta skgid {gid} ")] {
            assert!(run.stdout.contains(&owner), "{owner}: {}", run.stdout);
        }
    }
}
