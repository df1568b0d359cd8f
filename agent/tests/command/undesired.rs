//! A redirection that nothing requests or no longer requests, and the warnings about a configuration before it is applied.

use crate::support::{TempFile, config, inside, path, weir};
use serde_json::{Value, json};
use weir_netlink::Netns;

/// The manifest of a pod with these annotations and containers.
fn manifest(annotations: &Value, containers: &[&str]) -> TempFile {
    let containers: Vec<Value> = containers.iter().map(|c| json!({ "name": c })).collect();
    TempFile::new(
        &json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "annotations": annotations},
            "spec": {"containers": containers},
        })
        .to_string(),
    )
}

fn sidecar(verb: &str, source: &str, file: &TempFile, pod: &Netns) -> crate::support::Run {
    let ns = path(pod);
    weir(&[
        verb,
        "sidecar",
        source,
        file.path(),
        "--netns",
        &ns,
        "--json",
    ])
}

fn json_of(run: &crate::support::Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap()
}

#[test]
fn rules_of_a_pod_that_no_longer_asks_are_reported() {
    let pod = pod_or_skip!();
    inside(&pod, "ip", &["address", "add", "10.1.2.3/32", "dev", "lo"]);
    let status = json!({"sidecar.istio.io/status": "{}"});
    let proxied = ["app", "istio-proxy"];
    let wanted = manifest(&status, &proxied);
    let mut declined = status.clone();
    declined["sidecar.istio.io/inject"] = json!("false");
    let declined = manifest(&declined, &proxied);
    let by_itself = manifest(&status, &["app", "istio-proxy", "istio-init"]);

    for verb in ["verify", "apply"] {
        let nothing = sidecar(verb, "--pod", &declined, &pod);
        assert_eq!(nothing.code, 0, "{}", nothing.stderr);
        assert_eq!(json_of(&nothing)["redirected"], false, "{verb}");
    }
    assert_eq!(sidecar("apply", "--pod", &wanted, &pod).code, 0);

    let verified = sidecar("verify", "--pod", &declined, &pod);
    assert_eq!(verified.code, 1, "{}", verified.stdout);
    let said = json_of(&verified);
    assert_eq!(said["redirected"], true, "{said}");
    let unexpected = json!({"difference": "unexpected", "object": "table inet istio-proxy-nat"});
    let differences = said["differences"].as_array().unwrap();
    assert!(differences.contains(&unexpected), "{said}");

    let applied = sidecar("apply", "--pod", &declined, &pod);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    let said = json_of(&applied);
    assert_eq!(said["redirected"], true);
    let reason = said["reason"].as_str().unwrap();
    assert!(reason.contains("web requests no redirection"), "{reason}");
    let warning = said["warnings"][0].as_str().unwrap();
    let printed = format!("weir: warning: {warning}\n");
    assert!(warning.contains("weir clean"), "{warning}");
    assert!(applied.stderr.contains(&printed), "{}", applied.stderr);
    // The pod's own container writes these rules.
    assert_eq!(sidecar("verify", "--pod", &by_itself, &pod).code, 0);

    assert_eq!(weir(&["clean", "--netns", &path(&pod)]).code, 0);
    assert_eq!(sidecar("verify", "--pod", &declined, &pod).code, 0);
}

#[test]
fn a_configuration_that_cleans_up_is_compared_with_nothing() {
    let pod = pod_or_skip!();
    let (applied, cleaning) = (config(&json!({})), config(&json!({ "cleanup_only": true })));
    assert_eq!(sidecar("verify", "--config", &cleaning, &pod).code, 0);
    assert_eq!(sidecar("apply", "--config", &applied, &pod).code, 0);
    let verified = sidecar("verify", "--config", &cleaning, &pod);
    assert_eq!(verified.code, 1, "{}", verified.stdout);
    assert_eq!(json_of(&verified)["redirected"], true);
    assert_eq!(sidecar("apply", "--config", &cleaning, &pod).code, 0);
    let verified = sidecar("verify", "--config", &cleaning, &pod);
    assert_eq!(verified.code, 0, "{}", verified.stdout);
}

#[test]
fn a_plan_says_what_is_not_as_upstream() {
    let file = config(&json!({
        "force_iptables_binary": "nft", "force_apply": true, "run_validation": true, "cleanup_only": true,
    }));
    let planned = weir(&["plan", "sidecar", "--config", file.path()]);
    assert_eq!(planned.code, 0, "{}", planned.stderr);
    for field in [
        "force_iptables_binary",
        "force_apply",
        "run_validation has no effect",
        "cleanup_only: ",
    ] {
        assert!(planned.stderr.contains(field), "{}", planned.stderr);
    }
}

/// The address that the redirection adds does not count as an address of the pod.
#[test]
fn the_passthrough_address_is_none_of_the_pod() {
    let pod = pod_or_skip!();
    assert_eq!(
        sidecar("apply", "--config", &config(&json!({})), &pod).code,
        0
    );
    let only_ipv4 = TempFile::new(r#"{"proxy_uid": "1337", "inbound_ports_include": "*"}"#);
    let verified = sidecar("verify", "--config", &only_ipv4, &pod);
    assert!(!verified.stderr.contains("::6"), "{}", verified.stderr);
    let wanted = manifest(&json!({"sidecar.istio.io/status": "{}"}), &["istio-proxy"]);
    let verified = sidecar("verify", "--pod", &wanted, &pod);
    assert_ne!(verified.code, 0, "{}", verified.stdout);
    let text = &verified.stderr;
    assert!(text.contains("only loopback"), "{text}");
}
