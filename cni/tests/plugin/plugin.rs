//! ADD, CHECK, DEL, GC and STATUS with an API server over TLS and a fake
//! kernel.
// matrix: none: about values and programs, with no namespace, no rule and no kernel

use crate::common::agent::Agent;
use crate::common::api_server::{Answer, ApiServer};
use crate::common::call::FakeProcess;
use crate::common::node::Node;
use crate::common::pods;
use serde_json::{Value, json};
use weir_cni::compile::Engine;
use weir_cni::plugin::{Deviation, LOG_SOCKET};
use weir_cni::redirection::Difference;

fn sidecar_server() -> ApiServer {
    ApiServer::with_pod(pods::sidecar("shop", "web-0"), Value::Null)
}

#[test]
fn a_sidecar_pod_is_redirected_and_its_result_handed_on() {
    let server = sidecar_server();
    let mut node = Node::with_server(&server);
    let previous =
        json!({"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}], "x": {"y": 1}});
    node.config["prevResult"] = previous.clone();
    assert_eq!(node.verb("ADD").result(), previous);
    let applied = node.backend.applied();
    assert_eq!(applied.len(), 1);
    assert_eq!(applied[0].netns.to_str(), Some("/run/netns/does-not-exist"));
    assert_eq!(applied[0].engine, Some(Engine::Nft));
    assert_eq!(applied[0].dry_run_file, None);
    let request = server.asked().remove(0);
    let (method, path) = (request.method.as_str(), request.path.as_str());
    assert_eq!(
        (method, path),
        ("GET", "/api/v1/namespaces/shop/pods/web-0")
    );
    assert_eq!(request.headers["authorization"], "Bearer the-token");
    let name = concat!("weir-cni/", env!("CARGO_PKG_VERSION"));
    assert_eq!(request.headers["user-agent"], name);
    let log = node.dir.read(weir_cni::plugin::LOG_FILE);
    assert!(
        log.contains("\"pod\":\"shop/web-0\",\"if\":\"eth0\""),
        "{log}"
    );
}

/// At levels above info the plugin logs nothing about a good pod and does not wait for the agent.
#[test]
fn times_are_sent_at_level_info_and_below() {
    let server = sidecar_server();
    for (level, sent) in [
        ("debug", true),
        ("info", true),
        ("warn", false),
        ("error", false),
        ("none", false),
    ] {
        let mut node = Node::with_server(&server);
        node.config["plugin_log_level"] = level.into();
        let agent = Agent::listen(&node.dir.file(LOG_SOCKET), Some((200, "")));
        node.verb("ADD").result();
        if !sent {
            assert!(agent.is_untouched(), "{level}");
            continue;
        }
        let (_, body) = agent.request();
        let lines: Vec<String> = serde_json::from_str(&body).unwrap();
        let phases = lines.iter().filter(|l| l.contains("\"msg\":\"phases\""));
        let phases: Vec<_> = phases.collect();
        assert!(
            phases.len() == 1 && phases[0].contains("facts_us"),
            "{lines:?}"
        );
    }
}

/// Only legacy tables can be printed as text instead.
#[test]
fn dry_run_is_for_classic_tables_only() {
    let server = sidecar_server();
    for (native, file, expected) in [
        (false, "", None),
        (false, "/tmp/x", Some("/tmp/x")),
        (true, "/tmp/x", None),
    ] {
        let mut node = Node::with_server(&server);
        node.config["native_nftables"] = native.into();
        let process = node.process("ADD").set("DRY_RUN_FILE_PATH", file);
        node.run(&process).result();
        let applied = node.backend.applied();
        assert_eq!(applied[0].dry_run_file, expected.map(Into::into), "{file}");
        assert_eq!(applied[0].engine, native.then_some(Engine::Nft));
    }
}

#[test]
fn without_previous_result() {
    let server = sidecar_server();
    for (version, result) in [
        ("1.1.0", json!({"cniVersion": "1.1.0"})),
        ("1.0.0", json!({"cniVersion": "1.0.0"})),
        ("0.4.0", json!({"cniVersion": "0.4.0", "dns": {}})),
        ("0.3.1", json!({"cniVersion": "0.3.1", "dns": {}})),
        ("0.3.0", json!({"cniVersion": "0.3.0", "dns": {}})),
    ] {
        let mut node = Node::with_server(&server);
        node.config["cniVersion"] = version.into();
        assert_eq!(node.verb("ADD").result(), result);
    }
    for version in ["0.1.0", "0.2.0"] {
        let mut node = Node::with_server(&server);
        node.config["cniVersion"] = version.into();
        let error = node.verb("ADD").error();
        assert!(
            error.code == 999 && error.msg.contains("no valid IP addresses"),
            "{error}"
        );
        assert!(
            node.backend.applied().is_empty(),
            "rules were made for a failed ADD"
        );
    }
}

#[test]
fn bad_input_fails_before_anything() {
    let node = Node::new();
    let mut bad_type = Node::new();
    bad_type.config["ambient_enabled"] = "yes".into();
    let mut bad_previous = Node::new();
    bad_previous.config["prevResult"] = json!({"cniVersion": "0.4.0"});
    for (outcome, word) in [
        (bad_type.verb("ADD"), "boolean"),
        (bad_previous.verb("ADD"), "prevResult"),
        (
            node.run(&node.process("ADD").set("CNI_ARGS", "A=b=c")),
            "CNI_ARGS",
        ),
        (
            node.run(&node.process("ADD").set("CNI_ARGS", "A=b")),
            "IgnoreUnknown",
        ),
    ] {
        let error = outcome.error();
        assert!(error.code == 999 && error.msg.contains(word), "{error}");
    }
}

#[test]
fn the_agents_own_pod_needs_no_kubeconfig() {
    for ambient in [false, true] {
        let mut node = Node::new();
        node.config["ambient_enabled"] = ambient.into();
        let process = node
            .process("ADD")
            .pod("istio-system", "istio-cni-node-x7k2p");
        node.run(&process).result();
        // A pod in another namespace, or with another name, is not the agent.
        for (namespace, name) in [("shop", "istio-cni-node-a"), ("istio-system", "istio-cni")] {
            let error = node.run(&node.process("ADD").pod(namespace, name)).error();
            assert!(error.msg.contains("istio-cni-kubeconfig"), "{error}");
        }
    }
}

#[test]
fn what_is_let_through_still_needs_a_client() {
    let server = sidecar_server();
    let node = Node::with_server(&server);
    let excluded = node.process("ADD").pod("kube-system", "dns-1");
    let no_pod = node.process("ADD").set("CNI_ARGS", "");
    let no_name = node
        .process("ADD")
        .set("CNI_ARGS", "K8S_POD_NAMESPACE=shop");
    for process in [&excluded, &no_pod, &no_name] {
        node.run(process).result();
    }
    assert!(server.asked().is_empty() && node.backend.applied().is_empty());
    let blind = Node::new();
    for process in [excluded, no_pod] {
        let process = FakeProcess {
            stdin: blind.config.to_string(),
            ..process
        };
        let error = blind.run(&process).error();
        assert!(error.msg.contains("No such file"), "{error}");
    }
}

#[test]
fn names_that_would_ask_for_something_else() {
    let server = sidecar_server();
    let node = Node::with_server(&server);
    for (namespace, name) in [
        ("shop", "../../secrets/x"),
        ("..", "a"),
        ("shop", "a b"),
        ("a", "b?c"),
    ] {
        let error = node.run(&node.process("ADD").pod(namespace, name)).error();
        assert!(error.msg.contains("not a Kubernetes name"), "{error}");
    }
    assert!(server.asked().is_empty());
}

/// Whether an object can have the name is left to the API server: tests of other programs use such names.
#[test]
fn names_in_capitals() {
    let pod = pods::sidecar("testNS", "testPod");
    let server = ApiServer::with_pod(pod, Value::Null);
    let node = Node::with_server(&server);
    node.run(&node.process("ADD").pod("testNS", "testPod"))
        .result();
    assert_eq!(node.backend.applied().len(), 1);
}

#[test]
fn pods_that_want_nothing() {
    let mut opted_out = pods::sidecar("shop", "web-0");
    opted_out["metadata"]["labels"]["sidecar.istio.io/inject"] = "false".into();
    for pod in [pods::plain("shop", "web-0", json!({})), opted_out] {
        let server = ApiServer::with_pod(pod, Value::Null);
        let node = Node::with_server(&server);
        node.verb("ADD").result();
        node.verb("CHECK").assert_silent();
        assert!(node.backend.applied().is_empty());
    }
}

#[test]
fn a_bad_annotation_fails_the_add() {
    let mut pod = pods::sidecar("shop", "web-0");
    pod["metadata"]["annotations"]["sidecar.istio.io/interceptionMode"] = "NONE".into();
    let server = ApiServer::with_pod(pod, Value::Null);
    let node = Node::with_server(&server);
    let error = node.verb("ADD").error();
    assert!(
        error.code == 999 && error.msg.contains("interceptionMode"),
        "{error}"
    );
    assert!(node.backend.applied().is_empty());
}

#[test]
fn the_kernels_refusal_is_the_answer() {
    let server = sidecar_server();
    let mut node = Node::with_server(&server);
    node.backend.apply_error = Some("no nf_tables here".into());
    let error = node.verb("ADD").error();
    assert_eq!((error.code, error.msg.as_str()), (999, "no nf_tables here"));
}

#[test]
fn check_compares() {
    let server = sidecar_server();
    let mut node = Node::with_server(&server);
    node.verb("CHECK").assert_silent();
    let deviation = |difference, object: &str| Deviation {
        difference,
        object: object.into(),
    };
    node.backend.differences = vec![
        deviation(Difference::Missing, "rule 2 of chain a"),
        deviation(Difference::Unexpected, "chain b"),
    ];
    let error = node.verb("CHECK").error();
    assert_eq!(error.code, 100);
    assert!(
        error.msg.contains("missing: rule 2 of chain a") && error.msg.contains("shop/web-0"),
        "{error}"
    );
    assert_eq!(
        error.details,
        "missing: rule 2 of chain a\nunexpected: chain b"
    );
    assert!(node.backend.applied().is_empty(), "CHECK changed something");
    // CHECK compares nothing for these pods.
    node.run(&node.process("CHECK").pod("kube-system", "dns-1"))
        .assert_silent();
    node.run(&node.process("CHECK").set("CNI_ARGS", ""))
        .assert_silent();
}

/// Some runtimes kill pods whose CHECK fails.
#[test]
fn check_of_a_pod_that_nobody_knows_is_no_failure() {
    let unknown = [("shop", "web-0"), ("kube-system", "dns-1")];
    for ambient in [false, true] {
        let server = ApiServer::always(Answer::Body(500, String::new()));
        let (mut blind, mut unheard) = (Node::new(), Node::with_server(&server));
        for (node, why) in [(&mut blind, "No such file"), (&mut unheard, "status 500")] {
            node.config["ambient_enabled"] = ambient.into();
            for (namespace, name) in unknown {
                let process = node.process("CHECK").pod(namespace, name);
                node.run(&process).assert_silent();
            }
            node.run(&node.process("CHECK").set("CNI_ARGS", ""))
                .assert_silent();
            let log = node.dir.read(weir_cni::plugin::LOG_FILE);
            let lines: Vec<&str> = log.lines().filter(|l| l.contains("not known")).collect();
            assert!(lines.len() == 1 && lines[0].contains("\"warn\""), "{log}");
            assert!(lines[0].contains(why), "{log}");
        }
        assert_eq!(server.asked().len(), 2, "as many attempts as CHECK makes");
    }
}

#[test]
fn del_always_succeeds() {
    let node = Node::new();
    for process in [
        node.process("DEL"),
        node.process("DEL"),
        node.process("DEL").unset("CNI_NETNS"),
        node.process("DEL").set("CNI_ARGS", "nonsense"),
        FakeProcess {
            stdin: r#"{"name":"a","ambient_enabled":7}"#.into(),
            ..node.process("DEL")
        },
    ] {
        node.run(&process).assert_silent();
    }
}

#[test]
fn gc_succeeds_whatever_it_is_told() {
    let mut node = Node::new();
    node.verb("GC").assert_silent();
    let of_runtime = json!([{"containerID": "a", "ifname": "eth0"}]);
    for attachments in [json!(null), of_runtime, json!({}), json!("x"), json!(["a"])] {
        node.config["cni.dev/valid-attachments"] = attachments;
        node.verb("GC").assert_silent();
    }
}

#[test]
fn status_says_why_not() {
    let server = sidecar_server();
    let mut node = Node::with_server(&server);
    node.verb("STATUS").assert_silent();
    assert!(
        server.asked().is_empty(),
        "STATUS is asked often and asks nobody"
    );
    node.backend.probe_error = Some("the kernel lacks nf_tables".into());
    let error = node.verb("STATUS").error();
    assert_eq!(error.code, 50);
    assert!(error.msg.contains("lacks nf_tables"), "{error}");
}

/// Without nf_tables and legacy tables, the node agent can redirect pods of ambient mode by eBPF.
#[test]
fn without_any_engine_for_rules_a_node_of_ambient_mode_is_available() {
    let server = sidecar_server();
    let mut node = Node::with_server(&server);
    node.backend.lacks_engines = Some("the kernel has neither".into());
    let error = node.verb("STATUS").error();
    assert_eq!(error.code, 50);
    assert!(error.msg.contains("has neither"), "{error}");
    node.config["ambient_enabled"] = true.into();
    node.verb("STATUS").assert_silent();
    node.backend.probe_error = Some("not permitted".into());
    assert_eq!(node.verb("STATUS").error().code, 50);
}

/// The node agent writes the kubeconfig, and its own pod needs a node whose network is available.
#[test]
fn a_missing_kubeconfig_does_not_make_the_node_unavailable() {
    Node::new().verb("STATUS").assert_silent();
}
